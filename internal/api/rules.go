// SPDX-License-Identifier: Apache-2.0

package api

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mailstead/mailstead/internal/event"
)

// fieldRules are the rules for a field's values from its tags, as the document shows them: enum,
// minimum and maximum. For a list they apply to each element.
type fieldRules reflect.StructTag

func (s fieldRules) get(name string) (string, bool) { return reflect.StructTag(s).Lookup(name) }

// enumValues returns the values of the tag enum, in which {event} stands for the kinds of event.
func enumValues(list string) []string {
	return strings.Split(strings.ReplaceAll(list, "{event}", strings.Join(event.Kinds[:], ",")), ",")
}

// violation returns the rule that a value breaks; code is "" for none.
func (s fieldRules) violation(v reflect.Value) (code, words string) {
	switch v.Kind() {
	case reflect.String:
		if list, ok := s.get("enum"); ok && !slices.Contains(enumValues(list), v.String()) {
			return "unknown_value", "Give one of " + strings.Join(enumValues(list), ", ") + "."
		}
	case reflect.Int:
		return s.rangeViolation(float64(v.Int()))
	case reflect.Float64:
		return s.rangeViolation(v.Float())
	}
	return "", ""
}

func (s fieldRules) rangeViolation(n float64) (code, words string) {
	low, least := s.get("minimum")
	high, most := s.get("maximum")
	bound := func(text string) float64 {
		f, _ := strconv.ParseFloat(text, 64)
		return f
	}
	if (!least || n >= bound(low)) && (!most || n <= bound(high)) {
		return "", ""
	}
	switch {
	case least && most:
		words = "Give " + low + " to " + high + "."
	case least:
		words = "Give " + low + " or more."
	default:
		words = "Give " + high + " or less."
	}
	return "out_of_range", words
}

// fitsFloat64 reports whether a JSON number is in the range of float64, as which programs read
// numbers (RFC 8259 section 6).
func fitsFloat64(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// checkNumbers reports the numbers in a value that are out of range.
func (r *jsonDecoder) checkNumbers(raw jsontext.Value, at string) {
	d := jsontext.NewDecoder(strings.NewReader(string(raw)))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return // the end of the text, which is well formed
		}
		if t.Kind() == '0' && !fitsFloat64(t.String()) {
			r.addFault(at+pointerPath(d.StackPointer()), "out_of_range", "This number is too large.")
		}
	}
}

// pointerPath converts a JSON pointer to a field path.
func pointerPath(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		b.WriteString("." + cleanName(name))
	}
	return b.String()
}
