// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
	"strconv"
	"time"
)

// maxSmallHeader is the size, in bytes, up to which a header is small.
const maxSmallHeader = 64 << 10

const emptyEnvelope = "(NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL)"

// EnvelopeField is the position of a header field in an ENVELOPE (RFC 3501 §7.4.2).
type EnvelopeField int

// The fields of an ENVELOPE. From to Bcc are addresses, the others are texts.
const (
	NotInEnvelope EnvelopeField = iota - 1
	EnvelopeDate
	EnvelopeSubject
	EnvelopeFrom
	EnvelopeSender
	EnvelopeReplyTo
	EnvelopeTo
	EnvelopeCc
	EnvelopeBcc
	EnvelopeInReplyTo
	EnvelopeMessageID
	EnvelopeFieldCount
)

var envelopeNames = [...]string{
	EnvelopeDate: "date", EnvelopeSubject: "subject", EnvelopeFrom: "from", EnvelopeSender: "sender", EnvelopeReplyTo: "reply-to", EnvelopeTo: "to",
	EnvelopeCc: "cc", EnvelopeBcc: "bcc", EnvelopeInReplyTo: "in-reply-to", EnvelopeMessageID: "message-id",
}

// EnvelopeFieldOf returns the ENVELOPE field with a name, in any case, or NotInEnvelope.
func EnvelopeFieldOf(name []byte) EnvelopeField {
	for k := range EnvelopeFieldCount {
		if len(name) == len(envelopeNames[k]) && equalFold(name, envelopeNames[k]) {
			return k
		}
	}
	return NotInEnvelope
}

// HasAddresses reports whether the field is a list of addresses.
func (k EnvelopeField) HasAddresses() bool { return k >= EnvelopeFrom && k <= EnvelopeBcc }

// AppendEnvelope appends the ENVELOPE of a message with this header in IMAP's wire form (RFC 3501
// §7.4.2). It uses the first Date, Subject, In-Reply-To and Message-ID, and joins the addresses of
// repeated fields.
func AppendEnvelope(dst []byte, h Header) []byte {
	var first [EnvelopeFieldCount][]byte
	more := false // whether an address field is repeated
	for rest := []byte(h.WithoutBOM()); ; {
		f, next, ok := nextField(rest)
		if !ok {
			break
		}
		rest = next
		switch k := EnvelopeFieldOf(f.Name); {
		case k == NotInEnvelope:
		case first[k] == nil:
			first[k] = f.Value
		default:
			more = true
		}
	}
	if len(h) > maxSmallHeader { // append would allocate twice as much
		dst = slices.Grow(dst, len(h)+2*MaxField)
	}
	var p addressParser
	var scratch [256]byte
	text := func(k EnvelopeField) {
		if first[k] == nil {
			dst = append(dst, "NIL"...)
			return
		}
		dst = AppendIMAPString(dst, unfold(scratch[:0], first[k]))
	}
	addresses := func(k EnvelopeField) bool {
		start := len(dst)
		dst = append(dst, '(')
		budget := MaxAddresses
		if !more {
			dst, budget = p.appendEnvelopeAddresses(dst, first[k], budget)
		} else {
			for f := range h.Fields() {
				if EnvelopeFieldOf(f.Name) == k && budget > 0 && len(dst)-start < MaxField {
					dst, budget = p.appendEnvelopeAddresses(dst, f.Value, budget)
				}
			}
		}
		if budget == MaxAddresses {
			dst = append(dst[:start], "NIL"...)
			return false
		}
		dst = append(dst, ')')
		return true
	}
	dst = append(dst, '(')
	text(EnvelopeDate)
	dst = append(dst, ' ')
	text(EnvelopeSubject)
	dst = append(dst, ' ')
	from := len(dst)
	addresses(EnvelopeFrom)
	fromEnd := len(dst)
	for k := EnvelopeSender; k <= EnvelopeBcc; k++ {
		dst = append(dst, ' ')
		start := len(dst)
		if !addresses(k) && k <= EnvelopeReplyTo {
			dst = append(dst[:start], dst[from:fromEnd]...)
		}
	}
	dst = append(dst, ' ')
	text(EnvelopeInReplyTo)
	dst = append(dst, ' ')
	text(EnvelopeMessageID)
	return append(dst, ')')
}

// appendEnvelopeAddresses appends the addresses of value, and returns the rest of the budget.
func (p *addressParser) appendEnvelopeAddresses(dst, value []byte, budget int) ([]byte, int) {
	p.in, p.pos, p.count, p.inGroup = value, 0, MaxAddresses-budget, false
	for {
		k := p.next()
		switch k {
		case endOfList:
			return dst, MaxAddresses - p.count
		case groupStart:
			dst = append(dst, "(NIL NIL "...)
			dst = AppendIMAPString(dst, p.name)
			dst = append(dst, " NIL)"...)
		case groupEnd:
			dst = append(dst, "(NIL NIL NIL NIL)"...)
		case addressFound:
			dst = append(dst, '(')
			dst = appendNString(dst, p.name)
			dst = append(dst, ' ')
			dst = appendNString(dst, unfold(nil, p.route)) // at-domain-list
			dst = append(dst, ' ')
			dst = AppendIMAPString(dst, p.local)
			dst = append(dst, ' ')
			// NIL for the host would mean a group.
			dst = AppendIMAPString(dst, p.domain)
			dst = append(dst, ')')
		}
	}
}

// IsEnvelope reports whether b is an ENVELOPE as AppendEnvelope writes it. Anything else could make
// an IMAP client misparse everything after it.
func IsEnvelope(b []byte) bool {
	r := envelopeValidator{b: b}
	r.expect('(')
	for k := range EnvelopeFieldCount {
		if k > 0 {
			r.expect(' ')
		}
		if !k.HasAddresses() {
			r.skipString()
			continue
		}
		if r.acceptNIL() {
			continue
		}
		r.expect('(')
		for more := true; more && !r.bad; more = !r.accept(')') {
			for _, before := range []byte("(   ") {
				r.expect(before)
				r.skipString()
			}
			r.expect(')')
		}
	}
	r.expect(')')
	return !r.bad && len(r.b) == 0
}

// envelopeValidator parses an ENVELOPE strictly. After an error, bad stays set.
type envelopeValidator struct {
	b   []byte
	bad bool
}

// accept consumes c if it is next.
func (r *envelopeValidator) accept(c byte) bool {
	if len(r.b) == 0 || r.b[0] != c {
		return false
	}
	r.b = r.b[1:]
	return true
}

func (r *envelopeValidator) expect(c byte) {
	if !r.accept(c) {
		r.bad = true
	}
}

func (r *envelopeValidator) acceptNIL() bool {
	rest, ok := bytes.CutPrefix(r.b, []byte("NIL"))
	if ok {
		r.b = rest
	}
	return ok
}

// skipString skips a string or NIL.
func (r *envelopeValidator) skipString() {
	switch {
	case r.acceptNIL():
	case r.accept('"'):
		b := r.b
		for i := 0; i < len(b); i++ {
			c := b[i]
			if c >= ' ' && c <= '~' && c != '"' && c != '\\' || c == '\t' {
				continue
			}
			if c == '"' {
				r.b = b[i+1:]
				return
			}
			if i++; c != '\\' || i == len(b) || b[i] != '"' && b[i] != '\\' {
				break
			}
		}
		r.bad = true
	default:
		r.expect('{')
		head, rest, _ := bytes.Cut(r.b, []byte("}\r\n"))
		n, err := strconv.ParseUint(string(head), 10, 31)
		if err != nil || n > uint64(len(rest)) || bytes.IndexByte(rest[:n], 0) >= 0 {
			r.bad = true
			return
		}
		r.b = rest[n:]
	}
}

// Envelope is the data of a message for lists and searches, as UTF-8.
type Envelope struct {
	Date      time.Time // zero if there is no valid one
	Subject   string
	From      []Address
	Sender    []Address // From if there is none
	ReplyTo   []Address // From if there is none
	To        []Address
	Cc        []Address
	Bcc       []Address
	InReplyTo []string // Message-IDs with their angle brackets
	MessageID string
}

// from returns the authors, or, if they are unclear, the result of Addresses.
func (h Header) from() []Address {
	if a := h.Authors(); a.Problem == "" {
		return a.List
	}
	return h.Addresses("From")
}

// Envelope parses and decodes the envelope fields leniently.
func (h Header) Envelope() Envelope {
	e := Envelope{
		Subject: h.Decoded("Subject"), From: h.from(), Sender: h.Addresses("Sender"),
		ReplyTo: h.Addresses("Reply-To"), To: h.Addresses("To"), Cc: h.Addresses("Cc"), Bcc: h.Addresses("Bcc"),
		InReplyTo: ParseMessageIDs(h.Unfolded("In-Reply-To")), MessageID: h.MessageID(),
	}
	if t, ok := ParseDate(h.Unfolded("Date")); ok {
		e.Date = t
	}
	if e.Sender == nil {
		e.Sender = e.From
	}
	if e.ReplyTo == nil {
		e.ReplyTo = e.From
	}
	return e
}
