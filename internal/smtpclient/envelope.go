// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Notify says which DSNs the sender wants for a recipient (RFC 3461 section 4.1).
type Notify uint8

// The values of NOTIFY. Zero means that the parameter is not sent.
const (
	NotifyNever Notify = 1 << iota
	NotifySuccess
	NotifyFailure
	NotifyDelay
)

// Rcpt is one recipient. Notify and ORCPT are sent only to hosts with DSN.
type Rcpt struct {
	Addr   string // as for RCPT TO, without angle brackets
	Notify Notify
	ORCPT  string // ORCPT as "rfc822;a@b", not encoded
}

// Message is one message with its envelope. Prefix and Body together are the message's bytes, with
// CRLF line ends. The connection doubles dots, turns bare CR and LF into CRLF, and adds a missing
// last line end.
type Message struct {
	From string // as for MAIL FROM, without angle brackets; empty: the null sender
	To   []Rcpt

	Size       int64  // octets of Prefix and Body, for SIZE; 0: not known
	UTF8       bool   // whether the header needs SMTPUTF8; addresses are checked separately
	EightBit   bool   // whether the body has octets above 127
	RequireTLS bool   // whether to send REQUIRETLS (RFC 8689)
	Ret        string // "HDRS", "FULL" or empty
	EnvID      string // not encoded

	Prefix []byte // written before Body, such as DKIM-Signature fields
	Body   io.Reader
}

// validAddress reports whether an address can be put between angle brackets without breaking the
// command.
func validAddress(a string) bool {
	if a == "" || len(a) > 512 {
		return false
	}
	quoted := false // inside a quoted local part
	for i := 0; i < len(a); i++ {
		switch c := a[i]; {
		case c < ' ' || c == 0x7f:
			return false
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
			if i == len(a) || a[i] < ' ' || a[i] == 0x7f {
				return false
			}
		case !quoted && (c == ' ' || c == '<' || c == '>'):
			return false
		}
	}
	return !quoted
}

// validArgument reports whether s can be one argument of a command.
func validArgument(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// encodeXtext encodes s as xtext (RFC 3461 section 4).
func encodeXtext(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c < '!' || c > '~' || c == '+' || c == '=' {
			const hex = "0123456789ABCDEF"
			b.WriteByte('+')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// mailCommand appends MAIL, with the parameters that the host supports.
func mailCommand(b []byte, m *Message, e *Extensions, utf8 bool) []byte {
	b = append(append(append(b, "MAIL FROM:<"...), m.From...), '>')
	if e.Size && m.Size > 0 {
		b = strconv.AppendInt(append(b, " SIZE="...), m.Size, 10)
	}
	if m.EightBit && e.EightBit {
		b = append(b, " BODY=8BITMIME"...)
	}
	if utf8 {
		b = append(b, " SMTPUTF8"...)
	}
	if m.RequireTLS {
		b = append(b, " REQUIRETLS"...)
	}
	if e.DSN && (m.Ret == "HDRS" || m.Ret == "FULL") {
		b = append(append(b, " RET="...), m.Ret...)
	}
	if e.DSN && m.EnvID != "" {
		b = append(append(b, " ENVID="...), encodeXtext(m.EnvID)...)
	}
	return b
}

// rcptCommand appends RCPT, with the parameters that the host supports.
func rcptCommand(b []byte, r *Rcpt, e *Extensions) []byte {
	b = append(append(append(b, "RCPT TO:<"...), r.Addr...), '>')
	if !e.DSN {
		return b
	}
	if r.Notify != 0 {
		b = append(append(b, " NOTIFY="...), r.Notify.keywords()...)
	}
	kind, addr, ok := strings.Cut(r.ORCPT, ";")
	if !ok || !validArgument(kind) || !isASCII(kind) {
		return b
	}
	switch {
	case strings.EqualFold(kind, "utf-8"):
		addr = encodeUTF8Address(addr)
	case isASCII(addr):
		addr = encodeXtext(addr)
	default:
		return b
	}
	return append(append(append(append(b, " ORCPT="...), kind...), ';'), addr...)
}

// encodeUTF8Address encodes an address of type utf-8 in the form that every host accepts
// (utf-8-addr-xtext, RFC 6533 section 3).
func encodeUTF8Address(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c < '!' || c > '~' || c == '+' || c == '=' || c == '\\' {
			fmt.Fprintf(&b, `\x{%02X}`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

func (n Notify) keywords() string {
	if n&NotifyNever != 0 {
		return "NEVER"
	}
	var b []byte
	for _, v := range [...]struct {
		bit  Notify
		word string
	}{{NotifySuccess, "SUCCESS"}, {NotifyFailure, "FAILURE"}, {NotifyDelay, "DELAY"}} {
		if n&v.bit == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, v.word...)
	}
	return string(b)
}
