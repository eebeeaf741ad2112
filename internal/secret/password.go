// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/rand"
	"strings"
	"unicode"
)

// passwordAlphabet has no letters or digits that look alike, and no characters that need quoting in
// a shell, a URL, XML or a configuration file.
const passwordAlphabet = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"

const (
	passwordGroups    = 4
	passwordGroupSize = 5
)

// NewPassword returns a random password that can be read out and typed: four groups of five letters
// and digits joined by hyphens. It contains an upper-case and a lower-case letter, a digit and a
// special character, and has over 110 bits of entropy.
func NewPassword() string {
	for {
		var b strings.Builder
		for i := range passwordGroups * passwordGroupSize {
			if i > 0 && i%passwordGroupSize == 0 {
				b.WriteByte('-')
			}
			b.WriteByte(passwordAlphabet[randomInt(len(passwordAlphabet))])
		}
		p := b.String()
		if strings.ContainsFunc(p, unicode.IsUpper) && strings.ContainsFunc(p, unicode.IsLower) && strings.ContainsFunc(p, unicode.IsDigit) {
			return p
		}
	}
}

// randomInt returns a uniform random number in [0, n), n ≤ 256.
func randomInt(n int) int {
	limit := 256 - 256%n // larger bytes would favor the first letters
	var b [1]byte
	for {
		rand.Read(b[:])
		if int(b[0]) < limit {
			return int(b[0]) % n
		}
	}
}
