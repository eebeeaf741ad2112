// SPDX-License-Identifier: Apache-2.0

package message

import (
	"errors"
	"html"
	"io"
	"unicode"
	"unicode/utf8"
)

// VisibleText returns the visible text of HTML read from r as UTF-8, for searching. It has no tags,
// comments, scripts, styles or title. Entities are decoded, images are replaced by their
// alternative text, and white space is single spaces. Inline tags, such as <b>, don't separate
// words; others do. Malformed HTML is parsed as browsers do (WHATWG HTML §13.2.5). The only errors
// are r's. Memory use is limited, and the text doesn't depend on how r splits its reads.
func VisibleText(r io.Reader) io.Reader { return &visibleReader{r: r, step: (*visibleReader).text} }

// Limits on the length of a name, and of an entity.
const (
	maxTagName = 16
	maxEntity  = 40
)

type visibleReader struct {
	r    io.Reader
	in   [4096]byte
	from int // in[from:to] is unread
	to   int
	err  error
	out  []byte
	read int // bytes of out that were read

	step           func(v *visibleReader, c rune)
	pendingSpace   bool // whether a space comes before the next character
	hasText        bool // whether there was text
	name           []byte
	isEndTag       bool   // of an end tag
	hidden         string // element whose content is hidden
	attr           []byte
	spaceAfterAttr bool // whether white space followed attr
	last           rune // previous character within a tag, without white space
	quote          rune
	inAlt          bool
	dashes         int
	entity         []byte
	resume         func(v *visibleReader, c rune) // state after an entity
	endTagMatched  int                            // matched length of the hidden element's end tag
}

// Read implements io.Reader.
func (v *visibleReader) Read(p []byte) (int, error) {
	if v.read == len(v.out) {
		v.out, v.read = v.out[:0], 0
	}
	for len(v.out) == 0 {
		if v.from == v.to || !utf8.FullRune(v.in[v.from:v.to]) && v.err == nil {
			if v.err == nil {
				v.fill()
				continue
			}
			if len(v.entity) == 0 || !errors.Is(v.err, io.EOF) {
				return 0, v.err
			}
			v.endEntity() // an incomplete entity is text
			continue
		}
		for v.from < v.to && (v.err != nil || utf8.FullRune(v.in[v.from:v.to])) {
			c, n := rune(v.in[v.from]), 1
			if c >= utf8.RuneSelf {
				c, n = utf8.DecodeRune(v.in[v.from:v.to])
			}
			v.from += n
			v.step(v, c)
		}
	}
	n := copy(p, v.out[v.read:])
	v.read += n
	return n, nil
}

func (v *visibleReader) fill() {
	v.to = copy(v.in[:], v.in[v.from:v.to])
	v.from = 0
	n, err := v.r.Read(v.in[v.to:])
	v.to += n
	v.err = err
}

// emit appends a character to the text.
func (v *visibleReader) emit(c rune) {
	switch {
	case c <= ' ' || c >= 0x80 && unicode.IsSpace(c):
		v.pendingSpace = true
		return
	case c == '\u00ad', c == '\u200b', c == '\ufeff', c == '\u034f': // soft hyphens and fillers
		return
	}
	if v.pendingSpace && v.hasText {
		v.out = append(v.out, ' ')
	}
	v.pendingSpace, v.hasText = false, true
	v.out = utf8.AppendRune(v.out, c)
}

func (v *visibleReader) text(c rune) {
	switch c {
	case '<':
		v.step = (*visibleReader).tagOpen
	case '&':
		v.beginEntity((*visibleReader).text)
	default:
		v.emit(c)
	}
}

func (v *visibleReader) beginEntity(resume func(*visibleReader, rune)) {
	v.entity, v.resume, v.step = append(v.entity[:0], '&'), resume, (*visibleReader).inEntity
}

func (v *visibleReader) inEntity(c rune) {
	if c < utf8.RuneSelf && (isAlphaNumeric(byte(c)) || c == '#' && len(v.entity) == 1) && len(v.entity) < maxEntity {
		v.entity = append(v.entity, byte(c))
		return
	}
	if c == ';' {
		v.entity = append(v.entity, ';')
		v.endEntity()
		return
	}
	v.endEntity()
	v.step(v, c)
}

func (v *visibleReader) endEntity() {
	for _, c := range html.UnescapeString(string(v.entity)) {
		v.emit(c)
	}
	v.entity, v.step = v.entity[:0], v.resume
}

// tagOpen is the state after "<".
func (v *visibleReader) tagOpen(c rune) {
	v.name, v.isEndTag, v.attr, v.last, v.inAlt = v.name[:0], false, v.attr[:0], 0, false
	switch {
	case isLetter(c):
		v.step = (*visibleReader).tagName
		v.tagName(c)
	case c == '/':
		v.isEndTag, v.step = true, (*visibleReader).endTagOpen
	case c == '!':
		v.dashes, v.step = 0, (*visibleReader).declaration
	case c == '?':
		v.step = (*visibleReader).bogus
	default:
		v.emit('<')
		v.step = (*visibleReader).text
		v.text(c)
	}
}

// endTagOpen is the state after "</".
func (v *visibleReader) endTagOpen(c rune) {
	switch {
	case isLetter(c):
		v.step = (*visibleReader).tagName
		v.tagName(c)
	case c == '>':
		v.step = (*visibleReader).text
	default:
		v.step = (*visibleReader).bogus
	}
}

func (v *visibleReader) tagName(c rune) {
	switch {
	case c == '>':
		v.endTag()
	case c <= ' ' || c == '/':
		v.step = (*visibleReader).inTag
	case len(v.name) < maxTagName:
		v.name = append(v.name, lowerName(c))
	}
}

// inTag is the state among the attributes.
func (v *visibleReader) inTag(c rune) {
	switch {
	case c == '>':
		v.endTag()
	case c <= ' ':
		v.spaceAfterAttr = true // a name follows, unless "=" does
	case v.last == '=':
		v.inAlt = !v.isEndTag && string(v.name) == "img" && string(v.attr) == "alt"
		v.attr, v.last = v.attr[:0], 0
		v.spaceAfterAttr = false
		if v.pendingSpace = v.pendingSpace || v.inAlt; c == '"' || c == '\'' {
			v.quote, v.step = c, (*visibleReader).quoted
			return
		}
		v.quote, v.step = 0, (*visibleReader).quoted
		v.quoted(c)
	case c == '=' && len(v.attr) > 0:
		v.spaceAfterAttr, v.last = false, c
	case c == '/':
		v.attr = v.attr[:0]
	default:
		if v.spaceAfterAttr {
			v.attr, v.spaceAfterAttr = v.attr[:0], false
		}
		if len(v.attr) < maxTagName {
			v.attr = append(v.attr, lowerName(c))
		}
	}
}

// quoted is the state in an attribute's value, also without quotes.
func (v *visibleReader) quoted(c rune) {
	switch {
	case v.quote != 0 && c == v.quote, v.quote == 0 && c <= ' ':
		v.pendingSpace = v.pendingSpace || v.inAlt
		v.step = (*visibleReader).inTag
	case v.quote == 0 && c == '>':
		v.step = (*visibleReader).inTag
		v.inTag(c)
	case v.inAlt && c == '&':
		v.beginEntity((*visibleReader).quoted)
	case v.inAlt:
		v.emit(c)
	}
}

// endTag processes the ">" of a tag.
func (v *visibleReader) endTag() {
	v.step = (*visibleReader).text
	switch name := string(v.name); name {
	case "script", "style", "title":
		if !v.isEndTag {
			v.hidden, v.endTagMatched, v.step = name, 0, (*visibleReader).hiddenText
		}
		v.pendingSpace = true
	case "a", "abbr", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd", "label", "mark", "q", "s",
		"samp", "small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "wbr":
	default:
		v.pendingSpace = true
	}
}

// hiddenText looks for the end tag of the hidden element.
func (v *visibleReader) hiddenText(c rune) {
	end := "</" + v.hidden
	switch {
	case v.endTagMatched == len(end):
		if c <= ' ' || c == '/' || c == '>' {
			v.name, v.isEndTag, v.attr, v.last, v.inAlt = append(v.name[:0], v.hidden...), true, v.attr[:0], 0, false
			v.step = (*visibleReader).inTag
			v.inTag(c)
			return
		}
		v.endTagMatched = 0
	case lowerName(c) == end[v.endTagMatched]:
		v.endTagMatched++
		return
	}
	if v.endTagMatched = 0; c == '<' {
		v.endTagMatched = 1
	}
}

// declaration is the state after "<!": a comment, or other hidden text.
func (v *visibleReader) declaration(c rune) {
	switch {
	case c == '-' && v.dashes == 0:
		v.dashes = 1
	case c == '-':
		v.dashes, v.step = 2, (*visibleReader).comment // "<!-->" and "<!--->" are complete
	default:
		v.step = (*visibleReader).bogus
		v.bogus(c)
	}
}

func (v *visibleReader) comment(c rune) {
	switch {
	case c == '-':
		v.dashes++
	case c == '>' && v.dashes >= 2:
		v.step = (*visibleReader).text
	case c == '!' && v.dashes >= 2: // "--!>" also ends it
	default:
		v.dashes = 0
	}
}

// bogus skips text up to the next ">".
func (v *visibleReader) bogus(c rune) {
	if c == '>' {
		v.step = (*visibleReader).text
	}
}

func isLetter(c rune) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isAlphaNumeric(c byte) bool { return isLetter(rune(c)) || c >= '0' && c <= '9' }

// lowerName returns a character of a name in lower case; 0xff if no relevant name contains it.
func lowerName(c rune) byte {
	switch {
	case c >= 'A' && c <= 'Z':
		return byte(c) + 'a' - 'A'
	case c < utf8.RuneSelf:
		return byte(c)
	}
	return 0xff
}
