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

// Bounds of what a JSON text may be made of.
const (
	maxDepth  = 64
	maxValues = 20_000
	maxFaults = 100 // more are not told
)

func badJSON(format string, args ...any) error {
	return fault.New(fault.Invalid, "invalid_json", format, args...)
}

func tooManyValues(limit int) error {
	return fault.New(fault.TooLarge, "too_many_values", "The JSON may hold %d values.", limit)
}

// wellFormed returns a fault unless text is one JSON value in UTF-8, without
// duplicate names, within the bounds (RFC 8259; RFC 7493 section 2.3).
func wellFormed(text []byte, values int) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	for n := 0; ; n++ {
		_, err := d.ReadToken()
		switch {
		case err == io.EOF && n > 0: //nolint:errorlint // ReadToken promises this
			return nil
		case errors.Is(err, jsontext.ErrDuplicateName):
			return badJSON("The JSON gives a name twice in one object.")
		case err != nil:
			return badJSON("The request's body is not valid JSON in UTF-8.")
		case d.StackDepth() > maxDepth:
			return badJSON("The JSON is nested more than %d levels deep.", maxDepth)
		case n > values:
			return tooManyValues(values)
		case n > 0 && d.StackDepth() == 0 && d.PeekKind() != 0:
			return badJSON("Something follows the JSON value.")
		}
	}
}

// decode reads a JSON object into a struct, strictly: members that the struct
// lacks, and those that are not of its types or break its rules, are told all at once. A member
// is required unless it is tagged omitempty; null is the same as leaving it
// out.
func decode(text []byte, into reflect.Value) error {
	return decodeWithin(text, into, maxValues, maxFaults)
}

// decodeWithin is decode with bounds of its own on the values in the text and
// on the faults that are told.
func decodeWithin(text []byte, into reflect.Value, values, faults int) error {
	if err := wellFormed(text, values); err != nil {
		return err
	}
	r := &reader{in: jsontext.NewDecoder(bytes.NewBuffer(text)), faults: faults}
	r.value(into, "", "")
	return r.bad.Err()
}

// reader reads a well-formed text.
type reader struct {
	in     *jsontext.Decoder
	faults int // told at most
	bad    fault.Fields
}

func (r *reader) fault(at, code, format string, args ...any) {
	if len(r.bad) < r.faults {
		r.bad.Add(at, code, format, args...)
	}
}

// token and skip can't fail on a well-formed text.
func (r *reader) token() jsontext.Token {
	t, _ := r.in.ReadToken()
	return t
}

func (r *reader) skip() { _ = r.in.SkipValue() }

// wrong skips a value of another type than the field's.
func (r *reader) wrong(at, what string) {
	r.skip()
	if at == "" {
		at = "body"
	}
	r.fault(at, "wrong_type", "This must be %s.", what)
}

var timeType = reflect.TypeFor[time.Time]()

// value reads a value of a field that has rules.
func (r *reader) value(v reflect.Value, at string, s rules) {
	switch kind := r.in.PeekKind(); {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.value(v.Elem(), at, s)
	case v.Type() == objectType:
		if kind != '{' {
			r.wrong(at, "an object")
			return
		}
		raw, _ := r.in.ReadValue()
		r.numbers(raw, at)
		v.SetBytes(bytes.Clone(raw))
	case v.Type() == anythingType:
		raw, _ := r.in.ReadValue()
		r.numbers(raw, at)
		v.SetBytes(bytes.Clone(raw))
	case v.Type() == timeType:
		r.time(v, at)
	case v.Kind() == reflect.String:
		if kind != '"' {
			r.wrong(at, "a string")
			return
		}
		v.SetString(r.token().String())
		r.obey(v, at, s)
	case v.Kind() == reflect.Bool:
		if kind != 't' && kind != 'f' {
			r.wrong(at, "true or false")
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
		r.table(v, at, s)
	default:
		r.object(v, at)
	}
}

func (r *reader) time(v reflect.Value, at string) {
	if r.in.PeekKind() != '"' {
		r.wrong(at, "a time as a string")
		return
	}
	t, err := time.Parse(time.RFC3339, r.token().String())
	if err == nil {
		_, err = t.UTC().MarshalText() // an answer must be able to say it
	}
	if err != nil || t.IsZero() { // which would count as left out
		r.fault(at, "invalid_time", "Give a time such as 2026-01-31T12:00:00Z (RFC 3339).")
	}
	v.Set(reflect.ValueOf(t))
}

// obey tells the rule that a value breaks, which then counts as left out.
func (r *reader) obey(v reflect.Value, at string, s rules) {
	if code, words := s.broken(v); code != "" {
		r.fault(at, code, "%s", words)
		v.SetZero()
	}
}

func (r *reader) float(v reflect.Value, at string, s rules) {
	if r.in.PeekKind() != '0' {
		r.wrong(at, "a number")
		return
	}
	raw, _ := r.in.ReadValue()
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil { // the text is a number
		r.fault(at, "out_of_range", "This number is too large.")
		return
	}
	v.SetFloat(n)
	r.obey(v, at, s)
}

func (r *reader) number(v reflect.Value, at string, s rules) {
	if r.in.PeekKind() != '0' {
		r.wrong(at, "a whole number")
		return
	}
	raw, _ := r.in.ReadValue()
	n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange):
		r.fault(at, "out_of_range", "This number is too large.")
	case err != nil:
		r.fault(at, "wrong_type", "This must be a whole number.")
	default:
		v.SetInt(n)
		r.obey(v, at, s)
	}
}

func (r *reader) array(v reflect.Value, at string, s rules) {
	if r.in.PeekKind() != '[' {
		r.wrong(at, "a list")
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

// table reads an object whose names are free.
func (r *reader) table(v reflect.Value, at string, s rules) {
	if r.in.PeekKind() != '{' {
		r.wrong(at, "an object")
		return
	}
	r.token()
	v.Set(reflect.MakeMap(v.Type()))
	for r.in.PeekKind() != '}' {
		name := r.token().String()
		element := reflect.New(v.Type().Elem()).Elem()
		r.value(element, at+"."+clip(name), s)
		v.SetMapIndex(reflect.ValueOf(name), element)
	}
	r.token()
}

func (r *reader) object(v reflect.Value, at string) {
	if r.in.PeekKind() != '{' {
		r.wrong(at, "an object")
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
		f, s, ok := member(v, name)
		switch {
		case !ok:
			r.skip()
			r.fault(prefix+clip(name), "unknown_field", "There is no such field.")
		case r.in.PeekKind() == 'n':
			r.skip()
		default:
			given[name] = true
			r.value(f, prefix+name, s)
		}
	}
	r.token()
	for _, name := range required(v.Type()) {
		if !given[name] {
			r.fault(prefix+name, "required", "This field is required.")
		}
	}
}

// required lists the names of a struct's members that must be given.
func required(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, required(f.Type)...)
			continue
		}
		if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); options == "" {
			names = append(names, name)
		}
	}
	return names
}

// member finds the field of a struct by its name in JSON, as it is spelt, and its
// rules. The members of an embedded struct are its own.
func member(v reflect.Value, name string) (reflect.Value, rules, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			if found, s, ok := member(v.Field(i), name); ok {
				return found, s, true
			}
			continue
		}
		if is, _, _ := strings.Cut(f.Tag.Get("json"), ","); is == name && name != "" {
			return v.Field(i), rules(f.Tag), true
		}
	}
	return reflect.Value{}, "", false
}
