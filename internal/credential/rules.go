// SPDX-License-Identifier: Apache-2.0

// Package credential checks, hashes and verifies passwords. It shares the processors fairly between
// requesters, and caches results for a short time, so that a repeated password costs microseconds.
package credential

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/fault"
)

// Bounds of a password.
const (
	MinLength = 8   // characters
	MaxLength = 256 // bytes
)

// CheckNewPassword returns the rules that a password breaks, as errors of the named request field.
// A password has 8 characters at least and 256 bytes at most. It contains an upper-case and a
// lower-case letter of any script, a digit and a special character (anything else, including
// space). It contains no control characters.
func CheckNewPassword(field, password string) fault.FieldErrors {
	var f fault.FieldErrors
	if len(password) > MaxLength {
		f.Add(field, "too_long", "Must have at most %d bytes.", MaxLength)
		return f
	}
	if !utf8.ValidString(password) || strings.ContainsFunc(password, unicode.IsControl) {
		f.Add(field, "invalid_character", "Must be UTF-8 text without control characters.")
		return f
	}
	password = normalize(password)
	if utf8.RuneCountInString(password) < MinLength {
		f.Add(field, "too_short", "Must have at least %d characters.", MinLength)
	}
	if !strings.ContainsFunc(password, unicode.IsUpper) {
		f.Add(field, "missing_uppercase", "Must contain an upper-case letter.")
	}
	if !strings.ContainsFunc(password, unicode.IsLower) {
		f.Add(field, "missing_lowercase", "Must contain a lower-case letter.")
	}
	if !strings.ContainsFunc(password, unicode.IsDigit) {
		f.Add(field, "missing_digit", "Must contain a digit.")
	}
	if !strings.ContainsFunc(password, isSpecial) {
		f.Add(field, "missing_special", "Must contain a special character, such as - or !.")
	}
	return f
}

func isSpecial(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
}

// normalize returns the NFC form of a password (RFC 8265 §4.2.2), as systems compose letters
// differently.
func normalize(password string) string { return norm.NFC.String(password) }
