// SPDX-License-Identifier: Apache-2.0

package message

import "strconv"

// maxQuotedString is the maximum length of a quoted string.
const maxQuotedString = 1024

// AppendIMAPString appends s in IMAP's wire form (RFC 3501 §4.3): quoted if it is printable ASCII,
// else as a literal. It omits NUL, which neither form allows.
func AppendIMAPString[T string | []byte](dst []byte, s T) []byte {
	plain := len(s) <= maxQuotedString
	nuls := 0
	for i := range len(s) {
		c := s[i]
		if c < ' ' && c != '\t' || c > '~' {
			plain = false
			if c == 0 {
				nuls++
			}
		}
	}
	if plain {
		dst = append(dst, '"')
		for i := range len(s) {
			if s[i] == '"' || s[i] == '\\' {
				dst = append(dst, '\\')
			}
			dst = append(dst, s[i])
		}
		return append(dst, '"')
	}
	dst = append(dst, '{')
	dst = strconv.AppendInt(dst, int64(len(s)-nuls), 10)
	dst = append(dst, "}\r\n"...)
	if nuls == 0 {
		return append(dst, s...)
	}
	for i := range len(s) {
		if s[i] != 0 {
			dst = append(dst, s[i])
		}
	}
	return dst
}

// appendNString appends NIL for an empty string.
func appendNString[T string | []byte](dst []byte, s T) []byte {
	if len(s) == 0 {
		return append(dst, "NIL"...)
	}
	return AppendIMAPString(dst, s)
}
