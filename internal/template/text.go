// SPDX-License-Identifier: Apache-2.0

package template

import (
	"regexp"
	"strings"

	"github.com/k3a/html2text"
)

// maxDerived bounds the html of which a text is made.
const maxDerived = 1 << 20

// textOf makes the plain text of an html, for readers that show no html; a
// very long one is not read to its end.
func textOf(html string) string {
	if len(html) > maxDerived {
		html = strings.ToValidUTF8(html[:maxDerived], "")
	}
	html = onlyEnds(plainLinks(html))
	text := html2text.HTML2TextWithOptions(html, html2text.WithUnixLineBreaks(), html2text.WithLinksInnerText(), html2text.WithListSupport())
	return strings.TrimSpace(text)
}

// onlyEnds leaves out each ">" that ends no tag. html2text shows it nowhere, but
// takes it for the end of the tag before once more: of a link, or of a style
// element, whose end then comes too early; and it looks at all since then anew.
func onlyEnds(html string) string {
	var b strings.Builder
	within, from := false, 0
	for i := range len(html) {
		switch html[i] {
		case '<':
			within = true
		case '>':
			if !within {
				b.WriteString(html[from:i])
				from = i + 1
			}
			within = false
		}
	}
	b.WriteString(html[from:])
	return b.String()
}

var (
	anchors = regexp.MustCompile(`(?i)<a(?:\s(?:(?:"[^"<]*"|'[^'<]*'|[^<>"'])*|[^<>]*))?>|</a\s+>`)
	href    = regexp.MustCompile(`(?i)[\s"']href\s*=\s*(?:'([^']*)'|"([^"]*)"|([^\s"'<>]+))`)
	inHref  = strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", "\n", "", "\r", "")
)

// plainLinks makes the tags of links plain. None has a "<" within, so each is
// looked for in the little text up to the next: in a long one that is slow.
func plainLinks(html string) string {
	var b strings.Builder
	for len(html) > 0 {
		end := strings.IndexByte(html[1:], '<') + 1
		if end == 0 {
			end = len(html)
		}
		tag := html[:end]
		if name := strings.TrimPrefix(tag[1:], "/"); name != "" && name[0]|0x20 == 'a' {
			tag = anchors.ReplaceAllStringFunc(tag, plainLink)
		}
		b.WriteString(tag)
		html = html[end:]
	}
	return b.String()
}

// plainLink makes a tag of a link such that html2text understands it: of one
// that leads nowhere, or has its href, or the end of its end tag, on another line,
// it would hide all that follows.
func plainLink(tag string) string {
	if tag[1] == '/' {
		return "</a>"
	}
	link := href.FindStringSubmatch(tag)
	if link == nil {
		return ""
	}
	return `<a href="` + inHref.Replace(link[1]+link[2]+link[3]) + `">`
}
