// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sender is an endpoint that accepts messages.
type sender struct {
	path   string
	wrap   func(message string) string // wraps the output of letterWith in a request
	prefix string                      // of the reported fields
}

func senders(t *testing.T, s *servertest.Server) []sender {
	t.Helper()
	a := s.API("POST", "/templates", object{"name": "x", "subject": "x", "text": "x"})
	status(t, "a template", a, 201)
	template := fmt.Sprintf(`"template_id":%q`, into(t, a)["id"])
	return []sender{
		{"/outbound/send", func(m string) string { return m }, ""},
		{"/outbound/send-template", func(m string) string { return strings.Replace(m, `"subject":"x","text":"x"`, template, 1) }, ""},
		{"/outbound/batch", func(m string) string { return `{"messages":[` + m + `]}` }, "messages[0]."},
	}
}

// mailWith returns a message with additional members.
func mailWith(members string) string {
	return `{"from_email":"alice@demo.test","to":["bob@demo.test"],"subject":"x","text":"x"` + members + `}`
}

// For any invalid body, every endpoint that accepts messages gives a clear error and sends nothing.
func TestHostileBodies(t *testing.T) {
	const deep = 10 << 20
	file := func(content string) string {
		return mailWith(`,"attachments":[{"filename":"x","content":` + content + `}]`)
	}
	refusals := map[string]struct {
		message string
		status  int
		code    string
		field   string // within the message; "" if no field is reported
		fault   string
	}{
		"brackets, 10 MB deep":         {mailWith(`,"metadata":` + strings.Repeat("[", deep)), 400, "invalid_json", "", ""},
		"braces, 10 MB deep":           {mailWith(`,"metadata":` + strings.Repeat(`{"a":`, deep/5)), 400, "invalid_json", "", ""},
		"deep where a text should be":  {mailWith(`,"from_name":` + strings.Repeat("[", deep)), 400, "invalid_json", "", ""},
		"deep where content should be": {file(strings.Repeat("[", deep)), 400, "invalid_json", "", ""},
		"deep from the start":          {strings.Repeat("[", deep), 400, "invalid_json", "", ""},
		"a name of 10 MB":              {mailWith(`,"` + strings.Repeat("x", deep) + `":1`), 400, "invalid_json", "", ""},
		"a number of 10 MB":            {mailWith(`,"x":` + strings.Repeat("9", deep)), 400, "invalid_json", "", ""},
		"base64 of other letters":      {file(`"a_-="`), 422, "validation_failed", "attachments[0].content", "invalid_base64"},
		"base64 without padding":       {file(`"aGk"`), 422, "validation_failed", "attachments[0].content", "invalid_base64"},
		"base64 behind padding":        {file(`"aGk=aGk="`), 422, "validation_failed", "attachments[0].content", "invalid_base64"},
		"base64 with blanks":           {file(`"aG k="`), 422, "validation_failed", "attachments[0].content", "invalid_base64"},
		"base64 with an escape":        {file(`"\u20acGk="`), 422, "validation_failed", "attachments[0].content", "invalid_base64"},
		"an unknown field":             {mailWith(`,"Text":"x"`), 422, "validation_failed", "Text", "unknown_field"},
		"an unknown field of a file":   {mailWith(`,"attachments":[{"filename":"x","content":"aGk=","url":"file:///etc/passwd"}]`), 422, "validation_failed", "attachments[0].url", "unknown_field"},
		"a field twice":                {mailWith(`,"from_email":"y"`), 400, "invalid_json", "", ""},
		"a field twice, escaped":       {mailWith(`,"from_\u0065mail":"y"`), 400, "invalid_json", "", ""},
		"a header twice":               {mailWith(`,"headers":{"X-A":"1","X-A":"2"}`), 400, "invalid_json", "", ""},
		"metadata twice":               {mailWith(`,"metadata":{"a":{"b":1,"b":2}}`), 400, "invalid_json", "", ""},
		"content twice":                {mailWith(`,"attachments":[{"filename":"x","content":"aGk=","content":"aGk="}]`), 400, "invalid_json", "", ""},
		"no UTF-8":                     {mailWith(`,"from_name":"` + "\xff" + `"`), 400, "invalid_json", "", ""},
		"no UTF-8 in a name":           {mailWith(`,"` + "\xc3\x28" + `":1`), 400, "invalid_json", "", ""},
		"UTF-8 that is too long":       {mailWith(`,"from_name":"` + "\xc0\xaf" + `"`), 400, "invalid_json", "", ""},
		"half a surrogate":             {mailWith(`,"from_name":"\ud800"`), 400, "invalid_json", "", ""},
		"UTF-16":                       {"\xff\xfe{\x00}\x00", 400, "invalid_json", "", ""},
		"a byte order mark":            {"\ufeff" + mailWith(""), 400, "invalid_json", "", ""},
		"a bare NUL":                   {mailWith(`,"from_name":"` + "\x00" + `"`), 400, "invalid_json", "", ""},
		"a bare line break":            {mailWith(`,"from_name":"` + "\n" + `"`), 400, "invalid_json", "", ""},
		"a comment":                    {mailWith(` /* x */`), 400, "invalid_json", "", ""},
		"a comma too many":             {mailWith(`,`), 400, "invalid_json", "", ""},
		"NaN":                          {mailWith(`,"metadata":{"a":NaN}`), 400, "invalid_json", "", ""},
	}
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		for _, to := range senders(t, s) {
			path := to.path
			for what, c := range refusals {
				var faults []string
				if c.field != "" {
					faults = []string{to.prefix + c.field + " " + c.fault}
				}
				refused(t, path+": "+what, s.API("POST", path, to.wrap(c.message)), c.status, c.code, faults...)
			}
			good := to.wrap(mailWith(""))
			for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=utf-16"} {
				refused(t, path+": "+kind, call(t, s, "POST", "/api/v1"+path, map[string]string{"Content-Type": kind}, newReader(good)), 415, "unsupported_media_type")
			}
			for _, n := range []int{0, 1, len(good) / 2, len(good) - 1} {
				refused(t, fmt.Sprint(path, " cut off at ", n), cutOff(t, s, path, good[:n], len(good)), 400, "invalid_json")
				refused(t, fmt.Sprint(path, " ended at ", n), s.API("POST", path, good[:n]), 400, "invalid_json")
			}
		}
		if n := messages(t, s); n != 0 {
			t.Errorf("%d messages were taken", n)
		}
	})
}

// cutOff sends the beginning of a body with a declared size, then closes the connection.
func cutOff(t *testing.T, s *servertest.Server, path, body string, size int) servertest.Response {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr("http"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // only read
	_, err = fmt.Fprintf(conn, "POST /api/v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, s.Dev.APIKey, size, body)
	if err == nil {
		err = conn.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return answerOf(t, resp)
}

// Every endpoint rejects bodies of 200 MB, over either protocol, without holding them in memory.
func TestHugeBodies(t *testing.T) {
	needtest.Full(t, "200 MB")
	const huge = 200 << 20
	s := servertest.Start(t)
	two := &http.Transport{TLSClientConfig: s.TLS(), ForceAttemptHTTP2: true}
	defer two.CloseIdleConnections()
	for _, to := range senders(t, s) {
		path := to.path
		before, after, _ := strings.Cut(to.wrap("|"), "|")
		for what, c := range map[string]struct{ open, shut string }{
			"blanks":        {"", ""},
			"a text":        {before + `{"text":"`, `"}` + after},
			"a file":        {before + `{"attachments":[{"filename":"x","content":"`, `"}]}` + after},
			"unknown":       {before + `{"x":"`, `"}` + after},
			"numbers":       {before + `{"to":[`, `0]}` + after},
			"many files":    {before + `{"attachments":[`, `{}]}` + after},
			"a long escape": {before + `{"text":"\`, `"}` + after},
		} {
			filler := map[string]string{"blanks": " ", "numbers": "1,", "many files": `{"content":""},`, "a long escape": `n\`}[what]
			if filler == "" {
				filler = "AAAA"
			}
			w := newHeap()
			body := func() io.Reader {
				return io.MultiReader(strings.NewReader(c.open), &filling{text: strings.Repeat(filler, 32<<10/len(filler)), left: huge, look: w.look}, strings.NewReader(c.shut))
			}
			want := "body_too_large"
			if filler == "1," || filler == `{"content":""},` {
				want = "too_many_values"
			}
			refused(t, path+" "+what, call(t, s, "POST", "/api/v1"+path, asJSON, body()), 413, want)
			if what == "a file" {
				a := callBy(t, two, fmt.Sprintf("https://localhost:%d/api/v1%s", s.Dev.Ports["https"], path), s.Dev.APIKey, body())
				refused(t, path+" "+what+" by HTTP/2", a, 413, want)
			}
			// Everything but files is in memory, up to 24 MB, plus the buffer that it grew from.
			if grown := w.grown(); grown > 100<<20 {
				t.Errorf("%s %s: the heap grew by %d MB", path, what, grown>>20)
			}
		}
	}
}

func callBy(t *testing.T, by http.RoundTripper, url, key string, body io.Reader) servertest.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: by}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf(t, resp)
}

func answerOf(t *testing.T, resp *http.Response) servertest.Response {
	t.Helper()
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Response{Status: resp.StatusCode, Header: resp.Header, Body: text}
}

// filling repeats a text.
type filling struct {
	text string
	at   int
	left int
	look func()
}

func (f *filling) Read(p []byte) (int, error) {
	if f.left <= 0 && f.at == 0 {
		return 0, io.EOF
	}
	f.look()
	n := copy(p, f.text[f.at:])
	f.at = (f.at + n) % len(f.text)
	f.left -= n
	return n, nil
}

// heap samples the size of the heap.
type heap struct {
	sample      []metrics.Sample
	start, peak uint64
}

func newHeap() *heap {
	runtime.GC()
	h := &heap{sample: []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}}
	metrics.Read(h.sample)
	h.start = h.sample[0].Value.Uint64()
	return h
}

func (h *heap) look() {
	metrics.Read(h.sample)
	h.peak = max(h.peak, h.sample[0].Value.Uint64())
}

func (h *heap) grown() int64 {
	h.look()
	return int64(h.peak) - int64(h.start)
}

// Large attachments in transit are stored in the data directory: the system's temporary directory
// may be in memory, or missing.
func TestAttachmentsWaitBesideTheData(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		t.Setenv("TMPDIR", "/nowhere")
		large := strings.Repeat("QUJD", 50_000)
		status(t, "a large attachment", s.API("POST", "/outbound/send", mail(object{"attachments": []object{{"filename": "a", "content": large}}})), 202)
	})
}
