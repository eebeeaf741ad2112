// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
)

// textGap is the gap between two pieces of text.
type textGap int

// Gaps, from small to large.
const (
	gapNone textGap = iota
	gapSpace
	gapLine
	gapEmptyLine
)

// textLayout builds a text: all of it, or that of a cell.
type textLayout struct {
	text      strings.Builder
	gap       textGap // before the next text
	firstGap  textGap // requested before the first text
	lineBegun bool    // whether there is text
	indents   []textIndent
	bullet    string // of the new item
	verbatim  int    // number of open elements that keep white space
}

// textIndent is an open list or quotation.
type textIndent struct {
	prefix string // of each line
	next   int    // number of the next item; negative in unnumbered lists
	list   bool
}

// requestGap makes the next gap at least g.
func (f *textLayout) requestGap(g textGap) { f.gap = max(f.gap, g) }

// lineBreak ends the line, or adds an empty line.
func (f *textLayout) lineBreak() {
	if f.gap >= gapLine {
		f.gap = gapEmptyLine
		return
	}
	f.gap = gapLine
}

// addText adds a piece of text without line ends.
func (f *textLayout) addText(s string) {
	if s == "" {
		return
	}
	switch {
	case !f.lineBegun:
		f.lineBegun, f.firstGap = true, f.gap
		f.beginLine()
	case f.gap >= gapLine:
		f.text.WriteString("\n\n"[:f.gap-gapSpace])
		f.beginLine()
	case f.gap == gapSpace:
		f.text.WriteByte(' ')
	}
	f.gap = gapNone
	f.text.WriteString(s)
}

func (f *textLayout) beginLine() {
	shown := f.indents[:min(len(f.indents), maxIndents)]
	for n, indent := range shown {
		if n == len(shown)-1 && f.bullet != "" {
			indent.prefix = f.bullet
		}
		f.text.WriteString(indent.prefix)
	}
	f.bullet = ""
}

// addLines adds finished lines, with a gap around them.
func (f *textLayout) addLines(s string, around textGap) {
	f.requestGap(around)
	for n, line := range strings.Split(s, "\n") {
		if n > 0 {
			f.lineBreak()
		}
		f.addText(line)
	}
	f.requestGap(around)
}

// addVerbatim adds text and keeps its white space.
func (f *textLayout) addVerbatim(s string) {
	for n, line := range strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if n > 0 {
			f.lineBreak()
		}
		f.addText(visibleRunes(line))
	}
}

// startIndent starts a list or a quotation.
func (f *textLayout) startIndent(name, start string) {
	in := textIndent{prefix: "  ", next: -1, list: name != "blockquote"}
	nested := len(f.indents) > 0 && f.indents[len(f.indents)-1].list
	switch name {
	case "ol":
		in.next = parseListStart(start)
	case "blockquote":
		in.prefix = "> "
	case "dl":
		in.prefix = ""
	}
	if f.requestGap(gapEmptyLine); nested && in.list {
		f.gap = gapLine
	}
	f.indents = append(f.indents, in)
}

func (f *textLayout) endIndent() {
	f.requestGap(gapLine)
	if len(f.indents) > 0 {
		f.indents = f.indents[:len(f.indents)-1]
	}
	if len(f.indents) == 0 {
		f.requestGap(gapEmptyLine)
	}
	f.bullet = ""
}

// beginItem starts an item of a list.
func (f *textLayout) beginItem(name string) {
	f.requestGap(gapLine)
	if len(f.indents) == 0 || !f.indents[len(f.indents)-1].list {
		return
	}
	in := &f.indents[len(f.indents)-1]
	switch {
	case name == "dt":
		in.prefix = ""
	case name == "dd":
		in.prefix = "  "
	case in.next < 0:
		f.bullet = "* "
	default:
		f.bullet = strconv.Itoa(in.next) + ". "
		in.prefix = strings.Repeat(" ", len(f.bullet))
		in.next++
	}
}
