// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits of a JSON text.
const (
	maxDepth  = 64
	maxValues = 20_000
	maxFaults = 100 // further faults are not reported
)

func invalidJSON(format string, args ...any) error {
	return fault.New(fault.Invalid, "invalid_json", format, args...)
}

func tooManyValues(limit int) error {
	return fault.New(fault.TooLarge, "too_many_values", "The JSON may hold %d values.", limit)
}

// checkWellFormed returns a fault unless text is one JSON value in UTF-8, without duplicate names
// and within the limits (RFC 8259; RFC 7493 section 2.3).
func checkWellFormed(text []byte, values int) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for n := 0; ; n++ {
		_, err := d.ReadToken()
		switch {
		case err == io.EOF && n > 0: //nolint:errorlint // ReadToken promises this
			return nil
		case errors.Is(err, jsontext.ErrDuplicateName):
			return invalidJSON("The JSON gives a name twice in one object.")
		case err != nil:
			return invalidJSON("The request's body is not valid JSON in UTF-8.")
		case d.StackDepth() > maxDepth:
			return invalidJSON("The JSON is nested more than %d levels deep.", maxDepth)
		case n > values:
			return tooManyValues(values)
		case n > 0 && d.StackDepth() == 0 && d.PeekKind() != 0:
			return invalidJSON("Something follows the JSON value.")
		}
	}
}

// decodeJSON decodes a JSON object into a struct, strictly. It reports unknown members, wrong types
// and broken rules, all at once. A member is required unless its field is tagged omitempty; null
// counts as absent.
func decodeJSON(text []byte, into reflect.Value) error {
	return decodeJSONLimited(text, into, maxValues, maxFaults)
}

// decodeJSONLimited is decode with its own limits on the number of values and of reported faults.
func decodeJSONLimited(text []byte, into reflect.Value, values, faults int) error {
	if err := checkWellFormed(text, values); err != nil {
		return err
	}
	r := &jsonDecoder{in: jsontext.NewDecoder(bytes.NewBuffer(text)), maxFaults: faults}
	r.value(into, "", "")
	return r.faults.Err()
}

// jsonDecoder decodes a well-formed text.
type jsonDecoder struct {
	in        *jsontext.Decoder
	maxFaults int // maximum number of reported faults
	faults    fault.FieldErrors
}

func (r *jsonDecoder) addFault(at, code, format string, args ...any) {
	if len(r.faults) < r.maxFaults {
		r.faults.Add(at, code, format, args...)
	}
}

// token and skip can't fail on well-formed text.
func (r *jsonDecoder) token() jsontext.Token {
	t, _ := r.in.ReadToken()
	return t
}

func (r *jsonDecoder) skip() { _ = r.in.SkipValue() }

// skipWrongType skips a value whose type is not the field's, and reports it.
func (r *jsonDecoder) skipWrongType(at, what string) {
	r.skip()
	if at == "" {
		at = "body"
	}
	r.addFault(at, "wrong_type", "This must be %s.", what)
}

var timeType = reflect.TypeFor[time.Time]()

// value decodes a value into a field with rules.
func (r *jsonDecoder) value(v reflect.Value, at string, s fieldRules) {
	switch kind := r.in.PeekKind(); {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.value(v.Elem(), at, s)
	case v.Type() == jsonObjectType:
		if kind != '{' {
			r.skipWrongType(at, "an object")
			return
		}
		raw, _ := r.in.ReadValue()
		r.checkNumbers(raw, at)
		v.SetBytes(bytes.Clone(raw))
	case v.Type() == jsonValueType:
		raw, _ := r.in.ReadValue()
		r.checkNumbers(raw, at)
		v.SetBytes(bytes.Clone(raw))
	case v.Type() == timeType:
		r.time(v, at)
	case v.Kind() == reflect.String:
		if kind != '"' {
			r.skipWrongType(at, "a string")
			return
		}
		v.SetString(r.token().String())
		r.checkRules(v, at, s)
	case v.Kind() == reflect.Bool:
		if kind != 't' && kind != 'f' {
			r.skipWrongType(at, "true or false")
			return
		}
		v.SetBool(kind == 't')
		r.skip()
	case v.Kind() == reflect.Int:
		r.number(v, at, s)
	case v.Kind() == reflect.Float64:
		r.float(v, at, s)
	case v.Kind() == reflect.Slice:
		r.array(v, at, s)
	case v.Kind() == reflect.Map:
		r.mapping(v, at, s)
	default:
		r.object(v, at)
	}
}

func (r *jsonDecoder) time(v reflect.Value, at string) {
	if r.in.PeekKind() != '"' {
		r.skipWrongType(at, "a time as a string")
		return
	}
	t, err := time.Parse(time.RFC3339, r.token().String())
	if err == nil {
		_, err = t.UTC().MarshalText() // a response must be able to encode it
	}
	if err != nil || t.IsZero() { // the zero time would count as absent
		r.addFault(at, "invalid_time", "Give a time such as 2026-01-31T12:00:00Z (RFC 3339).")
	}
	v.Set(reflect.ValueOf(t))
}

// checkRules reports the rule that a value breaks. The value then counts as absent.
func (r *jsonDecoder) checkRules(v reflect.Value, at string, s fieldRules) {
	if code, words := s.violation(v); code != "" {
		r.addFault(at, code, "%s", words)
		v.SetZero()
	}
}

func (r *jsonDecoder) float(v reflect.Value, at string, s fieldRules) {
	if r.in.PeekKind() != '0' {
		r.skipWrongType(at, "a number")
		return
	}
	raw, _ := r.in.ReadValue()
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil { // the text is a well-formed number
		r.addFault(at, "out_of_range", "This number is too large.")
		return
	}
	v.SetFloat(n)
	r.checkRules(v, at, s)
}

func (r *jsonDecoder) number(v reflect.Value, at string, s fieldRules) {
	if r.in.PeekKind() != '0' {
		r.skipWrongType(at, "a whole number")
		return
	}
	raw, _ := r.in.ReadValue()
	n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		r.addFault(at, "out_of_range", "This number is too large.")
	case err != nil:
		r.addFault(at, "wrong_type", "This must be a whole number.")
	default:
		v.SetInt(n)
		r.checkRules(v, at, s)
	}
}

func (r *jsonDecoder) array(v reflect.Value, at string, s fieldRules) {
	if r.in.PeekKind() != '[' {
		r.skipWrongType(at, "a list")
		return
	}
	r.token()
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for i := 0; r.in.PeekKind() != ']'; i++ {
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(element, fmt.Sprintf("%s[%d]", at, i), s)
		v.Set(reflect.Append(v, element))
	}
	r.token()
}

// mapping decodes an object with arbitrary names.
func (r *jsonDecoder) mapping(v reflect.Value, at string, s fieldRules) {
	if r.in.PeekKind() != '{' {
		r.skipWrongType(at, "an object")
		return
	}
	r.token()
	v.Set(reflect.MakeMap(v.Type()))
	for r.in.PeekKind() != '}' {
		name := r.token().String()
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(element, at+"."+cleanName(name), s)
		v.SetMapIndex(reflect.ValueOf(name), element)
	}
	r.token()
}

func (r *jsonDecoder) object(v reflect.Value, at string) {
	if r.in.PeekKind() != '{' {
		r.skipWrongType(at, "an object")
		return
	}
	r.token()
	prefix := ""
	if at != "" {
		prefix = at + "."
	}
	given := map[string]bool{}
	for r.in.PeekKind() != '}' {
		name := r.token().String()
		f, s, ok := findField(v, name)
		switch {
		case !ok:
			r.skip()
			r.addFault(prefix+cleanName(name), "unknown_field", "There is no such field.")
		case r.in.PeekKind() == 'n':
			r.skip()
		default:
			given[name] = true
			r.value(f, prefix+name, s)
		}
	}
	r.token()
	for _, name := range requiredNames(v.Type()) {
		if !given[name] {
			r.addFault(prefix+name, "required", "This field is required.")
		}
	}
}

// requiredNames lists the names of a struct's required members.
func requiredNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, requiredNames(f.Type)...)
			continue
		}
		if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); options == "" {
			names = append(names, name)
		}
	}
	return names
}

// findField returns the struct field for an exact JSON name, and its rules. Members of an embedded
// struct count as the struct's own.
func findField(v reflect.Value, name string) (reflect.Value, fieldRules, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if found, s, ok := findField(v.Field(i), name); ok {
				return found, s, true
			}
			continue
		}
		if is, _, _ := strings.Cut(f.Tag.Get("json"), ","); is == name && name != "" {
			return v.Field(i), fieldRules(f.Tag), true
		}
	}
	return reflect.Value{}, "", false
}
