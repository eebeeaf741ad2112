// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
)

// inputField is a labelled form field with its value and its error.
type inputField struct {
	Name, Label, Value, Wrong string
	Type                      string // text by default; password, email, number, textarea
	Hint                      string
	Autocomplete              string
	Placeholder               string
	Required, Autofocus       bool
	Unmarked                  bool   // whether to omit the mark for optional fields
	Mono                      bool   // whether to use a monospaced font
	Kept                      bool   // whether a script keeps the value when it shows the form again: the server doesn't send it back
	List                      string // id of a datalist with suggestions
	Rows                      int    // rows of a textarea
	Options                   [][2]string
}

// newInputField returns a field of a page with a name and a label. more has pairs of further
// properties.
func newInputField(s pageData, name, label string, more ...any) (inputField, error) {
	f := inputField{Name: name, Label: label, Type: "text", Rows: 4, Wrong: s.Wrong[name]}
	for i := 0; i+1 < len(more); i += 2 {
		key, _ := more[i].(string)
		value := more[i+1]
		text := fmt.Sprint(value)
		switch key {
		case "type":
			f.Type = text
		case "value":
			f.Value = text
		case "hint":
			f.Hint = text
		case "autocomplete":
			f.Autocomplete = text
		case "placeholder":
			f.Placeholder = text
		case "required":
			f.Required = value == true
		case "autofocus":
			f.Autofocus = value == true
		case "unmarked":
			f.Unmarked = value == true
		case "mono":
			f.Mono = value == true
		case "kept":
			f.Kept = value == true
		case "list":
			f.List = text
		case "rows":
			f.Rows, _ = value.(int)
		case "options":
			f.Options, _ = value.([][2]string)
		default:
			return f, fmt.Errorf("a field knows no %q", key)
		}
	}
	if entered, ok := s.Form[name]; ok && f.Type != "password" {
		f.Value = entered[0]
	}
	return f, nil
}

// isTicked reports whether a checkbox in a group of the same name is ticked: as submitted, or else
// as stored.
func isTicked(s pageData, name, value string, is bool) bool {
	if s.Form != nil {
		return slices.Contains(s.Form[name], value)
	}
	return is
}

// dict builds a map from pairs, for templates with more than one argument.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict needs pairs")
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m, nil
}

// timeElement returns a time element with the given words and a machine-readable time.
func timeElement(t time.Time, words string) template.HTML {
	if t.IsZero() {
		return template.HTML(words) //nolint:gosec // our own words
	}
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `" title="` + formatTimestamp(t) + `">` + words + `</time>`) //nolint:gosec // likewise
}

func formatTimestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// relativeTime describes roughly how far a time is in the past or future.
func relativeTime(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	if d < 0 {
		return "in " + formatDuration(-d)
	}
	if d < 5*time.Second {
		return "just now"
	}
	return formatDuration(d) + " ago"
}

func formatDuration(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{365 * 24 * time.Hour, "year"}, {30 * 24 * time.Hour, "month"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / u.length); n > 0 {
			return plural(n, u.name)
		}
	}
	return plural(int(d/time.Second), "second")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// toMegabytes converts bytes to megabytes of 1,048,576 bytes.
func toMegabytes(n int64) int64 { return n >> 20 }

// percentOf returns the given number of hundredths of n.
func percentOf(n int64, hundredths int64) int64 { return n / 100 * hundredths }

// formatInt formats a number for an input field.
func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// formatCount formats a number with thousands separators.
func formatCount(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// stateTone returns the colour of a state.
func stateTone(state string) string {
	switch state {
	case "verified", "delivered", "active", "enabled", "ok", "pass", "accepted", "ham", "published", "completed", "done":
		return "good"
	case "failed", "bounced", "complained", "suspended", "fail", "disabled", "expired", "failing", "spam", "bounce", "complaint":
		return "bad"
	case "degraded", "deferred", "suppressed", "temporary_failure", "wrong_password", "no_verifier", "wrong_protocol", "cancelled", "quarantine", "softfail", "unsubscribe", "temperror", "permerror":
		return "warn"
	case "pending", "queued", "scheduled", "sending", "retiring", "running", "waiting":
		return "wait"
	}
	return "plain"
}

// stateText returns a state in words.
func stateText(state string) string { return strings.ReplaceAll(state, "_", " ") }
