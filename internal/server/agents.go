// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

// openRemoteAgent creates the delivery agent for outside mail: to the MX hosts, to the smart host or,
// in dev without one, into the sandbox's outbox.
func (s *Server) openRemoteAgent() error {
	if s.Config.Dev {
		s.capture = &relay.Sandbox{DB: s.DB, Blobs: s.Blobs, LocalName: s.Config.Host, Log: s.Log}
		if !s.Config.usesSmartHost() {
			s.remoteAgent = s.capture
			return nil
		}
	}
	r, err := s.Config.newRouter(s.resolver)
	if err != nil {
		return err
	}
	s.sts = route.NewSTSResolver(route.STSOptions{
		DB: s.DB, DNS: s.resolver, Roots: r.Roots, AllowNets: r.AllowNets, Port: uint16(s.Config.STSPolicyPort), Now: time.Now, Log: s.Log,
	})
	r.OwnAddrs, r.IsClaimed, r.STS = s.Config.bindAddrs(), s.isHosted, s.sts
	s.router = r
	s.smtpPool = smtpclient.NewPool(smtpclient.PoolLimits{MaxPerHost: s.Config.MaxConnections, MaxMessages: s.Config.MaxMessages})
	agent := relay.New(relay.Options{
		Router: s.router, Pool: s.smtpPool, LocalName: s.Config.Host, Now: time.Now, Log: s.Log,
		MaxConnsPerDestination: s.Config.MaxConnections, MaxConnsPerHost: s.Config.MaxConnections, MaxRatePerHost: s.Config.MaxRate,
	})
	s.remoteAgent, s.forgetFailures = agent, agent.ForgetFailures
	return nil
}

// newRouter returns a router with the settings for other mail hosts.
func (c *Config) newRouter(resolver *dns.Resolver) (*route.Router, error) {
	allow, err := c.privateNetworks()
	if err != nil {
		return nil, err
	}
	roots, err := c.trustedRoots()
	if err != nil {
		return nil, err
	}
	smart, err := c.smartHost()
	return &route.Router{DNS: resolver, HostName: c.Host, AllowNets: allow, Port: uint16(c.SMTPPort), Roots: roots, SmartHost: smart}, err
}

// chooseAgent returns the delivery agent for a destination.
//
// The queue gets this function before the local agent and the simulator exist: they record outcomes
// in the queue. It first calls it when it runs.
func (s *Server) chooseAgent(ctx context.Context, destination string) (queue.Agent, error) {
	if destination == suppression.SimulatorDomain {
		return s.simulator, nil
	}
	local, err := s.Inbound.IsLocal(ctx, destination)
	switch {
	case err != nil:
		return nil, err
	case local:
		return s.Inbound, nil
	}
	return s.remoteAgent, nil
}

func (s *Server) isHosted(ctx context.Context, name string) (bool, error) {
	_, ok, err := s.Domains.FindHosted(ctx, name)
	return ok, err
}
