// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/rand"
	"strings"
	"unicode"
)

// passwordLetters has no letters or digits that look alike, and nothing that
// a shell, a URL, XML or a configuration file would ask to quote.
const passwordLetters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

const (
	passwordGroups    = 4
	passwordGroupSize = 5
)

// NewPassword returns a fresh password that can be read out and typed: four
// groups of five letters and digits joined by hyphens, with an upper-case and
// a lower-case letter, a digit and a special character, of over 110 bits.
func NewPassword() string {
	for {
		var b strings.Builder
		for i := range passwordGroups * passwordGroupSize {
			if i > 0 && i%passwordGroupSize == 0 {
				b.WriteByte('-')
			}
			b.WriteByte(passwordLetters[randomInt(len(passwordLetters))])
		}
		p := b.String()
		if strings.ContainsFunc(p, unicode.IsUpper) && strings.ContainsFunc(p, unicode.IsLower) && strings.ContainsFunc(p, unicode.IsDigit) {
			return p
		}
	}
}

// randomInt returns a uniform random number in [0, n), n ≤ 256.
func randomInt(n int) int {
	limit := 256 - 256%n // larger bytes would favour the first letters
	var b [1]byte
	for {
		rand.Read(b[:])
		if int(b[0]) < limit {
			return int(b[0]) % n
		}
	}
}
