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

// pages makes the handler of both HTTP doors: the API, and the dashboard for
// everything else that is asked for by the service's own name.
func (s *Server) pages(door *api.API) (http.Handler, error) {
	roots, err := s.ownRoots()
	if err != nil {
		return nil, err
	}
	door.Checker = clientsetup.NewChecker(door.Setup, roots)
	if s.Config.Resolver != "" {
		door.Checker.Dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Config.Resolver)
		}}
	}
	calls := door.Handler()
	s.Dashboard = &dashboard.Dashboard{
		Users: s.Users, Audit: s.Audit, Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes, Outbox: s.Outbox, Folders: s.Folders, Suppressions: s.Suppressions,
		Templates: s.Templates, Operator: s.Operator, Stats: s.Stats, Events: s.Events, Webhooks: s.Webhooks, Inbound: s.Inbound, Captured: s.captured,
		Migrations: s.Migrations, Transfers: s.Transfers, Limits: s.Limits, Setup: door.Setup, Checker: door.Checker, Signer: door.Signer, Key: s.key,
		SuspendDomain: s.suspendDomain, Health: s.health, Host: s.Config.Host, Postmaster: s.Config.Postmaster, Base: s.baseURL(), Dev: s.Config.Dev, Version: Version, Log: s.Log, Now: time.Now,
		Reference: door.Document(),
	}
	pages, err := s.Dashboard.Handler()
	if err != nil {
		return nil, err
	}
	return s.certs.Challenge(s.encryptedOnly(door, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if domain, ok := policyOf(r); ok {
			s.policies(domain, w, r)
			return
		}
		name, _, _ := strings.Cut(r.Host, ":")
		if door.Takes(r) || !s.Config.Dev && !strings.EqualFold(name, s.Config.Host) {
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
		return s.Config.roots()
	}
	text, err := os.ReadFile(cert.CAFile(s.data.path))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots, nil
}

// offerSetup makes a link for the first user while there is none.
func (s *Server) offerSetup(ctx context.Context) error {
	if err := s.Accounts.HaveOperators(ctx); err != nil {
		return err
	}
	any, err := s.Users.Any(ctx)
	if err != nil || any {
		return err
	}
	token, err := s.Users.NewSetup(ctx)
	s.SetupURL = s.baseURL() + "/join/" + token
	return err
}
