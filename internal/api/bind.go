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
	"github.com/mailstead/mailstead/internal/web"
)

const (
	// maxBody is the limit of ordinary request bodies, in bytes; sends have their own.
	maxBody = 1 << 20
	// bodyTimeout limits how long an ordinary body may take to arrive, and sendTimeout how long a
	// send may take. The server's own limit must leave time for the response. A body that arrives
	// at minBodyRate (bytes a second) or faster gets the same time again. Its response gets
	// responseTimeout.
	bodyTimeout, sendTimeout = 30 * time.Second, 4 * time.Minute
	responseTimeout          = 5 * time.Minute
	minBodyRate              = 8 << 10
)

// idParams holds the path parameter of a single resource.
type idParams struct {
	ID string `path:"id" format:"uuid" doc:"The resource's id."`
}

// bind decodes a request without a body into a struct, by its fields tagged path or query. It
// reports all faults at once.
func bind(r *http.Request, into any) error { return bindBody(nil, r, into, nil) }

// bindBody is bind for a struct that may have a field Body for the JSON. A Body that is a pointer
// is optional. hold reserves memory, see bodyLimits.reserve.
func bindBody(w http.ResponseWriter, r *http.Request, into any, hold func(n int) error) error {
	b := &binder{r: r}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(http.StatusBadRequest, "invalid_query", "The query part of the URL can't be read.")
	}
	b.query = query
	v := reflect.ValueOf(into).Elem()
	b.bindFields(v)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !b.known[name] {
			b.faults.Add(cleanName(name), "unknown_parameter", "There is no such query parameter.")
		}
	}
	if body := v.FieldByName("Body"); body.IsValid() {
		if err := mergeFaults(&b.faults, readBody(w, r, body, hold)); err != nil {
			return err
		}
	}
	return b.faults.Err()
}

// rejectQuery rejects query parameters for endpoints that have none.
func rejectQuery(r *http.Request) error { return bind(r, &struct{}{}) }

type binder struct {
	r      *http.Request
	query  url.Values
	known  map[string]bool
	faults fault.FieldErrors
}

func (b *binder) bindFields(v reflect.Value) {
	if b.known == nil {
		b.known = map[string]bool{}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			b.bindFields(v.Field(i))
			continue
		}
		if name := f.Tag.Get("path"); name != "" {
			v.Field(i).SetString(b.r.PathValue(name))
		}
		if name := f.Tag.Get("query"); name != "" && f.Type.Kind() == reflect.Map {
			b.bindMap(name, v.Field(i))
		} else if name != "" {
			b.known[name] = true
			b.bindParameter(name, f, v.Field(i))
		}
	}
}

// bindMap reads query parameters like metadata[order]=42 into a map.
func (b *binder) bindMap(name string, v reflect.Value) {
	for param, given := range b.query {
		key, ok := strings.CutPrefix(param, name+"[")
		if !ok || !strings.HasSuffix(key, "]") || !utf8.ValidString(key+given[0]) {
			continue
		}
		b.known[param] = true
		if len(given) > 1 {
			b.faults.Add(cleanName(param), "given_twice", "Give this parameter once.")
		}
		if v.IsNil() {
			v.Set(reflect.ValueOf(map[string]string{}))
		}
		v.SetMapIndex(reflect.ValueOf(key[:len(key)-1]), reflect.ValueOf(given[0]))
	}
}

// bindParameter reads one query parameter. An empty one is a fault: a filter whose value a program
// lost must not list everything.
func (b *binder) bindParameter(name string, f reflect.StructField, v reflect.Value) {
	given := b.query[name]
	if v.Kind() == reflect.Slice {
		var all []string
		for _, text := range given {
			all = append(all, strings.Split(text, ",")...)
		}
		if slices.Contains(all, "") {
			b.faults.Add(name, "empty_value", "An element of this list is empty. Leave it out, or give it a value.")
			return
		}
		if len(all) > maxFilterValues {
			b.faults.Add(name, "too_many_values", "Give %d values at most.", maxFilterValues)
			return
		}
		v.Set(reflect.ValueOf(all))
		for i := range all {
			if !b.checkRules(name, f, v.Index(i)) {
				return // the fault says what the others may be
			}
		}
		return
	}
	if len(given) > 1 {
		b.faults.Add(name, "given_twice", "Give this parameter once.")
		return
	}
	text := f.Tag.Get("default")
	if len(given) == 1 {
		if text = given[0]; text == "" {
			b.faults.Add(name, "empty_value", "This parameter has no value. Leave it out, or give it a value.")
			return
		}
	}
	if text == "" {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		b.checkRules(name, f, v)
	case reflect.Bool:
		if text != "true" && text != "false" {
			b.faults.Add(name, "wrong_type", "Give true or false.")
		}
		v.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			b.faults.Add(name, "wrong_type", "Give a whole number.")
			b.setDefault(f, v)
		default: // a number that is too large becomes the largest
			b.checkRules(name, f, v)
		}
	}
}

// checkRules reports the rule that a parameter breaks, and returns false if there is one. The
// parameter then counts as absent.
func (b *binder) checkRules(name string, f reflect.StructField, v reflect.Value) bool {
	code, words := fieldRules(f.Tag).violation(v)
	if code != "" {
		b.faults.Add(name, code, "%s", words)
		b.setDefault(f, v)
	}
	return code == ""
}

// setDefault gives a parameter the value that it has when absent.
func (b *binder) setDefault(f reflect.StructField, v reflect.Value) {
	v.SetZero()
	if n, err := strconv.ParseInt(f.Tag.Get("default"), 10, 64); err == nil && v.Kind() == reflect.Int {
		v.SetInt(n)
	} else if v.Kind() == reflect.String && f.Type.Kind() == reflect.String {
		v.SetString(f.Tag.Get("default"))
	}
}

// readBody reads an ordinary JSON body into a struct, or a pointer to one.
func readBody(w http.ResponseWriter, r *http.Request, into reflect.Value, hold func(n int) error) error {
	body, arrived := limitBody(w, r, maxBody, bodyTimeout)
	text, err := io.ReadAll(&reservingReader{Reader: body, reserve: hold})
	if err != nil {
		return err
	}
	arrived()
	if err := keyedRequestFrom(r.Context()).setContent(text, nil, hold); err != nil {
		return err
	}
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
	return decodeJSON(text, into)
}

// limitBody limits a body in size and time. The caller calls arrived once it has read the whole
// body; the rest of an unread body gets no more time.
func limitBody(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) (body io.Reader, arrived func()) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(within)) // the server has its own limit, too
	return http.MaxBytesReader(w, bodyErrorReader{&deadlineExtender{ReadCloser: r.Body, control: c, timeout: within}}, most), func() { _ = c.SetReadDeadline(time.Time{}) }
}

// deadlineExtender extends the deadlines while a body keeps arriving fast enough.
type deadlineExtender struct {
	io.ReadCloser
	control  *http.ResponseController
	timeout  time.Duration
	received int
}

func (s *deadlineExtender) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.received += n; s.received >= minBodyRate*int(s.timeout/time.Second) && err == nil {
		s.received = 0
		_ = s.control.SetReadDeadline(time.Now().Add(s.timeout))
		_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout + responseTimeout))
	}
	return n, err
}

// requireJSON returns a 415 problem unless the body is declared as plain JSON.
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

// bodyErrorReader reports an incomplete body as the client's error.
type bodyErrorReader struct{ io.ReadCloser }

func (b bodyErrorReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = newProblem(http.StatusRequestTimeout, "body_too_slow", "The request's body did not arrive in time.")
	case web.IsAuthError(err):
	case err != nil && err != io.EOF: //nolint:errorlint // what io.Reader promises
		err = fault.Wrap(err, fault.Invalid, "invalid_json", "The request's body ended early.")
	}
	return n, err
}

// cleanName makes a name from a client short and printable.
func cleanName(name string) string {
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
