// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

// parseFlags separates system flags from keywords. It omits invalid keywords and notes them.
func parseFlags(given []string) (flags folder.Flags, words, notes []string) {
	note := func(text string) {
		if len(notes) < maxNotes && !slices.Contains(notes, text) {
			notes = append(notes, text)
		}
	}
	for _, f := range given {
		switch strings.ToLower(f) {
		case `\seen`:
			flags |= folder.Seen
		case `\answered`:
			flags |= folder.Answered
		case `\flagged`:
			flags |= folder.Flagged
		case `\deleted`:
			flags |= folder.Deleted
		case `\draft`:
			flags |= folder.Draft
		case `\recent`, "":
		default:
			switch {
			case len(folder.SanitizeKeywords([]string{f})) == 0:
				note(fmt.Sprintf("The keyword %s is left out: it has characters that no keyword can have, or is too long.", printable(f)))
			case len(words) == folder.MaxKeywords:
				note(fmt.Sprintf("There are more than %d keywords. Only the first are kept.", folder.MaxKeywords))
			default:
				words = append(words, f)
			}
		}
	}
	return flags, words, notes
}

// maxNotes is the maximum number of keywords noted for a message.
const maxNotes = 10

// leapSecondPattern matches a leap second, which most clocks lack.
var leapSecondPattern = regexp.MustCompile(`(:[0-9]{2}):60\b`)

// parseInternalDate parses a message's date as the source gives it. exact reports whether it has
// the required syntax (RFC 9051 §9, date-time). The date is zero if it can't be parsed.
func parseInternalDate(text string) (date time.Time, exact bool) {
	text = strings.TrimSpace(text)
	if t, err := time.Parse("2-Jan-2006 15:04:05 -0700", text); err == nil {
		return t, true
	}
	date, _ = message.ParseDate(strings.Replace(leapSecondPattern.ReplaceAllString(text, "$1:59"), "-", " ", 2))
	if date.IsZero() {
		date, _ = message.ParseDate(text)
	}
	return date, false
}
