// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// says returns a response in place of the service's.
func says(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("busy"))}
}

func hello() *client.Send {
	return &client.Send{FromEmail: "alice@demo.test", To: []string{"delivered@simulator.test"}, Subject: "Hi", Text: "Hello"}
}

// Which requests are repeated after which errors.
func TestWhatIsRepeated(t *testing.T) {
	s := servertest.Start(t)
	dial := &net.OpError{Op: "dial", Err: errBroken}
	get := func(ctx context.Context, c *client.Client) error {
		_, err := c.GetDomain(ctx, s.Dev.Domain.ID.String())
		return err
	}
	send := func(ctx context.Context, c *client.Client) error { _, err := c.Send(ctx, hello()); return err }
	created := 0
	create := func(ctx context.Context, c *client.Client) error {
		created++
		_, err := c.CreateDomain(ctx, fmt.Sprintf("new%d.test", created))
		return err
	}
	for what, k := range map[string]struct {
		do       func(ctx context.Context, c *client.Client) error
		status   int // in place of the service's, unless err is set
		err      error
		requests int
	}{
		"a GET, 503":                  {get, 503, nil, 2},
		"a GET, 500":                  {get, 500, nil, 2},
		"a GET, 429":                  {get, 429, nil, 2},
		"a GET, 501":                  {get, 501, nil, 1},
		"a GET, 404":                  {get, 404, nil, 1},
		"a GET, a redirect":           {get, 307, nil, 1},
		"a GET, a broken line":        {get, 0, errBroken, 2},
		"a send, 502":                 {send, 502, nil, 2},
		"a send, a broken line":       {send, 0, errBroken, 2},
		"a send, 422":                 {send, 422, nil, 1},
		"a new domain, 503":           {create, 503, nil, 2},
		"a new domain, a broken line": {create, 0, errBroken, 2},
		"a new domain, 429":           {create, 429, nil, 2},
		"a new domain, nobody listened": {func(ctx context.Context, c *client.Client) error {
			_, err := c.CreateDomain(ctx, "dial.test")
			return err
		}, 0, dial, 2},
	} {
		c, p, w := to(t, s, s.Dev.APIKey)
		p.trouble = func(n int, _ *http.Request) (*http.Response, bool, error) {
			if n > 1 {
				return nil, false, nil
			}
			if k.err != nil {
				return nil, false, k.err
			}
			return says(k.status), false, nil
		}
		err := k.do(t.Context(), c)
		if n := len(p.requests()); n != k.requests || w.count() != n-1 || (err == nil) != (n == 2) {
			t.Errorf("%s: %d requests, %v", what, n, err)
		}
		if k.err != nil && k.requests == 1 && !errors.Is(err, k.err) {
			t.Errorf("%s: %v hides %v", what, err, k.err)
		}
		var problem *client.Problem
		if errors.As(err, &problem) && (problem.Status != k.status || problem.Code != "" || problem.Detail == "") {
			t.Errorf("%s: %+v", what, problem)
		}
	}
}

// The waits grow, Retry-After is honored, and no wait is unlimited.
func TestWaits(t *testing.T) {
	s := servertest.Start(t)
	retryAfter := ""
	busy := func(int, *http.Request) (*http.Response, bool, error) {
		if retryAfter != "" {
			return says(503, "Retry-After", retryAfter, "Date", "Thu, 01 Jan 2026 12:00:00 GMT"), false, nil
		}
		return says(503), false, nil
	}
	c, p, w := to(t, s, s.Dev.APIKey, client.WithAttempts(6))
	p.trouble = busy
	if _, err := c.ListDomains(t.Context(), client.Paging{}); !errors.Is(err, client.ErrUnavailable) || len(p.requests()) != 6 {
		t.Errorf("%d requests, %v", len(p.requests()), err)
	}
	for i, d := range w.all {
		most := 500 * time.Millisecond << i
		if d < most/2 || d > most {
			t.Errorf("wait %d was %v", i+1, d)
		}
	}
	for text, want := range map[string]time.Duration{
		"7": 7 * time.Second, "Thu, 01 Jan 2026 12:00:09 GMT": 9 * time.Second, "Thu, 01 Jan 2026 11:00:00 GMT": 0, "soon": 0, "-5": 0, "3600": time.Hour,
	} {
		retryAfter = text
		c, p, w := to(t, s, s.Dev.APIKey, client.WithAttempts(2))
		p.trouble = busy
		_, err := c.ListDomains(t.Context(), client.Paging{})
		var problem *client.Problem
		if !errors.As(err, &problem) || problem.RetryAfter != want {
			t.Errorf("Retry-After: %s: %v", text, err)
		}
		switch {
		case want > time.Minute && w.count() != 0:
			t.Errorf("Retry-After: %s: waited %v", text, w.all)
		case want <= time.Minute && (w.count() != 1 || w.all[0] < want || w.all[0] > want+time.Second):
			t.Errorf("Retry-After: %s: waited %v", text, w.all)
		}
	}
	// Not beyond the caller's deadline either.
	retryAfter = "30"
	c, p, w = to(t, s, s.Dev.APIKey)
	p.trouble = busy
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.ListDomains(ctx, client.Paging{}); !errors.Is(err, client.ErrUnavailable) || w.count() != 0 {
		t.Errorf("waited %v: %v", w.all, err)
	}
	// A caller that cancels during a wait gets both errors.
	c, p, _ = to(t, s, s.Dev.APIKey, client.WithWait(func(context.Context, time.Duration) error { return context.Canceled }))
	p.trouble = busy
	if _, err := c.ListDomains(t.Context(), client.Paging{}); !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// A DELETE whose response was lost has succeeded: a missing object is no error then.
func TestDeleteWhoseAnswerWasLost(t *testing.T) {
	s := servertest.Start(t)
	c, p, _ := to(t, s, s.Dev.APIKey)
	k, err := c.CreateAPIKey(t.Context(), client.NewAPIKey{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	p.trouble = func(n int, _ *http.Request) (*http.Response, bool, error) { return nil, n == 2, nil }
	if err := c.DeleteAPIKey(t.Context(), k.ID); err != nil || len(p.requests()) != 3 {
		t.Errorf("%d requests, %v", len(p.requests()), err)
	}
	refused(t, "when gone", c.DeleteAPIKey(t.Context(), k.ID), 404, "not_found")
}

// reader counts its calls.
type reader struct {
	io.Reader
	closed int
}

func (r *reader) Close() error {
	r.closed++
	return nil
}

// A send is repeated with the same key and the same bytes, if they can be read again.
func TestAttachmentsAreReadAgain(t *testing.T) {
	s := servertest.Start(t)
	big := bytes.Repeat([]byte("attachment "), 100_000)
	var opened []*reader
	for what, k := range map[string]struct {
		file     client.Attachment
		requests int
	}{
		"a reader":       {client.Attachment{Content: io.MultiReader(bytes.NewReader(big))}, 1},
		"one that seeks": {client.Attachment{Content: bytes.NewReader(big)}, 2},
		"one that is opened": {client.Attachment{Open: func() (io.ReadCloser, error) {
			opened = append(opened, &reader{Reader: bytes.NewReader(big)})
			return opened[len(opened)-1], nil
		}}, 2},
		"a file": {client.File("fixture_test.go"), 2},
	} {
		c, p, _ := to(t, s, s.Dev.APIKey)
		var bodies [][]byte
		p.trouble = func(n int, r *http.Request) (*http.Response, bool, error) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			bodies = append(bodies, text)
			r.Body = io.NopCloser(bytes.NewReader(text))
			return nil, n == 1, nil
		}
		m := hello()
		k.file.Filename = "a.bin"
		m.Attachments = []client.Attachment{k.file, client.Bytes("b.bin", []byte("b"))}
		_, err := c.Send(t.Context(), m)
		seen := p.requests()
		if len(seen) != k.requests || (err == nil) != (k.requests == 2) {
			t.Errorf("%s: %d requests, %v", what, len(seen), err)
		}
		if len(seen) == 2 && (!bytes.Equal(bodies[0], bodies[1]) || seen[0].Header.Get("Idempotency-Key") != seen[1].Header.Get("Idempotency-Key") ||
			len(seen[0].Header.Get("Idempotency-Key")) < 20) {
			t.Errorf("%s: the second request is another", what)
		}
	}
	for _, r := range opened {
		if r.closed != 1 {
			t.Errorf("closed %d times", r.closed)
		}
	}
	if len(opened) != 2 {
		t.Errorf("opened %d times", len(opened))
	}
	// A reader that was not read can be sent later, even if it can't be read twice.
	c, p, _ := to(t, s, s.Dev.APIKey)
	p.trouble = func(n int, _ *http.Request) (*http.Response, bool, error) {
		if n == 1 {
			return says(503), false, nil
		}
		return nil, false, nil
	}
	m := hello()
	m.Attachments = []client.Attachment{{Filename: "a", Content: io.MultiReader(bytes.NewReader(big))}}
	if _, err := c.Send(t.Context(), m); err != nil || len(p.requests()) != 2 {
		t.Errorf("%d requests, %v", len(p.requests()), err)
	}
}

// An unreadable attachment is the caller's error: nothing is sent or retried.
func TestAttachmentsThatFail(t *testing.T) {
	s := servertest.Start(t)
	for what, k := range map[string]struct {
		file     client.Attachment
		requests int
	}{
		"one that breaks": {client.Attachment{Content: io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), broken{})}, 1},
		"one that breaks and seeks": {client.Attachment{Content: struct {
			io.Reader
			io.Seeker
		}{broken{}, bytes.NewReader(nil)}}, 1},
		"one that doesn't open": {client.Attachment{Open: func() (io.ReadCloser, error) { return nil, errBroken }}, 1},
		"none":                  {client.Attachment{}, 0},
	} {
		c, p, _ := to(t, s, s.Dev.APIKey)
		m := hello()
		m.Attachments = []client.Attachment{k.file}
		_, err := c.Send(t.Context(), m)
		if len(p.requests()) != k.requests || err == nil || k.requests > 0 && !errors.Is(err, errBroken) {
			t.Errorf("%s: %d requests, %v", what, len(p.requests()), err)
		}
		page, err := c.ListMessages(t.Context(), client.MessageFilter{}, client.Paging{})
		if err != nil || len(page.Data) != 0 {
			t.Errorf("%s: %v, %v", what, page, err)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// Send no longer uses the readers once it has returned, for every kind and time of response.
func TestAttachmentsAreLeftAlone(t *testing.T) {
	s := servertest.Start(t)
	c, _, _ := to(t, s, "ms_none")
	for range 20 {
		// The race detector notices if a reader is used after the response.
		file := bytes.NewReader(bytes.Repeat([]byte("x"), 4<<20))
		m := hello()
		m.Attachments = []client.Attachment{{Filename: "x", Content: file}}
		if _, err := c.Send(t.Context(), m); !errors.Is(err, client.ErrUnknownKey) {
			t.Fatal(err)
		}
		file.Reset(nil)
	}
}

// A caller that cancels while a reader blocks returns once that ends.
func TestSendGivenUp(t *testing.T) {
	s := servertest.Start(t)
	c, p, _ := to(t, s, s.Dev.APIKey)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	go func() {
		_, _ = w.Write(make([]byte, 100_000))
		cancel()
	}()
	m := hello()
	m.Attachments = []client.Attachment{{Filename: "x", Content: r}}
	if _, err := c.Send(ctx, m); !errors.Is(err, context.Canceled) || len(p.requests()) != 1 {
		t.Errorf("got %v", err)
	}
}

// Each attempt has its own time limit.
func TestTimeout(t *testing.T) {
	s := servertest.Start(t)
	c, p, _ := to(t, s, s.Dev.APIKey, client.WithTimeout(time.Millisecond))
	p.trouble = func(n int, r *http.Request) (*http.Response, bool, error) {
		<-r.Context().Done()
		return nil, false, r.Context().Err()
	}
	if _, err := c.ListDomains(t.Context(), client.Paging{}); !errors.Is(err, context.DeadlineExceeded) || len(p.requests()) != 4 {
		t.Errorf("%d requests, %v", len(p.requests()), err)
	}
}

// Responses are limited in size, and must be of the expected type.
func TestStrangeAnswers(t *testing.T) {
	s := servertest.Start(t)
	for what, k := range map[string]struct {
		body string
		says string
	}{
		"no JSON":            {"hello", "can't be read"},
		"another type":       {`{"data":5}`, "can't be read"},
		"nothing":            {"", "can't be read"},
		"a list without end": {`{"data":[],"has_more":true,"next_cursor":null}`, "without a cursor"},
		"a great deal":       {"[" + strings.Repeat(" ", 65<<20), "more than"},
	} {
		c, p, _ := to(t, s, s.Dev.APIKey)
		p.trouble = func(int, *http.Request) (*http.Response, bool, error) {
			r := says(200)
			r.Body = io.NopCloser(strings.NewReader(k.body))
			return r, false, nil
		}
		n := 0
		for _, err := range c.Domains(t.Context()) {
			if n++; err == nil || !strings.Contains(err.Error(), k.says) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 || len(p.requests()) != 1 {
			t.Errorf("%s: %d results of %d requests", what, n, len(p.requests()))
		}
	}
}

func TestNew(t *testing.T) {
	for _, url := range []string{"", "mail.example.com", "ftp://x", "https://", "https://x/?a=b", "https://u:p@x", "https://x/#a", "http://[::1"} {
		if _, err := client.New(url, "ms_x"); err == nil {
			t.Errorf("%q is taken for a base URL", url)
		}
	}
	for _, key := range []string{"", "ms_x\n", "ms_ x", "ms_ü"} {
		if _, err := client.New("https://x", key); err == nil || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q is taken for a key: %v", key, err)
		}
	}
	s := servertest.Start(t)
	for _, suffix := range []string{"", "/", "/api/v1", "/api/v1/"} {
		p := &path{}
		c, err := client.New(s.Dev.BaseURL+suffix, s.Dev.APIKey, client.WithHTTPClient(&http.Client{Transport: p}), client.WithUserAgent("shop/1.2"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ListDomains(t.Context(), client.Paging{}); err != nil {
			t.Errorf("%q: %v", suffix, err)
		}
		if got := p.requests()[0].Header.Get("User-Agent"); got != "shop/1.2 mailstead-go" {
			t.Errorf("the user agent is %s", got)
		}
		p.CloseIdleConnections()
	}
	c, p, _ := to(t, s, s.Dev.APIKey)
	for _, id := range []string{"", ".", ".."} {
		if err := c.DeleteDomain(t.Context(), id); err == nil || len(p.requests()) != 0 {
			t.Errorf("%q is taken for an id: %v", id, err)
		}
	}
	refused(t, "a strange id", c.DeleteDomain(t.Context(), "a b?c#d%"), 404, "not_found")
}
