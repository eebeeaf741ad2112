// SPDX-License-Identifier: Apache-2.0

// Package servertest starts the whole service for tests: the same wiring as
// in production, on free ports of loopback, with the sandbox's demonstration
// account, domain and mailboxes.
package servertest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/credential/credentialtest"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailauth/mailauthtest"
	"github.com/mailstead/mailstead/internal/server"
)

// Server is a running service with helpers for tests.
type Server struct {
	*server.Server
	t    testing.TB
	stop func() error
}

// Stop stops the service before the test's end.
func (s *Server) Stop() error { return s.stop() }

// Each runs f against a fresh service on each engine.
func Each(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) {
		f(t, Start(t, Database(url)))
	})
}

// Option changes the configuration before the start.
type Option func(*server.Config)

// Database makes the service use the database of a URL from dbtest.
func Database(url string) Option {
	return func(c *server.Config) {
		if strings.HasPrefix(url, "postgres") {
			c.Database = url
		}
	}
}

// Data makes the service use a data folder that outlives it.
func Data(dir string) Option { return func(c *server.Config) { c.Data = dir } }

// ProxyFrom makes every connection from a network begin with the PROXY protocol. Tests use it to
// connect from addresses outside.
func ProxyFrom(network string) Option {
	return func(c *server.Config) { c.ProxyFrom = []string{network} }
}

// Clock sets the clock for the service's limits.
func Clock(now func() time.Time) Option { return func(c *server.Config) { c.Clock = now } }

// OperatorAddress is the operator's address, at another host, in a service with ServeMode.
const OperatorAddress = "operator@operators.example"

// ServeMode starts the service as `mailstead serve` does, instead of the sandbox: Dev is nil. It
// uses the DNS server resolver and the certificate pair (CERTIFICATE.pem,KEY.pem), trusts authority
// (a PEM file), and may connect to loopback.
func ServeMode(host, resolver, pair, authority string) Option {
	return func(c *server.Config) {
		c.Dev, c.Host, c.Postmaster = false, host, OperatorAddress
		c.Resolver, c.ResolverFor, c.TLS, c.TrustRoots = resolver, []string{"test=" + resolver}, pair, authority
		c.WebhookAllow, c.AllowPrivate = []string{"127.0.0.0/8"}, []string{"127.0.0.0/8"}
	}
}

// Hostname gives the sandbox a host name outside its zone, and the DNS server that resolves it.
func Hostname(host, resolver string) Option {
	return func(c *server.Config) { c.Host, c.Resolver = host, resolver }
}

// SmartHost configures a smart host that can't be reached.
func SmartHost() Option {
	return func(c *server.Config) { c.Relay = "smtp://relay.invalid:587" }
}

// MigrationWait sets the delay before the first retry of a migration's source.
func MigrationWait(d time.Duration) Option { return func(c *server.Config) { c.MigrationWait = d } }

// Start starts a service and stops it at the end of the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	c := server.DevConfig(t.TempDir())
	c.PortBase, c.FirstDomainCheck = server.AnyPort, 0 // a domain stays pending until a test checks it
	c.DatabaseConnections = db.MinConns                // PostgreSQL starts a process for each
	c.PasswordCost, c.GenerateKey = credentialtest.Cost, mailauthtest.GenerateKey
	for _, o := range options {
		o(&c)
	}
	s, err := server.Start(t.Context(), c, Log(t))
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(s.Shutdown)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := stop(); err != nil {
			t.Errorf("shutting down: %v", err)
		}
	})
	return &Server{s, t, stop}
}

// Log returns a logger that writes warnings to the test's log.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// testWriter writes to the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// Addr returns a listener's address: http, smtp, submission, submissions, imap, imaps.
func (s *Server) Addr(listener string) string {
	return fmt.Sprintf("127.0.0.1:%d", s.Dev.Ports[listener])
}

// TLS returns the configuration for a client that trusts the service's certificate authority.
func (s *Server) TLS() *tls.Config {
	s.t.Helper()
	return tlsConfig(s.t, s.Dev.CACert)
}

func tlsConfig(t testing.TB, authority string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// SoakSize returns ordinary, or long when MAILSTEAD_SOAK is set (by `make soak`), where a test may
// take hours.
func SoakSize(ordinary, long int) int {
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		return long
	}
	return ordinary
}

// Response is a response of the API.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Decode decodes the response's JSON into v.
func (a Response) Decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("%v in %s", err, a.Body)
	}
}

// API calls the API as the demonstration account. body is sent as JSON unless
// it is nil or a string.
func (s *Server) API(method, path string, body any) Response {
	s.t.Helper()
	return s.APIWithKey(s.Dev.APIKey, method, path, body)
}

// APIWithKey calls the API with another key; "" means no key.
func (s *Server) APIWithKey(key, method, path string, body any) Response {
	s.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.Dev.BaseURL+"/api/v1"+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return Response{resp.StatusCode, resp.Header, text}
}
