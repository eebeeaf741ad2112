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
	allow, err := s.Config.privateNetworks()
	if err != nil {
		return err
	}
	roots, err := s.Config.trustedRoots()
	if err != nil {
		return err
	}
	smart, err := s.Config.smartHost()
	if err != nil {
		return err
	}
	s.sts = route.NewSTSResolver(route.STSOptions{
		DB: s.DB, DNS: s.resolver, Roots: roots, AllowNets: allow, Port: uint16(s.Config.STSPolicyPort), Now: time.Now, Log: s.Log,
	})
	s.router = &route.Router{
		DNS: s.resolver, HostName: s.Config.Host, OwnAddrs: s.ownAddrs(), AllowNets: allow, Port: uint16(s.Config.SMTPPort), IsClaimed: s.isHosted,
		STS: s.sts, Roots: roots, SmartHost: smart,
	}
	s.smtpPool = smtpclient.NewPool(smtpclient.PoolLimits{MaxPerHost: s.Config.MaxConnections, MaxMessages: s.Config.MaxMessages})
	agent := relay.New(relay.Options{
		Router: s.router, Pool: s.smtpPool, LocalName: s.Config.Host, Now: time.Now, Log: s.Log,
		MaxConnsPerDestination: s.Config.MaxConnections, MaxConnsPerHost: s.Config.MaxConnections, MaxRatePerHost: s.Config.MaxRate,
	})
	s.remoteAgent, s.forgetFailures = agent, agent.ForgetFailures
	return nil
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
