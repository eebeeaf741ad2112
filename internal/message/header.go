// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"iter"
)

// Header is a raw header section: fields, and perhaps the empty line that ends it. Parsing one
// never fails: lines that are not a field (an mbox "From " line, a line without a colon) are fields
// without a name. A byte order mark at its start is ignored.
type Header []byte

// Field is one field of a header, in its original form.
type Field struct {
	Raw   []byte // the whole field with its line ends
	Name  []byte // without the colon; empty for a line that is not a field
	Value []byte // after the colon, folded, without the last line end; at most MaxField bytes
}

// Is reports whether the field has the name, ignoring case.
func (f Field) Is(name string) bool { return equalFold(f.Name, name) }

// Unfolded returns the value on one line (RFC 5322 §2.2.3), without outer white space and without
// NUL. It doesn't decode encoded words.
func (f Field) Unfolded() string { return string(unfold(nil, f.Value)) }

// Decoded returns the value on one line as UTF-8, with encoded words decoded.
func (f Field) Decoded() string { return DecodeWords(f.Unfolded()) }

// Fields iterates over the fields of the header in order.
func (h Header) Fields() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		rest := []byte(h.WithoutBOM())
		for {
			f, next, ok := nextField(rest)
			if !ok || !yield(f) {
				return
			}
			rest = next
		}
	}
}

// First returns the first field called name.
func (h Header) First(name string) (Field, bool) {
	for f := range h.Fields() {
		if f.Is(name) {
			return f, true
		}
	}
	return Field{}, false
}

// All returns the fields called name, in order.
func (h Header) All(name string) []Field {
	var all []Field
	for f := range h.Fields() {
		if f.Is(name) {
			all = append(all, f)
		}
	}
	return all
}

// Unfolded returns the first field called name as Field.Unfolded does, or "".
func (h Header) Unfolded(name string) string {
	f, ok := h.First(name)
	if !ok {
		return ""
	}
	return f.Unfolded()
}

// Decoded returns the first field called name as Field.Decoded does, or "".
func (h Header) Decoded(name string) string {
	f, ok := h.First(name)
	if !ok {
		return ""
	}
	return f.Decoded()
}

// StartsFolded reports whether the first line begins with white space. That line would continue the
// last field prepended to it (RFC 5322 §2.2.3).
func (h Header) StartsFolded() bool {
	h = h.WithoutBOM()
	return len(h) > 0 && (h[0] == ' ' || h[0] == '\t')
}

// EightBit reports whether the header has bytes above 127.
func (h Header) EightBit() bool { return traitsOf(h)&EightBit != 0 }

// Count returns the number of fields called name. Many Received fields mean a loop (RFC 5321 §6.3).
func (h Header) Count(name string) int {
	n := 0
	for f := range h.Fields() {
		if f.Is(name) {
			n++
		}
	}
	return n
}

// nextField splits the first field off b. ok is false at the empty line that ends a header, and at
// the end.
func nextField(b []byte) (f Field, rest []byte, ok bool) {
	if len(b) == 0 || b[0] == '\n' || (b[0] == '\r' && len(b) > 1 && b[1] == '\n') {
		return Field{}, nil, false
	}
	end := lineEnd(b)
	for end < len(b) && (b[end] == ' ' || b[end] == '\t') {
		end += lineEnd(b[end:])
	}
	f.Raw = b[:end:end]
	if n := nameLength(f.Raw); n > 0 {
		f.Name = f.Raw[:n]
		colon := n + bytes.IndexByte(f.Raw[n:], ':')
		f.Value = trimLineEnd(f.Raw[colon+1:])
		f.Value = f.Value[:min(len(f.Value), MaxField)]
	}
	return f, b[end:], true
}

// nameLength returns the length of the field name at the start of line, 0 if
// there is none. White space before the colon is allowed (RFC 5322 §4.5).
func nameLength(line []byte) int {
	n := 0
	for n < len(line) && line[n] > ' ' && line[n] < 0x7f && line[n] != ':' {
		n++
	}
	for i := n; i < len(line); i++ {
		switch line[i] {
		case ':':
			return n
		case ' ', '\t', '\r', '\n': // of a fold
		default:
			return 0
		}
	}
	return 0
}

// lineEnd returns where the line after the first one of b starts.
func lineEnd(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

func trimLineEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
		if n > 1 && b[n-2] == '\r' {
			b = b[:n-2]
		}
	}
	return b
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// isSpace includes CR and LF, since values are folded, and NUL, which must not reach readers.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == 0 }

// unfold appends value to dst on one line, trimmed, without NUL.
func unfold(dst, value []byte) []byte {
	value = trimSpace(value)
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 && bytes.IndexByte(value, 0) < 0 {
		return append(dst, value...)
	}
	for _, c := range value {
		if c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return dst
}

// equalFold compares ASCII without regard to case.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range len(s) {
		x, y := b[i], s[i]
		if x != y && (x|0x20 != y|0x20 || x|0x20 < 'a' || x|0x20 > 'z') {
			return false
		}
	}
	return true
}
