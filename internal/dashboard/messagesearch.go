// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// stateOptions are the options of the state filter.
var stateOptions = [][2]string{
	{"", "Any"}, {"scheduled", "Scheduled"}, {"queued", "Queued"}, {"sending", "Sending"}, {"deferred", "Deferred"}, {"delivered", "Delivered"},
	{"bounced", "Bounced"}, {"complained", "Complained"}, {"suppressed", "Suppressed"}, {"failed", "Failed"}, {"cancelled", "Cancelled"},
}

// anyFilled reports whether any of the fields has a value.
func anyFilled(search url.Values, fields ...string) bool {
	for _, f := range fields {
		if strings.TrimSpace(search.Get(f)) != "" {
			return true
		}
	}
	return false
}

// parseDate parses a date field.
func parseDate(bad *fault.FieldErrors, q url.Values, name string) time.Time {
	text := strings.TrimSpace(q.Get(name))
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		bad.Add(name, "invalid_date", "Give a date such as 2026-01-31.")
	}
	return t
}

// noSubject is shown for a message without a subject.
const noSubject = "(no subject)"

// quoteSubject quotes a subject for use in a sentence.
func quoteSubject(text string) string {
	return "“" + cmp.Or(strings.TrimSpace(text), noSubject) + "”"
}
