// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

// maxFromLine is the longest line that can be the first of a message, in bytes.
const maxFromLine = 1000

// parseFromLine parses the line that begins a message in an mbox: a sender, which may have several
// words, and a date in one of the formats in use. ok is false if there is no date.
func parseFromLine(line []byte) (sender string, date time.Time, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("From "))
	if !ok || len(line) > maxFromLine {
		return "", time.Time{}, false
	}
	words := strings.Fields(string(rest))
	if len(words) > 0 {
		sender = words[0]
	}
	for i, word := range words { // a sender's name may come before the weekday
		if !isWeekday(word) {
			continue
		}
		if date, ok := parseFromDate(words[i+1:]); ok {
			return sender, date, true
		}
	}
	if len(words) > 1 {
		if date, ok := parseFromDate(words[1:]); ok {
			return sender, date, true
		}
	}
	return sender, time.Time{}, false
}

func isWeekday(word string) bool {
	word = strings.ToLower(strings.TrimSuffix(word, ","))
	for day := time.Sunday; day <= time.Saturday; day++ {
		if name := strings.ToLower(day.String()); word == name || word == name[:3] {
			return true
		}
	}
	return false
}

func parseMonth(word string) time.Month {
	word = strings.ToLower(word)
	for m := time.January; m <= time.December; m++ {
		if name := strings.ToLower(m.String()); word == name || word == name[:3] {
			return m
		}
	}
	return 0
}

// parseFromDate parses a date from words in any order: month, day, time of day, year and maybe a
// zone; or in ISO 8601 format. Without a zone it is UTC.
func parseFromDate(words []string) (time.Time, bool) {
	if date, ok := parseISODate(words); ok {
		return date, true
	}
	var month time.Month
	var clock time.Time
	day, year, offset, timed := 0, 0, 0, false
	for i, word := range words {
		switch n, err := strconv.Atoi(word); {
		case month == 0 && parseMonth(word) != 0:
			month = parseMonth(word)
		case !timed && strings.Contains(word, ":"):
			if clock, timed = parseClock(word); !timed {
				return time.Time{}, false
			}
		case parseZone(word, &offset):
		case err == nil && n > 0 && day == 0 && len(word) <= 2:
			day = n
		case err == nil && year == 0 && (len(word) == 4 || (len(word) == 2 || len(word) == 3) && timed):
			if year = n; len(word) < 4 { // RFC 5322 §4.3: a three-digit year counts from 1900
				year += 1900
				if n < 50 {
					year += 100
				}
			}
		case word == "remote" && i+2 < len(words) && words[i+1] == "from": // UUCP
			return makeDate(year, month, day, clock, offset, timed)
		default:
			return time.Time{}, false
		}
	}
	return makeDate(year, month, day, clock, offset, timed)
}

func makeDate(year int, month time.Month, day int, clock time.Time, offset int, timed bool) (time.Time, bool) {
	if year == 0 || month == 0 || day == 0 || day > 31 || !timed {
		return time.Time{}, false
	}
	return checkDate(time.Date(year, month, day, clock.Hour(), clock.Minute(), clock.Second(), 0, time.FixedZone("", offset)))
}

// checkDate validates a date from a line. Unset clocks give the start of 1970, in any time zone, or
// of 1904: this begins a message like any date, but is not used as one.
func checkDate(t time.Time) (time.Time, bool) {
	if t = t.UTC(); t.Year() < 1900 || t.Year() >= 2200 {
		return time.Time{}, false
	}
	if !isPlausible(t) {
		t = time.Time{}
	}
	return t, true
}

// isPlausible reports whether mail can have been received at a time, in any time zone.
func isPlausible(t time.Time) bool { return t.Unix() > 0 && t.UTC().Year() < 2200 }

// clampDate returns the date in whole seconds, or the nearest plausible one: a line with another
// date would not begin a message.
func clampDate(t time.Time) time.Time {
	if t = t.UTC().Truncate(time.Second); isPlausible(t) {
		return t
	}
	if t.Unix() <= 0 {
		return time.Unix(1, 0).UTC()
	}
	return time.Date(2199, time.December, 31, 23, 59, 59, 0, time.UTC)
}

func parseClock(word string) (time.Time, bool) {
	for _, layout := range []string{"15:4:5", "15:4"} {
		if t, err := time.Parse(layout, word); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

func parseISODate(words []string) (time.Time, bool) {
	for n := 1; n <= min(3, len(words)); n++ {
		if n < len(words) && words[n] != "remote" {
			continue
		}
		text := strings.Join(words[:n], " ")
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05Z07:00"} {
			if t, err := time.Parse(layout, text); err == nil {
				return checkDate(t)
			}
		}
	}
	return time.Time{}, false
}

// parseZone parses a time zone: +0100, (CET) and unambiguous names. Other names count as UTC.
func parseZone(word string, offset *int) bool {
	word = strings.Trim(word, "()")
	if t, err := time.Parse("-0700", cmp.Or(message.TimeZones[word], word)); err == nil {
		_, *offset = t.Zone()
		return true
	}
	return len(word) >= 1 && len(word) <= 5 && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && parseMonth(word) == 0 && !isWeekday(word)
}
