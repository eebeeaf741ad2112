// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bufio"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// DateFormat is the time format of Date and Received fields (RFC 5322 §3.3).
const DateFormat = "Mon, 2 Jan 2006 15:04:05 -0700"

// ReadHeader reads the header of the message at r with the empty line that ends it, so that r is at
// the start of the body. A header over MaxHeader is an error of kind TooLarge. A message that ends
// in its header has no empty line.
func ReadHeader(r *bufio.Reader) (Header, error) {
	var h Header
	start := 0 // of the current line
	for {
		piece, err := r.ReadSlice('\n')
		if need := len(h) + len(piece); need > cap(h) && need > MaxHeader/4 { // append would take more
			h = append(make(Header, 0, MaxHeader+r.Size()), h...)
		}
		h = append(h, piece...)
		if len(h) > MaxHeader {
			return nil, fault.New(fault.TooLarge, "header_too_large", "The message header is larger than 1 MiB.")
		}
		switch err {
		case nil:
			if n := len(h) - start; n == 1 || n == 2 && h[start] == '\r' {
				return h, nil
			}
			start = len(h)
		case bufio.ErrBufferFull:
		case io.EOF:
			return h, nil
		default:
			return nil, err
		}
	}
}

// WithoutFields returns the header without the fields of the given names, ignoring case. It doesn't
// change h.
func (h Header) WithoutFields(names ...string) Header {
	return h.WithoutFieldsFunc(func(f Field) bool { return slices.ContainsFunc(names, f.Is) })
}

// WithoutFieldsFunc returns the header without the fields for which drop returns true, and without
// a byte order mark. It doesn't change h.
func (h Header) WithoutFieldsFunc(drop func(f Field) bool) Header {
	h = h.WithoutBOM()
	var out Header
	kept := 0 // bytes of h that are processed
	at := 0
	for f := range h.Fields() {
		end := at + len(f.Raw)
		if drop(f) {
			out = append(out, h[kept:at]...)
			kept = end
		}
		at = end
	}
	if kept == 0 {
		return h
	}
	return append(out, h[kept:]...)
}

// MissingFields returns the Date and Message-ID fields that the header lacks, and a To field if it
// names no recipients, to prepend to it (RFC 6409 §8). messageID has its angle brackets.
func MissingFields(h Header, date time.Time, messageID string) []byte {
	var add []byte
	if _, ok := h.First("Date"); !ok {
		add = append(add, "Date: "+date.Format(DateFormat)+"\r\n"...)
	}
	if _, ok := h.First("Message-ID"); !ok {
		add = append(add, "Message-ID: "+cleanField(messageID)+"\r\n"...)
	}
	if h.Count("To")+h.Count("Cc") == 0 {
		add = append(add, "To: undisclosed-recipients:;\r\n"...)
	}
	return add
}

// ReceivedField is the content of a Received field (RFC 5321 §4.4). Empty values are left out. For
// mail of our users, leave Helo, Name and Addr empty.
type ReceivedField struct {
	Helo string     // name in HELO
	Name string     // the address's name in DNS
	Addr netip.Addr // client's address
	By   string     // our host name
	With string     // the protocol, such as ESMTPS (RFC 3848)
	TLS  string     // version and cipher
	ID   string
	For  string // the only recipient; empty if there are several, or if it is blind
	Date time.Time
}

// Append appends the field.
func (r ReceivedField) Append(dst []byte) []byte {
	w := fieldWriter{dst: dst}
	w.begin("Received")
	if r.Helo != "" || r.Addr.IsValid() {
		from := "from " + cleanClause(r.Helo)
		if r.Helo == "" {
			from = "from unknown"
		}
		if r.Addr.IsValid() {
			literal := r.Addr.String()
			if r.Addr.Is6() && !r.Addr.Is4In6() {
				literal = "IPv6:" + literal
			}
			name := cleanClause(r.Name)
			if name != "" {
				name += " "
			}
			from += " (" + name + "[" + literal + "])"
		}
		w.put(from)
		w.fold()
	}
	by := "by " + cleanClause(r.By)
	if w.col == 1 {
		w.putNoSpace(by)
	} else {
		w.put(by)
	}
	for _, c := range [...]struct{ word, value string }{{"with", r.With}, {"id", r.ID}} {
		if c.value != "" {
			w.put(c.word + " " + cleanClause(c.value))
		}
	}
	if r.TLS != "" {
		w.put("(" + cleanClause(r.TLS) + ")")
	}
	if r.For != "" {
		w.put("for <" + cleanField(r.For) + ">")
	}
	w.putNoSpace(";")
	w.put(r.Date.Format(DateFormat))
	w.end()
	return w.dst
}

// AppendReturnPath appends a Return-Path field. path has no angle brackets, and is empty for the
// null path.
func AppendReturnPath(dst []byte, path string) []byte {
	return append(dst, "Return-Path: <"+cleanField(path)+">\r\n"...)
}

// AppendDeliveredTo appends a Delivered-To field.
func AppendDeliveredTo(dst []byte, address string) []byte {
	return append(dst, "Delivered-To: "+cleanField(address)+"\r\n"...)
}

// cleanField removes characters that one line of a header can't contain.
func cleanField(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, s[:min(len(s), maxLineLength/2)])
}

// cleanClause also removes characters that would end or begin a comment or clause, for text from
// outside.
func cleanClause(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' && r != ' ' || r >= 0x7f || strings.ContainsRune(`()<>;\"`, r) {
			return -1
		}
		return r
	}, s[:min(len(s), 255)])
}
