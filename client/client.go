// SPDX-License-Identifier: Apache-2.0

// Package client speaks to a Mailstead service: domains, mailboxes, sending,
// templates, suppressions, events, and the queue of an operator. It needs
// nothing but the standard library.
//
//	c, err := client.New("https://mail.example.com", os.Getenv("MAILSTEAD_API_KEY"))
//	…
//	sent, err := c.Send(ctx, &client.Send{
//		FromEmail: "you@example.com", To: []string{"bob@example.org"}, Subject: "Your order", Text: "Thank you!",
//	})
//
// There is a method for each operation of the API, of the same name: the
// service's /api/v1/openapi.json and this package describe the same thing.
// Lists have a second method, without the List, that walks through all pages.
//
// # Errors
//
// What the service refuses is a *[Problem], found by errors.As, with a stable
// code, every field at fault, and the request's id. errors.Is tells the kinds:
// [ErrInvalid], [ErrNotFound], [ErrConflict] and so on. Any other error means
// that no answer came.
//
// # Trying again
//
// A request that met trouble on the way, a 5xx or a 429 is made again after a
// growing wait, up to [WithAttempts] times, or when the service says so
// (Retry-After), but only where a repetition does no harm: GET, PUT and
// DELETE, requests that were certainly not carried out, and sends. Each send
// carries an Idempotency-Key, so that it is accepted once however often it is
// repeated. All waits and requests end with the context.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls the API of one service with one key. It is safe for use by many
// goroutines; make one and keep it.
type Client struct {
	base     string // with /api/v1
	key      string
	agent    string
	http     *http.Client
	attempts int
	timeout  time.Duration
	wait     func(ctx context.Context, d time.Duration) error
}

// Option changes how a [Client] works.
type Option func(*Client)

// WithHTTPClient makes the requests through h, for a proxy, certificates of
// your own or a transport that observes. h itself is not changed; redirects
// are not followed, whatever it says.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) { c.http = h }
}

// WithUserAgent names your application, as in "shop/1.2", in front of this
// package's own name.
func WithUserAgent(name string) Option {
	return func(c *Client) { c.agent = name + " " + agent }
}

// WithAttempts says how often a request is made at most, the first time
// included; 1 turns repetition off. It is 4 otherwise.
func WithAttempts(n int) Option {
	return func(c *Client) { c.attempts = max(1, n) }
}

// WithTimeout bounds a single attempt, from the connection to the end of the
// answer; the context bounds the whole. It is 5 minutes otherwise, enough for
// 25 MB over a slow line; 0 is no bound.
func WithTimeout(d time.Duration) Option {
	return func(c *Client) { c.timeout = d }
}

// WithWait replaces the wait between two attempts, for tests. wait returns an
// error if no further attempt shall be made.
func WithWait(wait func(ctx context.Context, d time.Duration) error) Option {
	return func(c *Client) { c.wait = wait }
}

const (
	prefix          = "/api/v1"
	agent           = "mailstead-go"
	defaultAttempts = 4
	defaultTimeout  = 5 * time.Minute
)

// New returns a client of the service at baseURL, such as
// https://mail.example.com. It makes no request.
func New(baseURL, apiKey string, options ...Option) (*Client, error) {
	u, err := url.Parse(strings.TrimSuffix(baseURL, "/"))
	if err != nil {
		return nil, fmt.Errorf("mailstead: the base URL: %w", err)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("mailstead: the base URL must look like https://mail.example.com")
	}
	if apiKey == "" || strings.ContainsFunc(apiKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("mailstead: the API key is empty or has characters that no key has")
	}
	c := &Client{
		base: strings.TrimSuffix(u.String(), prefix) + prefix, key: apiKey, agent: agent,
		attempts: defaultAttempts, timeout: defaultTimeout, wait: sleep,
	}
	for _, o := range options {
		o(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: transport()}
	}
	own := *c.http
	// A redirect would make a GET of a POST, or carry the key elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// transport keeps enough connections for an application that sends a lot.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the application has replaced it, and knows why
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// CloseIdleConnections closes the connections that are kept for later
// requests. The client can be used further.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// sleep waits for a while or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
