// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
)

// maxQuoted is the longest string written quoted: clients read lines into
// buffers of their own, and a literal says its length first.
const maxQuoted = 1000

// appendAString appends an atom if s can be one, else a string.
func appendAString(b []byte, s string) []byte {
	if isAtom(s) {
		return append(b, s...)
	}
	return appendString(b, s, false)
}

// appendMailbox appends a mailbox name, given in UTF-8: in modified UTF-7, or
// as it is with inUTF8 (RFC 9051 §5.1).
func appendMailbox(b []byte, name string, inUTF8 bool) []byte {
	if !inUTF8 {
		name = message.EncodeUTF7(name)
	}
	if isAtom(name) {
		return append(b, name...)
	}
	return appendString(b, name, inUTF8)
}

// isAtom reports whether s can stand without quotes. NIL cannot: it would be
// read as none.
func isAtom(s string) bool {
	if s == "" || strings.EqualFold(s, "NIL") {
		return false
	}
	for i := range len(s) {
		if charClasses[s[i]]&classAtom == 0 {
			return false
		}
	}
	return true
}

func appendString(b []byte, s string, inUTF8 bool) []byte {
	if !quotable(s, inUTF8) {
		return appendLiteral(b, s)
	}
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, s[from:i]...)
			b = append(b, '\\')
			from = i
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// quotable reports whether s can be quoted; controls are not, whatever the
// grammar says, as they upset terminals and simple clients.
func quotable(s string, inUTF8 bool) bool {
	if len(s) > maxQuoted {
		return false
	}
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c == 0x7f:
			return false
		case c > 0x7f:
			ascii = false
		}
	}
	return ascii || (inUTF8 && utf8.ValidString(s))
}

func appendLiteral(b []byte, s string) []byte {
	b = append(b, '{')
	b = strconv.AppendUint(b, uint64(len(s)), 10)
	b = append(b, "}\r\n"...)
	start := len(b)
	b = append(b, s...)
	for i := start; i < len(b); i++ {
		if b[i] == 0 {
			b[i] = '?'
		}
	}
	return b
}
