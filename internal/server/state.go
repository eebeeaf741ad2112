// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/webhook"
)

// openState opens the persistent state: the data folder, the secret key, the database.
func (s *Server) openState(ctx context.Context) (err error) {
	if s.data, err = datadir.Open(s.Config.Data); err != nil {
		return err
	}
	if s.listeners, err = s.Config.listen(); err != nil {
		return err
	}
	if s.key, err = s.data.SecretKey(s.Config.SecretKey); err != nil {
		return err
	}
	if s.DB, err = db.Open(ctx, db.Options{URL: s.Config.databaseURL(), Log: s.Log, IdleTimeout: s.Config.Lease / 3, OutageWait: s.Config.DatabaseWait, MaxConns: s.Config.DatabaseConnections}); err != nil {
		return err
	}
	s.Hub = notify.NewHub(s.tasks.ctx, s.DB, s.Log)
	if err = s.DB.BindSecretKey(ctx, s.key.Fingerprint()); err != nil {
		return err
	}
	if s.node, err = lease.Join(ctx, s.DB, lease.Options{Name: s.Config.Node, Holder: s.data.Holder, Duration: s.Config.Lease, Log: s.Log}); err != nil {
		return err
	}
	s.leaseTasks.run(func(ctx context.Context) error { return s.node.MaintainLease(ctx) })
	files, err := blob.OpenDir(ctx, s.DB, s.Config.Blobs, s.key.Fingerprint())
	if err != nil {
		return err
	}
	if err := files.CheckOwner(); err != nil {
		s.logFailure("sweeping files")(err)
	}
	s.Blobs = &blob.Store{DB: s.DB, Files: files, Now: time.Now}
	s.Stats = stat.New(s.DB, s.Log)
	creator := webhook.NewDeliveryCreator(s.Hub, time.Now)
	content := &inbound.EventContent{Blobs: s.Blobs, Log: s.Log}
	s.Events = &event.Log{
		DB: s.DB, Node: s.node, Hub: s.Hub, Now: time.Now, LoadContent: content.Load, RemoveContent: inbound.RedactEvent,
		OnNumbering: []func(*db.Batch){creator.CreateDeliveries}, AfterNumbering: []func(){s.Stats.Wake, creator.WakeDeliveries},
	}
	return nil
}

// openDNS creates the resolver and, in dev, the server of the sandbox zone, which answers once
// there are Domains.
func (s *Server) openDNS(context.Context) (err error) {
	c := dns.Config{Server: s.Config.Resolver, TrustAD: s.Config.TrustResolver}
	if c.Zones, err = s.Config.resolverZones(); err != nil {
		return err
	}
	if s.Config.Dev {
		if s.dnsServer, err = dns.Listen(dns.ServerConfig{Addr: s.Config.listenAddr("dns")}); err != nil {
			return fmt.Errorf("opening the dns port: %w", err)
		}
		for _, reserved := range dns.SandboxZones() {
			c.Zones[reserved] = s.dnsServer.Addr()
		}
	}
	s.resolver, err = dns.New(c)
	return err
}
