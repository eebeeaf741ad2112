// SPDX-License-Identifier: Apache-2.0

// Package client is a client for the API of Mailstead: domains, mailboxes, sending, templates,
// suppressions, events, and the operator's queue. It needs only the standard library.
//
//	c, err := client.New("https://mail.example.com", os.Getenv("MAILSTEAD_API_KEY"))
//	…
//	sent, err := c.Send(ctx, &client.Send{
//		FromEmail: "you@example.com", To: []string{"bob@example.org"}, Subject: "Your order", Text: "Thank you!",
//	})
//
// Each operation of the API has a method of the same name: the service's /api/v1/openapi.json and
// this package describe the same API. Lists have a second method, without the List, that iterates
// over all pages.
//
// # Errors
//
// If the service rejects a request, the error is a *[Problem]: use errors.As. It has a stable code,
// all invalid fields, and the request's id. errors.Is distinguishes the kinds: [ErrInvalid],
// [ErrNotFound], [ErrConflict] and so on. Any other error means that there was no response.
//
// # Retries
//
// The client repeats a request after a network error, a 5xx or a 429, up to [WithAttempts]
// attempts. It waits for a growing time, or as long as the service says (Retry-After). It does so
// only where that is safe: for GET, PUT, DELETE and POST, and for requests that were certainly not
// carried out. Each POST that changes something has an Idempotency-Key, so that it takes effect
// once however often it is repeated. The context ends all waits and requests.
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

// Client calls the API of one service with one key. It is safe for concurrent use; create one and
// reuse it.
type Client struct {
	base     string // includes /api/v1
	key      string
	agent    string
	http     *http.Client
	attempts int
	timeout  time.Duration
	wait     func(ctx context.Context, d time.Duration) error
}

// Option configures a [Client].
type Option func(*Client)

// WithHTTPClient makes requests with h, for a proxy, your own certificates or an instrumented
// transport. It doesn't change h, and never follows redirects.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) { c.http = h }
}

// WithUserAgent puts the name of your application, such as "shop/1.2", before this package's own
// name.
func WithUserAgent(name string) Option {
	return func(c *Client) { c.agent = name + " " + agent }
}

// WithAttempts sets the maximum number of attempts per request, including the first; 1 turns
// retries off. The default is 4.
func WithAttempts(n int) Option {
	return func(c *Client) { c.attempts = max(1, n) }
}

// WithTimeout limits a single attempt, from the connection to the end of the response; the context
// limits the whole call. The default is 5 minutes, enough for 25 MB over a slow connection; 0 means
// no limit.
func WithTimeout(d time.Duration) Option {
	return func(c *Client) { c.timeout = d }
}

// WithWait replaces the wait between two attempts, for tests. If wait returns an error, there is no
// further attempt.
func WithWait(wait func(ctx context.Context, d time.Duration) error) Option {
	return func(c *Client) { c.wait = wait }
}

const (
	prefix          = "/api/v1"
	agent           = "mailstead-go"
	defaultAttempts = 4
	defaultTimeout  = 5 * time.Minute
)

// New returns a client of the service at baseURL, such as https://mail.example.com. It makes no
// request.
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
	// A redirect would turn a POST into a GET, or send the key elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// transport returns a transport with enough idle connections for an application that sends a lot.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the application has replaced it for a reason
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// CloseIdleConnections closes idle connections. The client stays usable.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// sleep waits for a duration or until ctx ends.
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
