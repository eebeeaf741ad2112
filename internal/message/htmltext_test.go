// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

func TestTextOfHTML(t *testing.T) {
	for _, c := range []struct{ name, html, want string }{
		{"words", "<p>One <b>wo</b>rd,\n  two&nbsp;words &amp; more", "One word, two words & more"},
		{"unknown elements", "a<o:p></o:p>b <x-y>c</x-y>", "ab c"},
		{"blocks", "<div>a</div><div>b<br>c<br/><br>d</div>e<p>f</p>g", "a\nb\nc\n\nd\ne\n\nf\n\ng"},
		{"an empty block", "<div>a</div><div><br></div><div>b</div>", "a\n\nb"},
		{"headings", "<h1>Title</h1>text<h2>Part</h2><hr>end", "Title\n\ntext\n\nPart\n\n--------\nend"},
		{"rows", "<table><tr><th>Item<th>Pieces<tr><td>Lamp, red<td>2</table>", "Item  Pieces\nLamp, red  2"},
		{"rows in sections", "<table><thead><tr><td>a</td></tr></thead><tbody><tr><td>b</td><td><p>c</p></td></tr></tbody></table>", "a\nb  c"},
		{"empty cells", "<table><tr><td>&nbsp;</td><td>a</td><td><img src=dot.gif></td><td>b</td></tr><tr><td></td></tr></table>", "a  b"},
		{"layout", "<table><tr><td><table><tr><td>Shop</td><td>Bill 7</td></tr></table></td></tr><tr><td><p>Hello</p><p>there</p></td></tr><tr><td><p>Bye</p></td></tr></table>",
			"Shop  Bill 7\n\nHello\n\nthere\n\nBye"},
		{"columns of text", "<table><tr><td>" + strings.Repeat("long ", 20) + "</td><td>" + strings.Repeat("text ", 10) + "</td></tr></table>",
			strings.TrimSpace(strings.Repeat("long ", 20)) + "\n" + strings.TrimSpace(strings.Repeat("text ", 10))},
		{"cells of blocks", "<table><tr><td><h2>a</h2><p>b</p></td><td>c</td></tr></table>d", "a\n\nb\n\nc\n\nd"},
		{"cells without a table", "<td>a</td><td>b</td><tr>c", "a\nb\nc"},
		{"text in a table", "<table>a<tr>b<td>c</table>d", "a\nb\nc\n\nd"},
		{"a table without an end", "<p>x<table><tr><td>a<td>b", "x\n\na  b"},
		{"lists", "<p>x</p><ul><li>a<li><p>b</p><ol start=9><li>c<li>d<br>e</ol></ul>y", "x\n\n* a\n\n* b\n  9. c\n  10. d\n      e\n\ny"},
		{"terms", "<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a\n  b\nc\n  d"},
		{"items without a list", "<li>a<li>b", "a\nb"},
		{"a list in a cell", "<table><tr><td><ul><li>a</ul></td></tr></table><ul><li>b</ul>", "* a\n\n* b"},
		{"quotations", "a<blockquote>b<br>c<blockquote>d</blockquote></blockquote>e", "a\n\n> b\n> c\n\n> > d\n\ne"},
		{"verbatim", "<pre>a\n  b\n\n\tc</pre>d", "a\n  b\n\n\tc\n\nd"},
		{"links", "<a href=\"https://x.example/?a=1&amp;b=2\">here</a>, <A HREF='y z'>there</A>.", "here <https://x.example/?a=1&b=2>, there <y%20z>."},
		{"links that say it", "<a href=https://x.example/>x.example</a> <a href=mailto:a@x.example>a@x.example</a> <a href='tel:+49123'>+49123</a>", "x.example a@x.example +49123"},
		{"links to nowhere", "<a name=top></a><a href='#top'>a</a> <a href='javascript:x'>b</a> <a href>c</a> <a href=x></a>d", "a b c d"},
		{"links in links", "<a href=x>a <a href=y>b</a> c", "a <x> b <y> c"},
		{"a link around a table", "<a href=x><table><tr><td>Buy</td></tr></table></a>now", "Buy <x>\n\nnow"},
		{"a link without an end", "<p><a href=x>a", "a <x>"},
		{"images", "<img src=a alt=\"The  shop\"> <img src=b alt=''><img src=c>, <a href=x><img alt=Logo></a> <a href=y><img></a>", "The shop , Logo <x> <y>"},
		{"what no reader shows", "<head><title>x</title><style>p > a {}</style></head><script>if (a<b) c>d</script><template>t</template><svg><title>s</title><text>t</text></svg><select><option>o</select>a", "a"},
		{"hidden", "<div style=\"color:red; DISPLAY : none\">a<div>b</div>c</div>d<span hidden>e</span>f<img hidden alt=g><p style='display:none'>h<p>i", "df\n\ni"},
		{"hidden without an end", "a<div hidden>b", "a\nb"},
		{"hidden rows", "<table><tr hidden><td>a</td></tr><tr><td>b</td></tr></table>", "b"},
		{"for Outlook alone", "<!--[if mso]><p>a</p><![endif]--><!--[if !mso]><!--><p>b</p><!--<![endif]--><![if !vml]>c<![endif]><!--[if (gte mso 9)|(IE)]><td><![endif]-->d", "b\n\ncd"},
		{"fillers", "Sale" + strings.Repeat("&nbsp;&zwnj;&#847;&shy;", 30) + "<br>\u200bnow 👩\u200d💻", "Sale\nnow 👩\u200d💻"},
		{"not well-formed", "</p></table></ul></td></a></pre></blockquote>a < b > c<", "a < b > c<"},
		{"nothing", "<p><br></p>", ""},
	} {
		if got := message.HTMLToText(c.html); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// Very long or deeply nested HTML is converted as well, to a text that is not much longer.
func TestTextOfHostileHTML(t *testing.T) {
	const size = 2 << 20
	for _, unit := range []string{
		"<", ">", "<a href=x>", "<a href=x>y", "<ul><li>x", "<blockquote>x", "<table><tr><td>x", "<td>x", "<table>", "<div hidden>", "<p hidden>x", "</div>",
		"<a href='", "<!--", "<pre>\n", "<br>", "&", "&amp", "x ", "\u200c", "\xff", "<svg>", "<title>", "<ol start=999999><li>",
	} {
		text := message.HTMLToText("<p>begin</p>" + strings.Repeat(unit, size/len(unit)))
		if !strings.HasPrefix(text, "begin") || len(text) > 8*size {
			t.Errorf("%q again and again gives %d bytes: %.50q", unit, len(text), text)
		}
	}
}
