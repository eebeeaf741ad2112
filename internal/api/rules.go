// SPDX-License-Identifier: Apache-2.0

package api

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// fieldRules are what the tags of a field say of its values, as the description shows it:
// enum, minimum and maximum. Of a list they are for each element.
type fieldRules reflect.StructTag

func (s fieldRules) get(name string) (string, bool) { return reflect.StructTag(s).Lookup(name) }

// violation returns which rule a value breaks; code is "" for none.
func (s fieldRules) violation(v reflect.Value) (code, words string) {
	switch v.Kind() {
	case reflect.String:
		if list, ok := s.get("enum"); ok && !slices.Contains(strings.Split(list, ","), v.String()) {
			return "unknown_value", "Give one of " + strings.ReplaceAll(list, ",", ", ") + "."
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

// isNumber reports whether a number in JSON can be kept: programs read numbers as
// float64 (RFC 8259 section 6), and fail at larger ones.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// checkNumbers tells the numbers in a value that can't be kept.
func (r *jsonDecoder) checkNumbers(raw jsontext.Value, at string) {
	d := jsontext.NewDecoder(strings.NewReader(string(raw)))
	for {
		t, err := d.ReadToken()
		if err != nil {
			return // its end: the text is well formed
		}
		if t.Kind() == '0' && !isNumber(t.String()) {
			r.addFault(at+pointerPath(d.StackPointer()), "out_of_range", "This number is too large.")
		}
	}
}

// pointerPath writes a JSON pointer as the names of fields are written.
func pointerPath(p jsontext.Pointer) string {
	var b strings.Builder
	for name := range p.Tokens() {
		b.WriteString("." + cleanName(name))
	}
	return b.String()
}
