// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
)

const (
	// maxResponse is the maximum stored length of a response body, in octets.
	maxResponse = 2 << 10
	// maxDrained is how many more octets of a response body are read to reuse the connection. After
	// a longer body the connection is closed.
	maxDrained = 64 << 10
	// maxHeader is the maximum length of a response header, in octets.
	maxHeader = 32 << 10
	// idleConnTimeout is how long an idle connection stays open.
	idleConnTimeout = 30 * time.Second
)

// httpResult is the result of a request.
type httpResult struct {
	startedAt, endedAt time.Time
	headers            string // JSON: what was sent
	code               int    // 0 for no response
	body               string
	errorCode          string // "" for an accepted delivery
	detail             string
	retryAfter         time.Duration // Retry-After
}

func (a *httpResult) accepted() bool { return a.errorCode == "" }

// client sends requests to one webhook.
type client struct {
	h         *Service
	target    target
	dialer    *egress.Dialer
	transport *http.Transport

	mu     sync.Mutex
	dialed map[netip.Addr]bool // remote addresses of the opened connections
}

func (h *Service) newClient(t target) *client {
	c := &client{h: h, target: t, dialer: h.dialer(t), dialed: map[netip.Addr]bool{}}
	c.transport = &http.Transport{ // no proxy, regardless of the environment
		DialContext:            c.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: h.o.Roots},
		MaxIdleConnsPerHost:    maxConcurrent,
		MaxConnsPerHost:        maxConcurrent + 2,
		IdleConnTimeout:        idleConnTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	return c
}

// close closes the idle connections. Those in use close with their requests.
func (c *client) close() {
	if c != nil {
		c.transport.CloseIdleConnections()
	}
}

func (c *client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := c.dialer.Dial(ctx, c.target.host, c.target.port)
	if err != nil {
		return nil, err
	}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		c.mu.Lock()
		c.dialed[a.AddrPort().Addr().Unmap()] = true
		c.mu.Unlock()
	}
	return conn, nil
}

// resolve looks up the host for an attempt. If the host lost an address that the client is
// connected to, resolve closes the idle connections, so that a receiver that moved gets no more
// requests at its old address.
func (c *client) resolve(ctx context.Context) error {
	addrs, err := c.dialer.Addresses(ctx, c.target.host)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.dialed {
		if !slices.Contains(addrs, a) {
			c.transport.CloseIdleConnections()
			clear(c.dialed)
			break
		}
	}
	return nil
}

// post makes one attempt, signed with the current time and limited by the timeout as a whole.
func (c *client) post(ctx context.Context, s secrets, kind string, id db.ID, body []byte) (a httpResult) {
	a.startedAt = c.h.o.Now()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.h.o.Timeout)
	defer cancel()
	defer func() { a.endedAt = a.startedAt.Add(time.Since(began)) }()
	header := Sign(s.Secret, s.activeOld(a.startedAt), id.String(), a.startedAt, body)
	header[HeaderEvent] = []string{kind}
	header["Content-Type"] = []string{"application/json"}
	header["User-Agent"] = []string{"Mailstead-Webhooks/" + c.h.o.Version}
	a.headers = encodeHeaders(header)
	// The nil value is not sent. It lets the transport repeat a request whose idle connection the
	// receiver closed at the same moment.
	header["Idempotency-Key"] = nil
	err := c.send(ctx, header, body, &a)
	if err != nil {
		a.errorCode, a.detail = classifyError(ctx, err, c.h.o.Timeout)
		return a
	}
	a.errorCode, a.detail = classifyStatus(a.code)
	return a
}

func (c *client) send(ctx context.Context, header http.Header, body []byte, a *httpResult) error {
	if c.target.forbidden {
		return egress.ErrNoAllowedAddr
	}
	if err := c.resolve(ctx); err != nil {
		return err
	}
	u, err := url.Parse(c.target.raw)
	if err != nil {
		return err
	}
	r := (&http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: header, ContentLength: int64(len(body)),
		Body:    io.NopCloser(bytes.NewReader(body)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(r) // which follows no redirects
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	a.code = resp.StatusCode
	if a.code == http.StatusTooManyRequests || a.code/100 == 5 {
		a.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), c.h.o.Now())
	}
	// Only the status counts: a broken response body is no reason to send an accepted delivery
	// again.
	begin := make([]byte, maxResponse)
	n, _ := io.ReadFull(resp.Body, begin)
	a.body = sanitize(begin[:n])
	if n == maxResponse {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
	}
	return nil
}

// encodeHeaders returns the sent headers as JSON.
func encodeHeaders(h http.Header) string {
	flat := make(map[string]string, len(h))
	for name, values := range h {
		flat[name] = strings.Join(values, ", ")
	}
	text, _ := json.Marshal(flat) // can't fail for strings
	return string(text)
}

// sanitize makes text from a receiver valid for any database and safe for any terminal.
func sanitize(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
}
