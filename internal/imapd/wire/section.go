// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strconv"
)

// SectionKind says by which FETCH item a section was asked for, and so how it
// is named in the answer.
type SectionKind uint8

// The kinds.
const (
	SectionBody       SectionKind = iota // BODY[…], BODY.PEEK[…]
	SectionBinary                        // BINARY[…] (RFC 3516): transfer encoding undone
	SectionBinarySize                    // BINARY.SIZE[…]
	SectionRFC822                        // RFC822, RFC822.HEADER, RFC822.TEXT (RFC 3501)
)

// PartSpec says what of a part is meant.
type PartSpec uint8

// The specifiers.
const (
	PartAll             PartSpec = iota // the whole message, or the part's body
	PartHeader                          // HEADER
	PartHeaderFields                    // HEADER.FIELDS: the Fields alone
	PartHeaderFieldsNot                 // HEADER.FIELDS.NOT: all but the Fields
	PartText                            // TEXT
	PartMIME                            // MIME: the part's own header
)

// Section is a piece of a message that a FETCH asks for (RFC 9051 §6.4.5.1).
type Section struct {
	Kind       SectionKind
	Peek       bool     // do not set \Seen
	Path       []uint32 // part numbers; empty for the message itself
	Part       PartSpec
	Fields     []string // header names as the client spelled them
	HasPartial bool
	Offset     uint64 // of the first byte, with HasPartial
	Count      uint64 // of bytes, at most, with HasPartial
}

// Bounds returns which bytes of a section of size bytes are meant: all of
// them, or those of the partial as far as they exist.
func (s *Section) Bounds(size int64) (offset, count int64) {
	if !s.HasPartial {
		return 0, size
	}
	offset = int64(min(s.Offset, uint64(size)))
	return offset, int64(min(s.Count, uint64(size-offset)))
}

// partSpecs are the names of specifiers.
var partSpecs = [...]string{PartHeader: "HEADER", PartHeaderFields: "HEADER.FIELDS", PartHeaderFieldsNot: "HEADER.FIELDS.NOT", PartText: "TEXT", PartMIME: "MIME"}

// sectionSpec takes what stands between the brackets.
func (r *Reader) sectionSpec(s *Section) {
	for isDigit(r.peek()) {
		if len(s.Path) == MaxSectionDepth {
			fail(overLimit("A part number is too deep."))
		}
		s.Path = append(s.Path, r.nzNumber32())
		if !r.accept('.') {
			return
		}
		if r.peek() == ']' {
			fail(errSyntax)
		}
	}
	if r.peek() == ']' {
		return
	}
	if s.Kind != SectionBody {
		fail(errSyntax)
	}
	part := slices.Index(partSpecs[:], string(r.word()))
	s.Part = PartSpec(max(part, 0))
	switch {
	case s.Part == PartAll:
		fail(bad("There is no such section."))
	case s.Part == PartMIME && len(s.Path) == 0:
		fail(bad("MIME is of a part, not of the message."))
	case s.Part == PartHeaderFields || s.Part == PartHeaderFieldsNot:
		r.sp()
		if r.list(MaxSectionFields, func() { s.Fields = append(s.Fields, r.astring()) }); len(s.Fields) == 0 {
			fail(bad("A list of header fields is empty."))
		}
	}
}

// appendSection appends a section's name as FETCH answers it, such as
// BODY[1.HEADER]<0>.
func appendSection(b []byte, s *Section) []byte {
	switch s.Kind {
	case SectionRFC822:
		if b = append(b, "RFC822"...); s.Part != PartAll {
			b = append(append(b, '.'), partSpecs[s.Part]...)
		}
		return b
	case SectionBinary:
		b = append(b, "BINARY["...)
	case SectionBinarySize:
		b = append(b, "BINARY.SIZE["...)
	default:
		b = append(b, "BODY["...)
	}
	for i, n := range s.Path {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	b = appendPartSpec(b, s)
	b = append(b, ']')
	if s.HasPartial {
		b = append(b, '<')
		b = strconv.AppendUint(b, s.Offset, 10)
		b = append(b, '>')
	}
	return b
}

func appendPartSpec(b []byte, s *Section) []byte {
	if s.Part == PartAll {
		return b
	}
	if len(s.Path) > 0 {
		b = append(b, '.')
	}
	b = append(b, partSpecs[s.Part]...)
	if s.Part != PartHeaderFields && s.Part != PartHeaderFieldsNot {
		return b
	}
	b = append(b, " ("...)
	for i, f := range s.Fields {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendAString(b, f)
	}
	return append(b, ')')
}
