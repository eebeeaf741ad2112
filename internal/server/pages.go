// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/dashboard"
)

// httpHandler makes the handler of both HTTP doors: the API, and the dashboard for
// everything else that is asked for by the service's own name.
func (s *Server) httpHandler(door *api.API) (http.Handler, error) {
	roots, err := s.ownRoots()
	if err != nil {
		return nil, err
	}
	door.SetupChecker = clientsetup.NewChecker(door.ClientSetup, roots)
	if s.Config.Resolver != "" {
		door.SetupChecker.Dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Config.Resolver)
		}}
	}
	calls := door.Handler()
	s.Dashboard = &dashboard.Dashboard{
		Users: s.Users, Audit: s.Audit, Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes, Outbox: s.Outbox, Folders: s.Folders, Suppressions: s.Suppressions,
		Templates: s.Templates, QueueAdmin: s.Operator, Stats: s.Stats, Events: s.Events, Webhooks: s.Webhooks, Inbound: s.Inbound, SandboxOutbox: s.capture,
		Migrations: s.Migrations, MailIO: s.Transfers, Limits: s.Limits, ClientSetup: door.ClientSetup, SetupChecker: door.SetupChecker, ProfileSigner: door.ProfileSigner, SigningKey: s.key,
		SuspendDomain: s.suspendDomain, Health: s.health, Host: s.Config.Host, Postmaster: s.Config.Postmaster, BaseURL: s.baseURL(), Dev: s.Config.Dev, Version: Version, Log: s.Log, Now: time.Now,
		OpenAPIDocument: door.Document(),
	}
	pages, err := s.Dashboard.Handler()
	if err != nil {
		return nil, err
	}
	return s.certs.HTTPChallengeHandler(s.requireTLS(door, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if domain, ok := stsPolicyDomain(r); ok {
			s.serveSTSPolicy(domain, w, r)
			return
		}
		name, _, _ := strings.Cut(r.Host, ":")
		if door.Matches(r) || !s.Config.Dev && !strings.EqualFold(name, s.Config.Host) {
			calls.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}))), nil
}

// health is how this node is.
func (s *Server) health() dashboard.Health {
	return dashboard.Health{Engine: s.DB.Engine().String(), Node: s.Config.Node, Queue: s.Queue.Stats()}
}

// ownRoots are who has issued the certificates of our doors as mail clients of
// the sandbox know them; elsewhere who everybody trusts, and --trust-roots.
func (s *Server) ownRoots() (*x509.CertPool, error) {
	if !s.Config.Dev {
		return s.Config.trustedRoots()
	}
	text, err := os.ReadFile(cert.CAFile(s.data.path))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots, nil
}

// createSetupLink makes a link for the first user while there is none.
func (s *Server) createSetupLink(ctx context.Context) error {
	if err := s.Accounts.EnsureOperators(ctx); err != nil {
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
