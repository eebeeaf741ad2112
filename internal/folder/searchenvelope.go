// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

// envelopePosition returns the position in an ENVELOPE (RFC 3501 §7.4.2) of a field, whose name is
// in lower case. It returns -1 if another field's text may be there: Sender and Reply-To equal From
// where the message has none. The ENVELOPE has less than the header: only the first of several
// equal fields, and addresses without their original form.
func envelopePosition(field string) int {
	switch field {
	case "date":
		return 0
	case "subject":
		return 1
	case "from":
		return 2
	case "to":
		return 5
	case "cc":
		return 6
	case "bcc":
		return 7
	case "in-reply-to":
		return 8
	case "message-id":
		return 9
	}
	return -1
}

// sentDay returns the day in the Date field, in its own zone, as midnight UTC.
func sentDay(envelope []byte) (time.Time, bool) {
	sent, ok := message.ParseDate(envelopeText(envelope, 0))
	if !ok {
		return sent, false
	}
	y, m, d := sent.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC), true
}

// envelopeText returns a field of a stored ENVELOPE as UTF-8. Addresses have the form Name
// <local@host>, separated by commas.
func envelopeText(envelope []byte, place int) string {
	r := envelopeReader{envelope}
	r.accept('(')
	for range place {
		r.skip()
	}
	if place < 2 || place > 7 {
		return message.DecodeWords(string(r.text()))
	}
	return strings.Join(r.addressTexts(), ", ")
}

// envelopeAddressTexts returns the addresses of a field, each in the form Name <local@host>.
func envelopeAddressTexts(envelope []byte, place int) []string {
	r := envelopeReader{envelope}
	r.accept('(')
	for range place {
		r.skip()
	}
	return r.addressTexts()
}

// envelopeAddresses returns the addresses of a field.
func envelopeAddresses(envelope []byte, place int) (list []message.Address) {
	r := envelopeReader{envelope}
	r.accept('(')
	for range place {
		r.skip()
	}
	if !r.accept('(') {
		return nil
	}
	for r.accept('(') {
		name, _, local, host := r.text(), r.text(), r.text(), r.text()
		r.accept(')')
		if host != nil { // otherwise a group begins or ends
			list = append(list, message.Address{Name: message.DecodeWords(string(name)), Local: string(local), Domain: string(host)})
		}
	}
	return list
}

// addressTexts reads a list of addresses; nil for NIL.
func (r *envelopeReader) addressTexts() (list []string) {
	if !r.accept('(') {
		return nil
	}
	for r.accept('(') {
		name, _, local, host := r.text(), r.text(), r.text(), r.text()
		r.accept(')')
		if len(local)+len(host) == 0 { // the end of a group
			continue
		}
		var b strings.Builder
		if len(name) > 0 {
			b.WriteString(message.DecodeWords(string(name)))
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

// envelopeReader reads the output of message.AppendEnvelope. From other input it reads empty texts.
type envelopeReader struct{ b []byte }

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
