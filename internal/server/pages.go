// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/web"
)

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

// newSetupChecker returns the checker of the settings for mail clients. It uses the service's
// resolver.
func (s *Server) newSetupChecker(setup *clientsetup.Service) (*clientsetup.Checker, error) {
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
