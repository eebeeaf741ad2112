// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
)

// Limits of the conversion.
const (
	maxHTMLText = 1 << 20 // bytes of HTML that are read
	maxTables   = 32      // nested tables that are laid out
	maxIndents  = 10      // nested lists and quotations that are indented
	maxRowText  = 120     // bytes of a row with its cells on one line
	maxLinkText = 2048    // bytes of a link's text that are compared with its URL
)

// HTMLToText converts HTML to plain text as its readers see it: blocks, rows and items on their own
// lines, cells apart, links with their URLs, images as their alternative texts. It leaves out what
// mail readers don't show: comments, including those for Outlook, styles, and elements with
// "display: none". It doesn't read very long HTML to its end.
func HTMLToText(source string) string {
	if len(source) > maxHTMLText {
		source = strings.ToValidUTF8(source[:maxHTMLText], "")
	}
	text, whole := convertHTML(source, true)
	if !whole { // a hidden element that never ends is a mistake
		text, _ = convertHTML(source, false)
	}
	return text
}

// convertHTML is HTMLToText; with hiding, it leaves out elements that attributes hide. whole is
// false if the end of such an element is missing.
func convertHTML(source string, hiding bool) (text string, whole bool) {
	w := &htmlConverter{out: &textLayout{}, honorHidden: hiding}
	tokens := html.NewTokenizer(strings.NewReader(source))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			w.endLink()
			for w.deepTables = 0; len(w.tables) > 0; {
				w.endTable()
			}
			return strings.TrimSpace(w.out.text.String()), w.hidden == "" || isHiddenElement(w.hidden)
		case html.TextToken:
			if w.hidden == "" {
				w.addText(string(tokens.Text()))
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

// tagAttributes are the attributes of a tag that affect its text.
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
			a.href = hrefReplacer.Replace(strings.TrimSpace(string(value)))
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

var hrefReplacer = strings.NewReplacer("<", "%3C", ">", "%3E", `"`, "%22", " ", "%20", "\n", "", "\r", "", "\t", "")

// htmlConverter lays out an HTML.
type htmlConverter struct {
	out            *textLayout
	tables         []*textTable
	deepTables     int    // open tables that lie too deep to be laid out
	link           string // the address of the link that is open
	linkHasContent bool   // something of it
	linkText       strings.Builder
	honorHidden    bool
	hidden         string // the element whose content is not shown
	depth          int    // of elements of its name
}

// addText adds what stands between tags.
func (w *htmlConverter) addText(s string) {
	if w.out.verbatim > 0 {
		w.out.addVerbatim(s)
		w.linkHasContent = true
		return
	}
	first, last := strings.TrimLeftFunc(s, unicode.IsSpace), strings.TrimRightFunc(s, unicode.IsSpace)
	if len(first) < len(s) {
		w.out.requestGap(gapSpace)
	}
	for n, word := range strings.FieldsFunc(s, unicode.IsSpace) {
		if n > 0 {
			w.out.requestGap(gapSpace)
		}
		if word = visibleRunes(word); word == "" {
			continue
		}
		if w.link != "" && w.linkText.Len()+len(word) < maxLinkText {
			if w.out.gap != gapNone && w.linkText.Len() > 0 {
				w.linkText.WriteByte(' ')
			}
			w.linkText.WriteString(word)
		}
		w.linkHasContent = true
		w.out.addText(word)
	}
	if len(last) < len(s) {
		w.out.requestGap(gapSpace)
	}
}

// visibleRunes leaves out what can't be seen, such as the joiners that newsletters fill
// their first line with.
func visibleRunes(s string) string {
	s = strings.Map(func(r rune) rune {
		joiner := r == '\u200c' || r == '\u200d'
		if !joiner && unicode.Is(unicode.Cf, r) || r == '\u034f' || unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, s)
	return strings.Trim(s, "\u200c\u200d")
}

// isHiddenElement reports whether nothing is shown of the content of an element.
func isHiddenElement(name string) bool {
	switch name {
	case "script", "style", "title", "template", "svg", "iframe", "noframes", "select", "textarea":
		return true
	}
	return false
}

// isVoidElement reports whether an element has no content.
func isVoidElement(name string) bool {
	switch name {
	case "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "html", "body":
		return true
	}
	return false
}

// hasImpliedEnd reports whether another element of this name ends the one before.
func hasImpliedEnd(name string) bool {
	switch name {
	case "p", "li", "td", "th", "tr", "dt", "dd":
		return true
	}
	return false
}

func (w *htmlConverter) start(name string, a tagAttributes) {
	if w.hidden == name && (w.depth > 1 || !hasImpliedEnd(name)) {
		w.depth++
	}
	if w.hidden != "" && (w.hidden != name || !hasImpliedEnd(name) || w.depth > 1) {
		return
	}
	w.hidden, w.depth = "", 0
	if isHiddenElement(name) || w.honorHidden && a.hidden && !isVoidElement(name) {
		w.hidden, w.depth = name, 1
		return
	}
	f := w.out
	switch name {
	case "a":
		w.endLink()
		w.link = a.href
	case "img":
		if !a.hidden {
			w.linkHasContent = true
			w.addText(a.alt)
		}
	case "br":
		f.lineBreak()
	case "hr":
		f.addLines("--------", gapLine)
	case "table":
		w.startTable()
	case "tr", "td", "th":
		w.startCell(name)
	case "ul", "ol", "menu", "dir", "blockquote", "dl":
		f.startIndent(name, a.start)
	case "li", "dt", "dd":
		f.beginItem(name)
	case "pre":
		f.requestGap(gapEmptyLine)
		f.verbatim++
	default:
		f.requestGap(elementGap(name))
	}
}

func (w *htmlConverter) end(name string) {
	if w.hidden != "" {
		if w.hidden == name {
			if w.depth--; w.depth == 0 {
				w.hidden = ""
			}
		}
		return
	}
	f := w.out
	switch name {
	case "a":
		w.endLink()
	case "br":
		f.lineBreak()
	case "table":
		if w.deepTables > 0 {
			w.deepTables--
			f.requestGap(gapLine)
		} else if len(w.tables) > 0 {
			w.endTable()
		}
	case "tr", "td", "th":
		w.endCell(name)
	case "ul", "ol", "menu", "dir", "blockquote", "dl":
		f.endIndent()
	case "pre":
		f.verbatim = max(0, f.verbatim-1)
		f.requestGap(gapEmptyLine)
	default:
		f.requestGap(elementGap(name))
	}
}

// elementGap returns what parts the content of an element from what is around it.
func elementGap(name string) textGap {
	switch name {
	case "p", "h1", "h2", "h3", "h4", "h5", "h6":
		return gapEmptyLine
	case "address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div", "dt", "fieldset", "figcaption", "figure",
		"footer", "form", "header", "hgroup", "html", "legend", "li", "main", "nav", "optgroup", "option", "section", "summary", "tbody", "tfoot", "thead":
		return gapLine
	}
	return gapNone
}

// endLink gives the address of the link that is open, if it says more than its text.
func (w *htmlConverter) endLink() {
	link, text := w.link, w.linkText.String()
	shown := w.linkHasContent
	w.link, w.linkHasContent = "", false
	w.linkText.Reset()
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
	space := min(w.out.gap, gapSpace)
	w.out.requestGap(gapSpace)
	w.out.addText("<" + link + ">")
	w.out.requestGap(space)
}

// textTable is a table that is being laid out.
type textTable struct {
	around *textLayout
	cells  []*textLayout // of the current row
	inCell bool          // the last of them is open
}

func (w *htmlConverter) startTable() {
	if len(w.tables) == maxTables {
		w.deepTables++
		w.out.requestGap(gapLine)
		return
	}
	w.out.requestGap(gapEmptyLine)
	w.tables = append(w.tables, &textTable{around: w.out})
}

func (w *htmlConverter) startCell(name string) {
	if len(w.tables) == 0 || w.deepTables > 0 {
		w.out.requestGap(gapLine)
		return
	}
	if w.endCell(name); name == "tr" {
		w.out.requestGap(gapLine)
		return
	}
	t := w.tables[len(w.tables)-1]
	w.out = &textLayout{}
	t.cells, t.inCell = append(t.cells, w.out), true
}

// endCell ends the cell that is open, and with "tr" its row.
func (w *htmlConverter) endCell(name string) {
	if len(w.tables) == 0 || w.deepTables > 0 {
		w.out.requestGap(gapLine)
		return
	}
	t := w.tables[len(w.tables)-1]
	if t.inCell {
		w.endLink()
		t.inCell, w.out = false, t.around
	}
	if name == "tr" {
		t.around.addRow(t.cells)
		t.cells = nil
	}
}

func (w *htmlConverter) endTable() {
	w.endCell("tr")
	w.tables = w.tables[:len(w.tables)-1]
	w.out.requestGap(gapEmptyLine)
}

// addRow lays out a row: its cells on one line if they are short, else below each other.
func (f *textLayout) addRow(cells []*textLayout) {
	var texts []string
	size, several, around := 0, false, gapLine
	for _, cell := range cells {
		text := strings.Trim(cell.text.String(), "\n")
		if text == "" {
			continue
		}
		texts = append(texts, text)
		size += len(text)
		several = several || strings.Contains(text, "\n")
		around = max(around, cell.firstGap, cell.gap)
	}
	if len(texts) > 1 && !several && size <= maxRowText {
		texts, around = []string{strings.Join(texts, "  ")}, gapLine
	}
	if several {
		around = gapEmptyLine
	}
	for _, text := range texts {
		f.addLines(text, around)
	}
}

// parseListStart reads the start attribute of a list.
func parseListStart(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 || n > 1_000_000 {
		return 1
	}
	return n
}
