// SPDX-License-Identifier: Apache-2.0

package db

import "strings"

// CleanText makes a text from outside fit for a TEXT column of both engines: valid UTF-8 without
// NUL, of at most limit bytes. Each run of invalid bytes becomes U+FFFD; NUL is removed; then the
// text is cut between two characters.
func CleanText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
