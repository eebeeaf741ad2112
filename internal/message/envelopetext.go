// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"strconv"
	"strings"
)

// EnvelopeText returns a field of an ENVELOPE that AppendEnvelope wrote, as UTF-8. Addresses have
// the form Name <local@host>, separated by commas. The ENVELOPE may be cut off at its end.
func EnvelopeText(envelope []byte, field EnvelopeField) string {
	r := openEnvelope(envelope, field)
	if !field.HasAddresses() {
		return DecodeWords(string(r.text()))
	}
	return strings.Join(r.addressTexts(), ", ")
}

// EnvelopeRawText returns a field that has no addresses without decoding it.
func EnvelopeRawText(envelope []byte, field EnvelopeField) string {
	r := openEnvelope(envelope, field)
	return string(r.text())
}

// EnvelopeAddresses returns the addresses of a field.
func EnvelopeAddresses(envelope []byte, field EnvelopeField) (list []Address) {
	r := openEnvelope(envelope, field)
	if !r.accept('(') {
		return nil
	}
	for r.accept('(') {
		name, local, host := r.address()
		if host != nil { // otherwise a group begins or ends
			list = append(list, Address{Name: DecodeWords(string(name)), Local: string(local), Domain: string(host)})
		}
	}
	return list
}

// FirstEnvelopeAddress returns the first address of a field without decoding it. Its host is nil if
// it is the name of a group.
func FirstEnvelopeAddress(envelope []byte, field EnvelopeField) (name, local, host []byte) {
	r := openEnvelope(envelope, field)
	for range 2 { // of the list and of its first address
		if !r.accept('(') {
			return nil, nil, nil
		}
	}
	return r.address()
}

// addressTexts reads a list of addresses; nil for NIL.
func (r *envelopeReader) addressTexts() (list []string) {
	if !r.accept('(') {
		return nil
	}
	for r.accept('(') {
		name, local, host := r.address()
		if len(local)+len(host) == 0 { // the end of a group
			continue
		}
		var b strings.Builder
		if len(name) > 0 {
			b.WriteString(DecodeWords(string(name)))
			b.WriteByte(' ')
		}
		b.WriteByte('<')
		b.Write(local)
		if len(host) > 0 {
			b.WriteByte('@')
			b.Write(host)
		}
		b.WriteByte('>')
		list = append(list, b.String())
	}
	return list
}

// address reads the rest of an address after its parenthesis.
func (r *envelopeReader) address() (name, local, host []byte) {
	name, _, local, host = r.text(), r.text(), r.text(), r.text()
	r.accept(')')
	return name, local, host
}

// envelopeReader reads the output of AppendEnvelope. From other input it reads empty texts.
type envelopeReader struct{ b []byte }

// openEnvelope returns a reader that has skipped the fields before one.
func openEnvelope(envelope []byte, field EnvelopeField) envelopeReader {
	r := envelopeReader{envelope}
	r.accept('(')
	for range field {
		r.skip()
	}
	return r
}

func (r *envelopeReader) accept(c byte) bool {
	r.b = bytes.TrimLeft(r.b, " ")
	if len(r.b) == 0 || r.b[0] != c {
		return false
	}
	r.b = r.b[1:]
	return true
}

// skip skips a string, NIL or a list.
func (r *envelopeReader) skip() {
	if !r.accept('(') {
		r.text()
		return
	}
	for depth := 1; depth > 0 && len(r.b) > 0; {
		switch {
		case r.accept('('):
			depth++
		case r.accept(')'):
			depth--
		default:
			r.text()
		}
	}
}

// text reads a string; nil for NIL.
func (r *envelopeReader) text() []byte {
	switch {
	case r.accept('"'):
		return r.quoted()
	case r.accept('{'):
		head, rest, _ := bytes.Cut(r.b, []byte("}\r\n"))
		n, err := strconv.Atoi(string(head))
		if err != nil || n < 0 || n > len(rest) {
			r.b = nil
			return nil
		}
		r.b = rest[n:]
		return rest[:n]
	}
	if rest, isNil := bytes.CutPrefix(r.b, []byte("NIL")); isNil {
		r.b = rest
	} else {
		r.b = nil
	}
	return nil
}

func (r *envelopeReader) quoted() []byte {
	end := bytes.IndexAny(r.b, `"\`)
	if end >= 0 && r.b[end] == '"' {
		s := r.b[:end]
		r.b = r.b[end+1:]
		return s
	}
	var s []byte
	for i := 0; i < len(r.b); i++ {
		switch c := r.b[i]; {
		case c == '"':
			r.b = r.b[i+1:]
			return s
		case c == '\\' && i+1 < len(r.b):
			i++
			s = append(s, r.b[i])
		default:
			s = append(s, c)
		}
	}
	r.b = nil
	return s
}
