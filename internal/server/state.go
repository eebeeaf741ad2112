// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/event"
)

// openState opens what is kept: the folder, the key, the database.
func (s *Server) openState(ctx context.Context) (err error) {
	if s.data, err = openData(s.Config.Data); err != nil {
		return err
	}
	if s.doors, err = s.Config.listen(); err != nil {
		return err
	}
	if s.key, err = s.data.key(s.Config.SecretKey); err != nil {
		return err
	}
	if s.DB, err = db.Open(ctx, db.Options{URL: s.Config.databaseURL(), Log: s.Log, Lease: s.Config.Lease, MaxWait: s.Config.DatabaseWait}); err != nil {
		return err
	}
	if err = s.DB.SameKey(ctx, s.key.Fingerprint()); err != nil {
		return err
	}
	if s.node, err = s.DB.Join(ctx, s.Config.Node, s.data.holder); err != nil {
		return err
	}
	s.lease.run(func(ctx context.Context) error { return s.node.Keep(ctx) })
	files, err := blob.OpenFolder(ctx, s.DB, s.Config.Blobs, s.key.Fingerprint())
	if err != nil {
		return err
	}
	if err := files.Ours(); err != nil {
		s.report("sweeping files")(err)
	}
	s.Blobs = &blob.Store{DB: s.DB, Files: files, Now: time.Now}
	s.Events = &event.Log{DB: s.DB, Node: s.node, Hub: s.Hub, Now: time.Now}
	return nil
}

// openDNS makes the resolver; in dev with the sandbox zone, which answers with
// the records that the domains here ask for.
func (s *Server) openDNS(context.Context) (err error) {
	c := dns.Config{Server: s.Config.Resolver, TrustAD: s.Config.TrustResolver}
	if c.Zones, err = s.Config.zones(); err != nil {
		return err
	}
	if s.Config.Dev {
		s.zone, err = dns.Listen(dns.ServerConfig{Addr: s.Config.address("dns"), Source: func(ctx context.Context, name string) (dns.Answer, error) {
			if domains := s.published.Load(); domains != nil {
				return domains.Records(ctx, name)
			}
			return dns.Answer{}, dns.ErrDrop // asked again, the rooms will be open
		}})
		if err != nil {
			return fmt.Errorf("opening the dns port: %w", err)
		}
		for _, reserved := range dns.SandboxZones() {
			c.Zones[reserved] = s.zone.Addr()
		}
	}
	s.resolver, err = dns.New(c)
	return err
}
