// SPDX-License-Identifier: Apache-2.0

package message

import (
	"strconv"
	"strings"
)

// textGap is what comes between two pieces of text.
type textGap int

// The gaps, each of which includes those before it.
const (
	noGap textGap = iota
	oneSpace
	newLine
	emptyLine
)

// textFlow is text that is being put together: all of it, or that of a cell.
type textFlow struct {
	text     strings.Builder
	gap      textGap // before what comes next
	first    textGap // that was wanted before the first text
	begun    bool    // there is text
	indents  []textIndent
	bullet   string // of the item that begins
	verbatim int    // open elements in which white space counts
}

// textIndent is a list or a quotation that is open.
type textIndent struct {
	prefix string // of its lines
	next   int    // the number of its next item; negative in lists without numbers
	list   bool
}

// want makes the gap before what comes next at least g.
func (f *textFlow) want(g textGap) { f.gap = max(f.gap, g) }

// lineBreak ends the line, or leaves one empty.
func (f *textFlow) lineBreak() {
	if f.gap >= newLine {
		f.gap = emptyLine
		return
	}
	f.gap = newLine
}

// put adds a piece of text without line ends.
func (f *textFlow) put(s string) {
	if s == "" {
		return
	}
	switch {
	case !f.begun:
		f.begun, f.first = true, f.gap
		f.beginLine()
	case f.gap >= newLine:
		f.text.WriteString("\n\n"[:f.gap-oneSpace])
		f.beginLine()
	case f.gap == oneSpace:
		f.text.WriteByte(' ')
	}
	f.gap = noGap
	f.text.WriteString(s)
}

func (f *textFlow) beginLine() {
	shown := f.indents[:min(len(f.indents), maxIndents)]
	for n, indent := range shown {
		if n == len(shown)-1 && f.bullet != "" {
			indent.prefix = f.bullet
		}
		f.text.WriteString(indent.prefix)
	}
	f.bullet = ""
}

// lines adds text that is laid out already, with a gap around it.
func (f *textFlow) lines(s string, around textGap) {
	f.want(around)
	for n, line := range strings.Split(s, "\n") {
		if n > 0 {
			f.lineBreak()
		}
		f.put(line)
	}
	f.want(around)
}

// verbatimLines adds text whose white space counts.
func (f *textFlow) verbatimLines(s string) {
	for n, line := range strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
		if n > 0 {
			f.lineBreak()
		}
		f.put(shownText(line))
	}
}

// startIndent begins a list or a quotation.
func (f *textFlow) startIndent(name, start string) {
	in := textIndent{prefix: "  ", next: -1, list: name != "blockquote"}
	nested := len(f.indents) > 0 && f.indents[len(f.indents)-1].list
	switch name {
	case "ol":
		in.next = parseStart(start)
	case "blockquote":
		in.prefix = "> "
	case "dl":
		in.prefix = ""
	}
	if f.want(emptyLine); nested && in.list {
		f.gap = newLine
	}
	f.indents = append(f.indents, in)
}

func (f *textFlow) endIndent() {
	f.want(newLine)
	if len(f.indents) > 0 {
		f.indents = f.indents[:len(f.indents)-1]
	}
	if len(f.indents) == 0 {
		f.want(emptyLine)
	}
	f.bullet = ""
}

// item begins an item of a list.
func (f *textFlow) item(name string) {
	f.want(newLine)
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
