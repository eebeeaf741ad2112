// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
)

// Bounds of what is made of an HTML.
const (
	maxHTMLText = 1 << 20 // bytes of the HTML that are read
	maxTables   = 32      // tables within each other that are laid out
	maxIndents  = 10      // lists and quotations within each other that are indented
	maxRowText  = 120     // bytes of a row whose cells stand on one line
	maxLinkText = 2048    // bytes of a link's text that are compared with its address
)

// TextOfHTML makes a plain text of an HTML, as its readers see it: blocks, rows and
// items on lines of their own, cells apart, links with their addresses, images by their
// alternative texts. What mail readers don't show is left out: comments, among them what
// is for Outlook alone, styles, and elements with "display: none". A very long HTML is
// not read to its end.
func TextOfHTML(source string) string {
	if len(source) > maxHTMLText {
		source = strings.ToValidUTF8(source[:maxHTMLText], "")
	}
	text, whole := textOfHTML(source, true)
	if !whole { // what is hidden never ends, which is a mistake
		text, _ = textOfHTML(source, false)
	}
	return text
}

// textOfHTML is TextOfHTML with or without leaving out what attributes hide. whole is
// false if the end of that is missing.
func textOfHTML(source string, hiding bool) (text string, whole bool) {
	w := &htmlText{to: &textFlow{}, hiding: hiding}
	tokens := html.NewTokenizer(strings.NewReader(source))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			w.endLink()
			for w.lost = 0; len(w.tables) > 0; {
				w.endTable()
			}
			return strings.TrimSpace(w.to.text.String()), w.hidden == "" || isHidden(w.hidden)
		case html.TextToken:
			if w.hidden == "" {
				w.words(string(tokens.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, attributes := tokens.TagName()
			w.start(string(name), readTagAttributes(tokens, attributes))
		case html.EndTagToken:
			name, _ := tokens.TagName()
			w.end(string(name))
		}
	}
}

// tagAttributes are those attributes of a tag that matter for its text.
type tagAttributes struct {
	href, alt, start string
	hidden           bool
}

func readTagAttributes(tokens *html.Tokenizer, more bool) (a tagAttributes) {
	for more {
		var name, value []byte
		name, value, more = tokens.TagAttr()
		switch string(name) {
		case "href":
			a.href = inHref.Replace(strings.TrimSpace(string(value)))
		case "alt":
			a.alt = string(value)
		case "start":
			a.start = string(value)
		case "hidden":
			a.hidden = true
		case "style":
			style := strings.ToLower(strings.Join(strings.Fields(string(value)), ""))
			a.hidden = a.hidden || strings.Contains(style, "display:none")
		}
	}
	return a
}

var inHref = strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "%20", "\n", "", "\r", "", "\t", "")

// htmlText lays out an HTML.
type htmlText struct {
	to     *textFlow
	tables []*textTable
	lost   int    // open tables that lie too deep to be laid out
	link   string // the address of the link that is open
	seen   bool   // something of it
	linked strings.Builder
	hiding bool
	hidden string // the element whose content is not shown
	depth  int    // of elements of its name
}

// words adds what stands between tags.
func (w *htmlText) words(s string) {
	if w.to.verbatim > 0 {
		w.to.verbatimLines(s)
		w.seen = true
		return
	}
	first, last := strings.TrimLeftFunc(s, unicode.IsSpace), strings.TrimRightFunc(s, unicode.IsSpace)
	if len(first) < len(s) {
		w.to.want(oneSpace)
	}
	for n, word := range strings.FieldsFunc(s, unicode.IsSpace) {
		if n > 0 {
			w.to.want(oneSpace)
		}
		if word = shownText(word); word == "" {
			continue
		}
		if w.link != "" && w.linked.Len()+len(word) < maxLinkText {
			if w.to.gap != noGap && w.linked.Len() > 0 {
				w.linked.WriteByte(' ')
			}
			w.linked.WriteString(word)
		}
		w.seen = true
		w.to.put(word)
	}
	if len(last) < len(s) {
		w.to.want(oneSpace)
	}
}

// shownText leaves out what can't be seen, such as the joiners that newsletters fill
// their first line with.
func shownText(s string) string {
	s = strings.Map(func(r rune) rune {
		joiner := r == '\u200c' || r == '\u200d'
		if !joiner && unicode.Is(unicode.Cf, r) || r == '\u034f' || unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, s)
	return strings.Trim(s, "\u200c\u200d")
}

// isHidden reports whether nothing is shown of the content of an element.
func isHidden(name string) bool {
	switch name {
	case "script", "style", "title", "template", "svg", "iframe", "noframes", "select", "textarea":
		return true
	}
	return false
}

// isVoid reports whether an element has no content.
func isVoid(name string) bool {
	switch name {
	case "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "html", "body":
		return true
	}
	return false
}

// endsItself reports whether another element of this name ends the one before.
func endsItself(name string) bool {
	switch name {
	case "p", "li", "td", "th", "tr", "dt", "dd":
		return true
	}
	return false
}

func (w *htmlText) start(name string, a tagAttributes) {
	if w.hidden == name && (w.depth > 1 || !endsItself(name)) {
		w.depth++
	}
	if w.hidden != "" && (w.hidden != name || !endsItself(name) || w.depth > 1) {
		return
	}
	w.hidden, w.depth = "", 0
	if isHidden(name) || w.hiding && a.hidden && !isVoid(name) {
		w.hidden, w.depth = name, 1
		return
	}
	f := w.to
	switch name {
	case "a":
		w.endLink()
		w.link = a.href
	case "img":
		if !a.hidden {
			w.seen = true
			w.words(a.alt)
		}
	case "br":
		f.lineBreak()
	case "hr":
		f.lines("--------", newLine)
	case "table":
		w.startTable()
	case "tr", "td", "th":
		w.startCell(name)
	case "ul", "ol", "menu", "dir", "blockquote", "dl":
		f.startIndent(name, a.start)
	case "li", "dt", "dd":
		f.item(name)
	case "pre":
		f.want(emptyLine)
		f.verbatim++
	default:
		f.want(gapAround(name))
	}
}

func (w *htmlText) end(name string) {
	if w.hidden != "" {
		if w.hidden == name {
			if w.depth--; w.depth == 0 {
				w.hidden = ""
			}
		}
		return
	}
	f := w.to
	switch name {
	case "a":
		w.endLink()
	case "br":
		f.lineBreak()
	case "table":
		if w.lost > 0 {
			w.lost--
			f.want(newLine)
		} else if len(w.tables) > 0 {
			w.endTable()
		}
	case "tr", "td", "th":
		w.endCell(name)
	case "ul", "ol", "menu", "dir", "blockquote", "dl":
		f.endIndent()
	case "pre":
		f.verbatim = max(0, f.verbatim-1)
		f.want(emptyLine)
	default:
		f.want(gapAround(name))
	}
}

// gapAround returns what parts the content of an element from what is around it.
func gapAround(name string) textGap {
	switch name {
	case "p", "h1", "h2", "h3", "h4", "h5", "h6":
		return emptyLine
	case "address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dt", "fieldset", "figcaption", "figure",
		"footer", "form", "header", "hgroup", "html", "legend", "li", "main", "nav", "optgroup", "option", "section", "summary", "tbody", "tfoot", "thead":
		return newLine
	}
	return noGap
}

// endLink gives the address of the link that is open, if it says more than its text.
func (w *htmlText) endLink() {
	link, text := w.link, w.linked.String()
	shown := w.seen
	w.link, w.seen = "", false
	w.linked.Reset()
	bare := func(s string) string {
		s = strings.ToLower(strings.TrimSuffix(s, "/"))
		for _, scheme := range []string{"https://", "http://", "mailto:", "tel:"} {
			s = strings.TrimPrefix(s, scheme)
		}
		return s
	}
	if link == "" || link[0] == '#' || !shown || bare(link) == bare(text) || strings.HasPrefix(strings.ToLower(link), "javascript:") {
		return
	}
	space := min(w.to.gap, oneSpace)
	w.to.want(oneSpace)
	w.to.put("<" + link + ">")
	w.to.want(space)
}

// textTable is a table that is being laid out.
type textTable struct {
	around *textFlow
	cells  []*textFlow // of the current row
	inCell bool        // the last of them is open
}

func (w *htmlText) startTable() {
	if len(w.tables) == maxTables {
		w.lost++
		w.to.want(newLine)
		return
	}
	w.to.want(emptyLine)
	w.tables = append(w.tables, &textTable{around: w.to})
}

func (w *htmlText) startCell(name string) {
	if len(w.tables) == 0 || w.lost > 0 {
		w.to.want(newLine)
		return
	}
	if w.endCell(name); name == "tr" {
		w.to.want(newLine)
		return
	}
	t := w.tables[len(w.tables)-1]
	w.to = &textFlow{}
	t.cells, t.inCell = append(t.cells, w.to), true
}

// endCell ends the cell that is open, and with "tr" its row.
func (w *htmlText) endCell(name string) {
	if len(w.tables) == 0 || w.lost > 0 {
		w.to.want(newLine)
		return
	}
	t := w.tables[len(w.tables)-1]
	if t.inCell {
		w.endLink()
		t.inCell, w.to = false, t.around
	}
	if name == "tr" {
		t.around.row(t.cells)
		t.cells = nil
	}
}

func (w *htmlText) endTable() {
	w.endCell("tr")
	w.tables = w.tables[:len(w.tables)-1]
	w.to.want(emptyLine)
}

// row lays out a row: its cells on one line if they are short, else below each other.
func (f *textFlow) row(cells []*textFlow) {
	var texts []string
	size, several, around := 0, false, newLine
	for _, cell := range cells {
		text := strings.Trim(cell.text.String(), "\n")
		if text == "" {
			continue
		}
		texts = append(texts, text)
		size += len(text)
		several = several || strings.Contains(text, "\n")
		around = max(around, cell.first, cell.gap)
	}
	if len(texts) > 1 && !several && size <= maxRowText {
		texts, around = []string{strings.Join(texts, "  ")}, newLine
	}
	if several {
		around = emptyLine
	}
	for _, text := range texts {
		f.lines(text, around)
	}
}

// parseStart reads the start attribute of a list.
func parseStart(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 || n > 1_000_000 {
		return 1
	}
	return n
}
