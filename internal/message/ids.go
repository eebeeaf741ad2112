// SPDX-License-Identifier: Apache-2.0

package message

import (
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseMessageIDs returns the Message-IDs, with angle brackets, in the value of an In-Reply-To or
// References field. It skips everything between them. Of more than MaxReferences, it returns the
// first and the last ones.
func ParseMessageIDs(value string) []string {
	var ids []string
	for {
		i := strings.IndexByte(value, '<')
		if i < 0 {
			return ids
		}
		value = value[i:]
		end := strings.IndexAny(value[1:], "<>")
		if end < 0 {
			return ids
		}
		id := value[:end+2]
		value = value[end+1:]
		if id[len(id)-1] != '>' {
			continue
		}
		id = strings.Map(dropSpaceRune, id)
		if len(id) < 3 || len(id) > maxLineLength {
			continue
		}
		if len(ids) == MaxReferences {
			ids = append(ids[:1], ids[2:]...)
		}
		ids = append(ids, strings.Clone(id)) // value may be long
	}
}

func dropSpaceRune(r rune) rune {
	if r <= ' ' || r == 0x7f {
		return -1
	}
	return r
}

// MessageID returns the first Message-ID, with its angle brackets; "" if there is none.
func (h Header) MessageID() string {
	if ids := ParseMessageIDs(h.Unfolded("Message-ID")); len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// References returns the Message-IDs that the message replies to, the nearest last: those of
// References, then any others of In-Reply-To.
func (h Header) References() []string {
	ids := ParseMessageIDs(h.Unfolded("References"))
	for _, id := range ParseMessageIDs(h.Unfolded("In-Reply-To")) {
		known := false
		for _, have := range ids {
			known = known || have == id
		}
		if !known {
			ids = append(ids, id)
		}
	}
	return ids[max(0, len(ids)-MaxReferences):]
}

// TimeZones are the unambiguous names of time zones (RFC 5322 §4.3), except UTC, with their
// offsets. Package time knows only the local zone's names, so that a node's result would depend on
// its location.
var TimeZones = map[string]string{
	"EST": "-0500", "EDT": "-0400", "CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
	"MET": "+0100", "CET": "+0100", "WAT": "+0100", "MEST": "+0200", "CEST": "+0200", "EET": "+0200", "EEST": "+0300", "MSK": "+0300",
}

var zoneReplacer = func() *strings.Replacer {
	var pairs []string
	for name, offset := range TimeZones {
		pairs = append(pairs, " "+name, " "+offset)
	}
	return strings.NewReplacer(pairs...)
}()

// ParseDate parses a Date field's value: RFC 5322 with its obsolete forms, and the forms of common
// software. An invalid zone counts as UTC, and an invalid time as the start of the day (RFC 5256
// §2.2).
func ParseDate(s string) (time.Time, bool) {
	if len(s) > 200 {
		return time.Time{}, false
	}
	s = strings.Join(strings.Fields(s), " ")
	// Nearly all mail has this form, which mail.ParseDate tries after 24 others.
	if t, err := time.Parse("Mon, 2 Jan 2006 15:04:05 -0700", s); err == nil {
		return checkYear(t)
	}
	s = expandYear(zoneReplacer.Replace(s))
	if t, err := mail.ParseDate(s); err == nil {
		if name, _ := t.Zone(); slices.Contains(strings.Fields(s), name) { // a name that may be known only on this node
			t = time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		}
		return checkYear(t)
	}
	if i := strings.IndexByte(s, '('); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	s = strings.NewReplacer(" UTC", " +0000", " GMT", " +0000", " Z", " +0000", " UT", " +0000").Replace(s)
	s = strings.ReplaceAll(s, "+0000+", "+")
	if _, rest, ok := strings.Cut(s, ","); ok {
		s = strings.TrimSpace(rest)
	}
	for _, layout := range []string{
		"2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04 -0700", "2 Jan 06 15:04:05 -0700",
		"2 January 2006 15:04:05 -0700", "2-Jan-2006 15:04:05 -0700", "2 Jan 2006 15:04:05 MST",
		"2 Jan 2006 15:04:05 -07:00", "2 Jan 2006 15:04:05", "2 Jan 2006 15.04.05 -0700",
		"Mon 2 Jan 2006 15:04:05 -0700", "Mon Jan 2 15:04:05 2006", "Mon Jan 2 15:04:05 MST 2006",
		"Mon Jan 2 15:04:05 2006 -0700", "Mon Jan 2 15:04:05 -0700 2006",
		time.RFC3339, "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05",
	} {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return checkYear(t)
		}
	}
	words := strings.SplitN(s, " ", 5)
	for _, layout := range []string{"2 Jan 2006 15:04:05", "2 Jan 2006"} {
		n := min(len(words), strings.Count(layout, " ")+1)
		if t, err := time.Parse(layout, strings.Join(words[:n], " ")); err == nil {
			return checkYear(t)
		}
	}
	return time.Time{}, false
}

// expandYear adds 1900 to a year of three digits (RFC 5322 §4.3), as written by programs that took
// 2000 for 100.
func expandYear(s string) string {
	words := strings.Split(s, " ")
	for i := 2; i < min(len(words), 4); i++ {
		if y, err := strconv.ParseUint(words[i], 10, 16); err == nil && len(words[i]) == 3 {
			words[i] = strconv.FormatUint(1900+y, 10)
			return strings.Join(words, " ")
		}
	}
	return s
}

// checkYear rejects years that cannot be stored or shown, in their own zone or in UTC.
func checkYear(t time.Time) (time.Time, bool) {
	if y := max(t.Year(), t.UTC().Year()); y < 1970 || y > 9999 {
		return time.Time{}, false
	}
	return t, true
}
