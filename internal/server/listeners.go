// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/listener"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/web"
)

// listeners holds the listening sockets. They are opened before anything else is started, so that
// a port in use is reported at once.
type listeners struct {
	byName  map[string]net.Listener
	serving sync.WaitGroup
}

func (c *Config) listen() (*listeners, error) {
	d := &listeners{byName: map[string]net.Listener{}}
	for name := range standardPorts {
		if name == "dns" {
			continue // the sandbox zone opens it, over UDP too
		}
		l, err := net.Listen("tcp", c.listenAddr(name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the %s port: %w", name, err), d.close())
		}
		d.byName[name] = l
	}
	return d, nil
}

func (d *listeners) close() error {
	var errs []error
	for _, l := range d.byName {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// port returns the actual port of a listener.
func (s *Server) port(name string) uint16 {
	if name == "dns" {
		if s.dnsServer == nil {
			return 0
		}
		return netip.MustParseAddrPort(s.dnsServer.Addr()).Port()
	}
	return s.listeners.byName[name].Addr().(*net.TCPAddr).AddrPort().Port()
}

// clientSetup returns the settings for mail clients. In dev these are for clients on this
// machine, which can't resolve the service's name.
func (s *Server) clientSetup() *clientsetup.Service {
	host := s.Config.Host
	if s.Config.Dev {
		host = "localhost"
	}
	return &clientsetup.Service{
		Host: host, IMAPS: s.port("imaps"), IMAP: s.port("imap"), Submissions: s.port("submissions"), Submission: s.port("submission"), BaseURL: s.baseURL(),
		Signer: func(ctx context.Context) (*tls.Certificate, error) {
			return s.certs.SigningCertificate(ctx, s.Config.Host)
		},
		Log: s.Log,
	}
}

// baseURL returns the service's HTTP URL: in dev without TLS on loopback, else HTTPS at its own
// name.
func (s *Server) baseURL() string {
	if s.Config.Dev {
		return fmt.Sprintf("http://127.0.0.1:%d", s.port("http"))
	}
	if port := s.port("https"); port != 443 {
		return fmt.Sprintf("https://%s:%d", s.Config.Host, port)
	}
	return "https://" + s.Config.Host
}

// connLimiter returns a limiter for the connections of one server.
func connLimiter(perNetwork int, exempt func(netip.Addr) bool) *ratelimit.ConnLimiter {
	return &ratelimit.ConnLimiter{Total: 20_000, PerNetwork: perNetwork, Exempt: exempt}
}

// openServers creates the servers; serve starts them.
func (s *Server) openServers(context.Context) error {
	if err := s.openCerts(); err != nil {
		return err
	}
	mx := smtpd.Server{Mode: smtpd.MX, Backend: &smtpd.InboundBackend{Inbound: s.Inbound}, GreetDelay: 100 * time.Millisecond, SkipGreetDelay: s.isExempt}
	mx.ClientLimiter = ratelimit.NewClientLimiter(s.Config.MXMessages, s.Config.MXUnknown, s.isExempt)
	submission := smtpd.Server{Mode: smtpd.Submission, Backend: &smtpd.SubmissionBackend{Outbox: s.Outbox}, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submissions := smtpd.Server{Mode: smtpd.Submissions, Backend: submission.Backend, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submission.Accounts, submissions.Accounts = s.Accounts, s.Accounts
	for _, server := range []*smtpd.Server{&mx, &submission, &submissions} {
		server.Host, server.TLS, server.ConnLimiter, server.Log = s.Config.Host, s.certs.TLSConfig(), connLimiter(100, s.isExempt), s.Log
		s.smtpServers = append(s.smtpServers, server)
	}
	s.imapServer = imapd.New(imapd.Options{ // mail clients open several connections, and an office may share one address
		Host: s.Config.Host, TLS: s.certs.TLSConfig(), Mailboxes: s.Mailboxes, Folders: s.Folders, Searcher: s.Searcher, Blobs: s.Blobs, ConnLimiter: connLimiter(1000, s.isExempt),
		Sessions: s.imapSessions, Log: s.Log, Now: time.Now, DisableUnauthenticate: s.Config.IMAPKeepLogin, OnJunk: s.Inbound.RecordJunked, OnCopy: s.Filter.Builtin.Bayes.Learn,
	})
	setup := s.clientSetup()
	checker, err := s.newSetupChecker(setup)
	if err != nil {
		return err
	}
	calls := &api.API{
		Services: web.Services{
			Accounts: s.Accounts, Audit: s.Audit, Domains: s.Domains, Mailboxes: s.Mailboxes, Folders: s.Folders, Searcher: s.Searcher, Outbox: s.Outbox, Events: s.Events,
			Suppressions: s.Suppressions, Templates: s.Templates, Webhooks: s.Webhooks, Migrations: s.Migrations, MailIO: s.Transfers, Stats: s.Stats, Limits: s.Limits, QueueAdmin: s.Operator,
			ClientSetup: setup, SetupChecker: checker, SandboxOutbox: s.capture, BaseURL: s.baseURL(), Version: Version, Log: s.Log,
		},
		IdempotencyKeys: s.Keys, Inbound: s.Inbound, Exempt: s.isExempt, SpoolDir: s.Config.Data,
	}
	handler, err := s.httpHandler(calls)
	if err != nil {
		return err
	}
	proxies, err := parsePrefixes("--http-proxy-from", s.Config.HTTPProxyFrom)
	if err != nil {
		return err
	}
	// An application, or a whole office, may use one address.
	s.httpConns = connLimiter(1000, func(from netip.Addr) bool { return s.isExempt(from) || listener.Proxies(proxies).Contain(from) })
	handler = listener.WithForwardedFor(listener.LimitRequests(handler, connLimiter(1000, s.isExempt)), proxies)
	for range 2 { // without and with TLS
		s.httpServers = append(s.httpServers, &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
			TLSConfig: s.certs.TLSConfig("h2", "http/1.1"), ConnContext: listener.ConnContext,
		})
		s.httpServers[len(s.httpServers)-1].RegisterOnShutdown(calls.CloseStreams)
	}
	return nil
}
