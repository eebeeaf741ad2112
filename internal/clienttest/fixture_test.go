// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// waits records how long a client would have waited between attempts.
type waits struct {
	mu  sync.Mutex
	all []time.Duration
}

func (w *waits) wait(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, d)
	return ctx.Err()
}

func (w *waits) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// path is the connection between a client and a service, which may fail: trouble receives every
// request, may respond instead of the service, and reports whether the service's response is lost.
type path struct {
	http.Transport
	mu      sync.Mutex
	seen    []*http.Request
	good    []*http.Request // requests with a successful response
	trouble func(n int, r *http.Request) (instead *http.Response, lost bool, err error)
}

var errBroken = errors.New("the line broke")

func (p *path) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.seen = append(p.seen, r)
	n := len(p.seen)
	p.mu.Unlock()
	lost := false
	if p.trouble != nil {
		var instead *http.Response
		var err error
		if instead, lost, err = p.trouble(n, r); instead != nil || err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return instead, err
		}
	}
	resp, err := p.Transport.RoundTrip(r)
	if lost && err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errBroken
	}
	if err == nil && resp.StatusCode < 300 {
		p.mu.Lock()
		p.good = append(p.good, r)
		p.mu.Unlock()
	}
	return resp, err
}

func (p *path) answered() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.good
}

func (p *path) requests() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// to returns a client of a running service, over its own path, that never sleeps.
func to(t testing.TB, s *servertest.Server, key string, options ...client.Option) (*client.Client, *path, *waits) {
	t.Helper()
	p, w := &path{Transport: http.Transport{ExpectContinueTimeout: time.Minute}}, &waits{}
	options = append([]client.Option{client.WithHTTPClient(&http.Client{Transport: p}), client.WithWait(w.wait)}, options...)
	c, err := client.New(s.Dev.BaseURL, key, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.CloseIdleConnections)
	return c, p, w
}

// refused fails the test unless err is a problem with this status and code, and exactly these
// faults, each as "field code".
func refused(t testing.TB, what string, err error, status int, code string, faults ...string) {
	t.Helper()
	var p *client.Problem
	if !errors.As(err, &p) {
		t.Errorf("%s: %v is no problem", what, err)
		return
	}
	var got []string
	for _, e := range p.Errors {
		got = append(got, e.Field+" "+e.Code)
	}
	if p.Status != status || p.Code != code || !slices.Equal(got, faults) || p.RequestID == "" || p.Detail == "" {
		t.Errorf("%s: got %d %s %q, want %d %s %q", what, p.Status, p.Code, got, status, code, faults)
	}
}

const nobody = "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21" // an id that doesn't exist

// fixture is a running service and one of its customers.
type fixture struct {
	*testing.T
	s      *servertest.Server
	c      *client.Client
	domain string // verified
	boxes  []string
	path   *path // from c to s
	wake   *notify.Subscription
}

// newFixture returns a customer of a running service.
func newFixture(t *testing.T, s *servertest.Server) *fixture {
	t.Helper()
	c, p, _ := to(t, s, s.Dev.APIKey)
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	h := &fixture{T: t, s: s, c: c, domain: s.Dev.Domain.ID.String(), path: p, wake: s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})}
	t.Cleanup(h.wake.Close)
	for _, m := range s.Dev.Mailboxes {
		h.boxes = append(h.boxes, m.ID.String())
	}
	return h
}

// want fails the test on an error.
func (h *fixture) want(what string, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
}

// collect returns a whole list, which must have no errors.
func collect[T any](h *fixture, all iter.Seq2[T, error]) (list []T) {
	h.Helper()
	for item, err := range all {
		h.want("walking", err)
		list = append(list, item)
	}
	return list
}

// await gets a message until f returns true.
func (h *fixture) await(id string, f func(m *client.Message) bool) *client.Message {
	h.Helper()
	for {
		m, err := h.c.GetMessage(h.Context(), id)
		h.want("showing a message", err)
		if f(m) {
			return m
		}
		select {
		case <-h.wake.C:
		case <-h.Context().Done():
			h.Fatalf("it stays %s", raw(h.T, m))
		}
	}
}

func settled(m *client.Message) bool { return m.Status.Final() }

// TestMain checks for leaked goroutines.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
