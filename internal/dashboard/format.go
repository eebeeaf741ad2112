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

// inputField is a labelled field of a form, with what was entered and what is
// wrong with it.
type inputField struct {
	Name, Label, Value, Wrong string
	Type                      string // text by default; password, email, number, textarea
	Hint                      string
	Autocomplete              string
	Placeholder               string
	Required, Autofocus       bool
	Unmarked                  bool   // that it may stay empty goes without saying
	Mono                      bool   // as wide letters as code
	Kept                      bool   // by a script that shows the form anew: it is not sent back
	List                      string // the id of a datalist to choose from
	Rows                      int    // of a textarea
	Options                   [][2]string
}

// newInputField makes a field from the page that it is on, its name and its label,
// and pairs of what else is to be said of it.
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

// isTicked reports whether a box of several of one name is ticked: as it was
// entered, else as it is.
func isTicked(s pageData, name, value string, is bool) bool {
	if s.Form != nil {
		return slices.Contains(s.Form[name], value)
	}
	return is
}

// dict makes a map from pairs, for templates with more than one argument.
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

// timeElement writes a time for people in these words, and for programs.
func timeElement(t time.Time, words string) template.HTML {
	if t.IsZero() {
		return template.HTML(words) //nolint:gosec // our own words
	}
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `" title="` + formatTimestamp(t) + `">` + words + `</time>`) //nolint:gosec // likewise
}

func formatTimestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// relativeTime says how long ago a time was, or how far it is ahead, roughly.
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

// formatSize says a number of bytes as people do.
func formatSize(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, names := float64(n), []string{"KB", "MB", "GB", "TB"}
	i := -1
	for f >= unit && i < len(names)-1 {
		f /= unit
		i++
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f %s", f, names[i])
	}
	return fmt.Sprintf("%.0f %s", f, names[i])
}

// toMegabytes is how many of 1,048,576 bytes a size is.
func toMegabytes(n int64) int64 { return n >> 20 }

// percentOf is so many hundredths of a number.
func percentOf(n int64, hundredths int64) int64 { return n / 100 * hundredths }

// formatInt writes a number as it is entered.
func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// formatCount writes a number with its thousands apart.
func formatCount(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// stateTone is the colour of a state.
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

// formatState says a state in words.
func stateText(state string) string { return strings.ReplaceAll(state, "_", " ") }
