// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/listener"
	"github.com/mailstead/mailstead/internal/web"
)

// openHTTPServers creates the HTTP servers, without and with TLS.
func (s *Server) openHTTPServers() error {
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
	for range 2 {
		s.httpServers = append(s.httpServers, &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
			TLSConfig: s.certs.TLSConfig("h2", "http/1.1"), ConnContext: listener.ConnContext,
		})
		s.httpServers[len(s.httpServers)-1].RegisterOnShutdown(calls.CloseStreams)
	}
	return nil
}

// httpHandler returns the handler of both HTTP servers.
func (s *Server) httpHandler(calls *api.API) (http.Handler, error) {
	callHandler := calls.Handler()
	s.Dashboard = &dashboard.Dashboard{
		Services: calls.Services, Users: s.Users, Inbound: s.Inbound, SigningKey: s.key,
		Health: s.health, Host: s.Config.Host, Postmaster: s.Config.Postmaster, Dev: s.Config.Dev, Now: time.Now,
		OpenAPIDocument: calls.Document(),
	}
	pages, err := s.Dashboard.Handler()
	if err != nil {
		return nil, err
	}
	return s.certs.HTTPChallengeHandler(&web.Site{
		Services: calls.Services, API: calls, APIHandler: callHandler, Dashboard: pages, Host: s.Config.Host, Sandbox: s.Config.Dev,
	}), nil
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

// newSetupChecker returns the checker of the settings for mail clients. It uses the service's
// resolver.
func (s *Server) newSetupChecker(setup *clientsetup.Service) (*clientsetup.EndpointChecker, error) {
	roots, err := s.ownRoots()
	var resolver *net.Resolver
	if s.Config.Resolver != "" {
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Config.Resolver)
		}}
	}
	return clientsetup.NewChecker(setup, roots, resolver), err
}

// health returns the state of this node.
func (s *Server) health() dashboard.Health {
	return dashboard.Health{Engine: s.DB.Engine().String(), Node: s.Config.Node, Queue: s.Queue.Stats()}
}

// ownRoots returns the certificate authorities for the service's own certificates: in the sandbox
// its own, else the system's and those of --trust-roots.
func (s *Server) ownRoots() (*x509.CertPool, error) {
	if !s.Config.Dev {
		return s.Config.trustedRoots()
	}
	roots := x509.NewCertPool()
	return roots, addRoots(roots, "the sandbox's certificate", cert.CAFile(s.data.Path))
}

// createSetupLink creates a sign-up link for the first user, if there is no user yet.
func (s *Server) createSetupLink(ctx context.Context) error {
	if err := s.Accounts.EnsureOperatorAccount(ctx); err != nil {
		return err
	}
	any, err := s.Users.HasUsers(ctx)
	if err != nil || any {
		return err
	}
	token, err := s.Users.CreateSetupLink(ctx)
	s.SetupURL = s.baseURL() + "/join/" + token
	return err
}
