// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/fault"
)

const (
	// maxBody bounds ordinary requests; sends have their own bound.
	maxBody = 1 << 20
	// bodyTime bounds how long an ordinary body may take to arrive, sendTime
	// that of a send: the server's own bound must leave time for the answer. A
	// long one gets as much again each time that it has come on at slowest, in
	// bytes a second, and its answer answerTime.
	bodyTime, sendTime = 30 * time.Second, 4 * time.Minute
	answerTime         = 5 * time.Minute
	slowest            = 8 << 10
)

// one is the path of a single resource.
type one struct {
	ID string `path:"id" format:"uuid" doc:"The resource's id."`
}

// bind reads a request without a body into a struct, by its fields tagged path or
// query. All faults are told at once.
func bind(r *http.Request, into any) error { return bindBody(nil, r, into, nil) }

// bindBody is bind for a struct that may have a field Body, for the JSON. A Body
// that is a pointer may be left out. hold is asked as in bounds.
func bindBody(w http.ResponseWriter, r *http.Request, into any, hold func(n int) error) error {
	b := &binder{r: r}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(http.StatusBadRequest, "invalid_query", "The query part of the URL can't be read.")
	}
	b.query = query
	v := reflect.ValueOf(into).Elem()
	b.parameters(v)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !b.known[name] {
			b.bad.Add(clip(name), "unknown_parameter", "There is no such query parameter.")
		}
	}
	if body := v.FieldByName("Body"); body.IsValid() {
		if err := merge(&b.bad, readBody(w, r, body, hold)); err != nil {
			return err
		}
	}
	return b.bad.Err()
}

// noQuery refuses query parameters where there are none to give.
func noQuery(r *http.Request) error { return bind(r, &struct{}{}) }

type binder struct {
	r     *http.Request
	query url.Values
	known map[string]bool
	bad   fault.Fields
}

func (b *binder) parameters(v reflect.Value) {
	if b.known == nil {
		b.known = map[string]bool{}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			b.parameters(v.Field(i))
			continue
		}
		if name := f.Tag.Get("path"); name != "" {
			v.Field(i).SetString(b.r.PathValue(name))
		}
		if name := f.Tag.Get("query"); name != "" && f.Type.Kind() == reflect.Map {
			b.members(name, v.Field(i))
		} else if name != "" {
			b.known[name] = true
			b.parameter(name, f, v.Field(i))
		}
	}
}

// members reads query parameters such as metadata[order]=42 into a map.
func (b *binder) members(name string, v reflect.Value) {
	for param, given := range b.query {
		key, ok := strings.CutPrefix(param, name+"[")
		if !ok || !strings.HasSuffix(key, "]") || !utf8.ValidString(key+given[0]) {
			continue
		}
		b.known[param] = true
		if len(given) > 1 {
			b.bad.Add(clip(param), "given_twice", "Give this parameter once.")
		}
		if v.IsNil() {
			v.Set(reflect.ValueOf(map[string]string{}))
		}
		v.SetMapIndex(reflect.ValueOf(key[:len(key)-1]), reflect.ValueOf(given[0]))
	}
}

// parameter reads one query parameter; an empty one is none.
func (b *binder) parameter(name string, f reflect.StructField, v reflect.Value) {
	given := b.query[name]
	if v.Kind() == reflect.Slice {
		var all []string
		for _, text := range given {
			all = append(all, strings.FieldsFunc(text, func(c rune) bool { return c == ',' })...)
		}
		v.Set(reflect.ValueOf(all))
		for i := range all {
			b.obey(name, f, v.Index(i))
		}
		return
	}
	if len(given) > 1 {
		b.bad.Add(name, "given_twice", "Give this parameter once.")
		return
	}
	text := f.Tag.Get("default")
	if len(given) == 1 && given[0] != "" {
		text = given[0]
	}
	if text == "" {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		b.obey(name, f, v)
	case reflect.Bool:
		if text != "true" && text != "false" {
			b.bad.Add(name, "wrong_type", "Give true or false.")
		}
		v.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			b.bad.Add(name, "wrong_type", "Give a whole number.")
			b.reset(f, v)
		default: // one that is too large is the largest
			b.obey(name, f, v)
		}
	}
}

// obey tells the rule that a parameter breaks, which then counts as left out.
func (b *binder) obey(name string, f reflect.StructField, v reflect.Value) {
	if code, words := rules(f.Tag).broken(v); code != "" {
		b.bad.Add(name, code, "%s", words)
		b.reset(f, v)
	}
}

// reset gives a parameter the value that it has when it is left out.
func (b *binder) reset(f reflect.StructField, v reflect.Value) {
	v.SetZero()
	if n, err := strconv.ParseInt(f.Tag.Get("default"), 10, 64); err == nil && v.Kind() == reflect.Int {
		v.SetInt(n)
	} else if v.Kind() == reflect.String && f.Type.Kind() == reflect.String {
		v.SetString(f.Tag.Get("default"))
	}
}

// readBody reads an ordinary JSON body into a struct, or a pointer to one.
func readBody(w http.ResponseWriter, r *http.Request, into reflect.Value, hold func(n int) error) error {
	body, arrived := arriving(w, r, maxBody, bodyTime)
	text, err := io.ReadAll(&growing{Reader: body, hold: hold})
	if err != nil {
		return err
	}
	arrived()
	if len(text) == 0 && into.Kind() == reflect.Pointer {
		return nil
	}
	if err := requireJSON(r); err != nil {
		return err
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	return decode(text, into)
}

// arriving bounds a body, in bytes and in time. When all of it was read the
// caller calls arrived; what is left of a body that was not gets no more time.
func arriving(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) (body io.Reader, arrived func()) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(within)) // the server has a bound of its own, too
	return http.MaxBytesReader(w, broken{&steady{ReadCloser: r.Body, c: c, within: within}}, most), func() { _ = c.SetReadDeadline(time.Time{}) }
}

// steady gives a body that goes on coming more time.
type steady struct {
	io.ReadCloser
	c      *http.ResponseController
	within time.Duration
	got    int
}

func (s *steady) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.got += n; s.got >= slowest*int(s.within/time.Second) && err == nil {
		s.got = 0
		_ = s.c.SetReadDeadline(time.Now().Add(s.within))
		_ = s.c.SetWriteDeadline(time.Now().Add(s.within + answerTime))
	}
	return n, err
}

// requireJSON returns a 415 unless the body is declared to be plain JSON.
func requireJSON(r *http.Request) error {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	encoding := r.Header.Get("Content-Encoding")
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") ||
		encoding != "" && !strings.EqualFold(encoding, "identity") {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"Send the body as JSON in UTF-8, not compressed, with the header Content-Type: application/json.")
	}
	return nil
}

// broken tells a body that did not arrive whole as the client's trouble.
type broken struct{ io.ReadCloser }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = newProblem(http.StatusRequestTimeout, "body_too_slow", "The request's body did not arrive in time.")
	case keyEnded(err):
	case err != nil && err != io.EOF: //nolint:errorlint // what io.Reader promises
		err = fault.Wrap(err, fault.Invalid, "invalid_json", "The request's body ended early.")
	}
	return n, err
}

// clip keeps a name that a client made up short and printable.
func clip(name string) string {
	const most = 64
	name = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c == '\uFFFD' {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(name, "?"))
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}
