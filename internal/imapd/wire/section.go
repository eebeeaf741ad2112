// SPDX-License-Identifier: Apache-2.0

package wire

import "strconv"

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

// sectionSpec takes what stands between the brackets.
func (r *Reader) sectionSpec(s *Section) error {
	for isDigit(r.peek()) {
		if len(s.Path) == MaxSectionDepth {
			return overLimit("A part number is too deep.")
		}
		n, err := r.nzNumber32()
		if err != nil {
			return err
		}
		s.Path = append(s.Path, n)
		if !r.accept('.') {
			return nil
		}
		if r.peek() == ']' {
			return errSyntax
		}
	}
	if r.peek() == ']' {
		return nil
	}
	if s.Kind != SectionBody {
		return errSyntax
	}
	switch string(r.word()) {
	case "HEADER":
		s.Part = PartHeader
	case "TEXT":
		s.Part = PartText
	case "MIME":
		if len(s.Path) == 0 {
			return bad("MIME is of a part, not of the message.")
		}
		s.Part = PartMIME
	case "HEADER.FIELDS":
		s.Part = PartHeaderFields
		return r.sectionFields(s)
	case "HEADER.FIELDS.NOT":
		s.Part = PartHeaderFieldsNot
		return r.sectionFields(s)
	default:
		return bad("There is no such section.")
	}
	return nil
}

func (r *Reader) sectionFields(s *Section) error {
	if err := r.sp(); err != nil {
		return err
	}
	err := r.list(MaxSectionFields, func() error {
		name, err := r.astring()
		s.Fields = append(s.Fields, name)
		return err
	})
	if err == nil && len(s.Fields) == 0 {
		return bad("A list of header fields is empty.")
	}
	return err
}

// appendSection appends a section's name as FETCH answers it, such as
// BODY[1.HEADER]<0>.
func appendSection(b []byte, s *Section) []byte {
	switch s.Kind {
	case SectionRFC822:
		switch s.Part {
		case PartHeader:
			return append(b, "RFC822.HEADER"...)
		case PartText:
			return append(b, "RFC822.TEXT"...)
		}
		return append(b, "RFC822"...)
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
	switch s.Part {
	case PartHeader:
		return append(b, "HEADER"...)
	case PartText:
		return append(b, "TEXT"...)
	case PartMIME:
		return append(b, "MIME"...)
	case PartHeaderFields:
		b = append(b, "HEADER.FIELDS ("...)
	case PartHeaderFieldsNot:
		b = append(b, "HEADER.FIELDS.NOT ("...)
	}
	for i, f := range s.Fields {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendAString(b, f)
	}
	return append(b, ')')
}
