// SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
)

// SectionKind is the kind of a section (RFC 3501 §6.4.5).
type SectionKind uint8

// Section texts.
const (
	SectionAll       SectionKind = iota // BODY[] and BODY[1.2]: the message, or the part's body
	SectionHeader                       // HEADER
	SectionFields                       // HEADER.FIELDS
	SectionFieldsNot                    // HEADER.FIELDS.NOT
	SectionText                         // TEXT
	SectionMIME                         // MIME
)

// Section identifies a piece of a message as BODY[…] does.
type Section struct {
	Path   []int // part numbers from 1; empty for the message itself
	Kind   SectionKind
	Fields []string // names for SectionFields and SectionFieldsNot, in any case
}

// Section returns the range of a section. For SectionFields and SectionFieldsNot that is the header
// for FilterFields. ok is false if the message has no such section: IMAP then answers NIL.
func (ix *Structure) Section(sec Section) (Span, bool) {
	i, message := ix.findPart(sec.Path)
	if i < 0 {
		return Span{}, false
	}
	p := &ix.Parts[i]
	switch sec.Kind {
	case SectionAll:
		if len(sec.Path) == 0 {
			return Span{0, ix.Size}, true
		}
		return p.Body, true
	case SectionMIME:
		return p.Header, len(sec.Path) > 0
	}
	if !message {
		if p.Kind != Embedded {
			return Span{}, false
		}
		p = &ix.Parts[i+1]
	}
	if sec.Kind == SectionText {
		return p.Body, true
	}
	return p.Header, true
}

// Part returns the part with this IMAP part number, such as 1, 2; nil if
// there is none. The empty path is the message.
func (ix *Structure) Part(path []int) *Part {
	i, _ := ix.findPart(path)
	if i < 0 {
		return nil
	}
	return &ix.Parts[i]
}

// findPart returns the index of the part, or -1. message is true for a whole message, which only
// the empty path is.
func (ix *Structure) findPart(path []int) (i int, message bool) {
	at, message := 0, true
	for _, n := range path {
		if !message && ix.Parts[at].Kind == Embedded {
			at, message = at+1, true
		}
		switch {
		case ix.Parts[at].Kind == Multipart:
			at = ix.child(at, n)
		case !message || n != 1:
			at = -1
		}
		if at < 0 {
			return -1, false
		}
		message = false
	}
	return at, message
}

// Path returns the IMAP part number of Parts[i], or nil for the message itself if it is a
// multipart.
func (ix *Structure) Path(i int) []int {
	var path []int
	for i > 0 {
		parent := ix.Parts[i].Parent
		switch {
		case ix.Parts[parent].Kind == Multipart:
			n := 1
			for j := parent + 1; j < i; j++ {
				if ix.Parts[j].Parent == parent {
					n++
				}
			}
			path = append(path, n)
		case ix.Parts[i].Kind != Multipart:
			path = append(path, 1)
		}
		i = parent
	}
	if ix.Parts[0].Kind != Multipart {
		path = append(path, 1)
	}
	slices.Reverse(path)
	return path
}

// FilterFields appends the unchanged header fields that sec names, and an empty line (RFC 3501
// §6.4.5).
func FilterFields(dst []byte, h Header, sec Section) []byte {
	for f := range h.Fields() {
		named := slices.ContainsFunc(sec.Fields, f.Is)
		if named != (sec.Kind == SectionFieldsNot) {
			dst = append(dst, f.Raw...)
		}
	}
	if n := len(dst); n > 0 && dst[n-1] != '\n' {
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}
