// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

// openCouriers makes who carries mail outside: to the hosts that MX records
// name, to the smart host, or, in dev without one, into the sandbox's outbox.
func (s *Server) openCouriers() error {
	s.simulator = relay.NewSimulator(relay.SimulatorOptions{DB: s.DB, Queue: s.Queue, Now: time.Now, Log: s.Log})
	if s.Config.Dev {
		s.captured = &relay.Capture{DB: s.DB, Blobs: s.Blobs, LocalName: s.Config.Host, Log: s.Log}
		if !s.Config.relayed() {
			s.outside = s.captured
			return nil
		}
	}
	allow, err := s.Config.private()
	if err != nil {
		return err
	}
	roots, err := s.Config.roots()
	if err != nil {
		return err
	}
	s.sts = route.NewSTS(route.STSOptions{
		DB: s.DB, DNS: s.resolver, Roots: roots, Allow: allow, Port: uint16(s.Config.PolicyPort), Now: time.Now, Log: s.Log,
	})
	s.router = &route.Router{
		DNS: s.resolver, Name: s.Config.Host, Own: s.addresses(), Allow: allow, Port: uint16(s.Config.SMTPPort), Held: s.held,
		STS: s.sts, Roots: roots,
	}
	if smart, err := s.Config.relay(); err != nil {
		return err
	} else if smart != nil {
		if s.router.Smart, err = route.ParseSmartHost(smart); err != nil {
			return err
		}
	}
	s.pool = smtpclient.NewPool(smtpclient.PoolLimits{MaxPerHost: s.Config.MaxConnections, MaxMessages: s.Config.MaxMessages})
	s.outside = relay.New(relay.Options{
		Router: s.router, Pool: s.pool, LocalName: s.Config.Host, Now: time.Now, Log: s.Log,
		Limit: s.Config.MaxConnections, PerHost: s.Config.MaxConnections, Rate: s.Config.MaxRate,
	})
	return nil
}

// choose says who carries mail for a destination: into the mailboxes here
// while its MX is seen to be ours, else out by SMTP; a domain that is moving in
// loses nothing that way. Addresses of the simulator are for that. What is for the
// service's own names, such as its postmaster, stays here unless their MX lead on.
func (s *Server) choose(ctx context.Context, destination string) (queue.Courier, error) {
	if destination == suppression.SimulatorDomain {
		return s.simulator, nil
	}
	h, ok, err := s.Domains.Hosted(ctx, destination)
	if err != nil {
		return nil, err
	}
	if ok && h.Receives || !ok && s.router != nil && s.Inbound.Ours(destination) && s.router.Loops(ctx, destination) {
		return s.Inbound, nil
	}
	return s.outside, nil
}

func (s *Server) held(ctx context.Context, name string) (bool, error) {
	_, ok, err := s.Domains.Hosted(ctx, name)
	return ok, err
}
