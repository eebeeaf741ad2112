// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/base64"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrUTF7 is the error for a name that is not modified UTF-7.
var ErrUTF7 = errors.New("not modified UTF-7")

var utf7Base64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").
	WithPadding(base64.NoPadding)

// EncodeUTF7 returns a mailbox name in modified UTF-7 (RFC 3501 §5.1.3). Invalid UTF-8 in name
// becomes U+FFFD.
func EncodeUTF7(name string) string {
	if isPlainUTF7(name) {
		return name
	}
	return string(appendUTF7(make([]byte, 0, len(name)+16), name))
}

// isPlainUTF7 reports whether s is the same in modified UTF-7 and in UTF-8.
func isPlainUTF7(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e || s[i] == '&' {
			return false
		}
	}
	return true
}

func appendUTF7(b []byte, s string) []byte {
	for len(s) > 0 {
		if c := s[0]; c >= 0x20 && c <= 0x7e {
			b = append(b, c)
			if c == '&' {
				b = append(b, '-')
			}
			s = s[1:]
			continue
		}
		var units []byte
		for len(s) > 0 && (s[0] < 0x20 || s[0] > 0x7e) {
			c, size := utf8.DecodeRuneInString(s)
			s = s[size:]
			if hi, lo := utf16.EncodeRune(c); hi != utf8.RuneError {
				units = append(units, byte(hi>>8), byte(hi), byte(lo>>8), byte(lo))
			} else {
				units = append(units, byte(c>>8), byte(c))
			}
		}
		b = append(b, '&')
		b = utf7Base64.AppendEncode(b, units)
		b = append(b, '-')
	}
	return b
}

// DecodeUTF7 decodes a name in modified UTF-7 to UTF-8. It accepts only the output of EncodeUTF7,
// so that LIST returns the name that the client used. Otherwise it returns ErrUTF7.
func DecodeUTF7(s string) (string, error) {
	if isPlainUTF7(s) {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '&' {
			out = append(out, s[i])
			continue
		}
		end := i + 1
		for end < len(s) && s[end] != '-' {
			end++
		}
		if end == len(s) {
			return "", ErrUTF7
		}
		if end == i+1 {
			out = append(out, '&')
		} else {
			units, err := utf7Base64.DecodeString(s[i+1 : end])
			if err != nil || len(units)%2 != 0 {
				return "", ErrUTF7
			}
			out = appendUTF16(out, units)
		}
		i = end
	}
	name := string(out)
	if EncodeUTF7(name) != s {
		return "", ErrUTF7
	}
	return name, nil
}

// appendUTF16 appends big-endian UTF-16 as UTF-8; a lone surrogate becomes
// U+FFFD.
func appendUTF16(b, units []byte) []byte {
	for i := 0; i < len(units); i += 2 {
		c := rune(units[i])<<8 | rune(units[i+1])
		if utf16.IsSurrogate(c) && i+3 < len(units) {
			low := rune(units[i+2])<<8 | rune(units[i+3])
			if full := utf16.DecodeRune(c, low); full != utf8.RuneError {
				c = full
				i += 2
			}
		}
		b = utf8.AppendRune(b, c)
	}
	return b
}
