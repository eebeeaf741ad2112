// SPDX-License-Identifier: Apache-2.0

// Package server is the wiring of the service and nothing else: Start reads
// from the ground floor to the doors, and shows who needs whom.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/retention"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/search"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
	"github.com/mailstead/mailstead/internal/throttle"
	"github.com/mailstead/mailstead/internal/transfer"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Server is a running service. Its rooms are there for tests and for the
// demonstration data of dev.
type Server struct {
	Config Config
	Log    *slog.Logger
	Dev    *Dev // what dev.json says; nil for serve
	// SetupURL is where the first user signs up, once; "" when there is one.
	SetupURL string

	DB           *db.DB
	Hub          *signal.Hub
	Events       *event.Log
	Blobs        *blob.Store
	Accounts     *account.Accounts
	Audit        *audit.Log
	Users        *user.Users
	Domains      *domain.Domains
	Logins       *throttle.LoginLimiter
	Mailboxes    *mailbox.Mailboxes
	Folders      *folder.Store
	Search       *search.Index
	Queue        *queue.Queue
	Operator     *queue.Operator
	Outbox       *outbound.Outbox
	Inbound      *inbound.Inbound
	Filter       *spam.Filter
	Suppressions *suppression.List
	Limits       *limit.Limits
	Templates    *template.Templates
	Threads      *thread.Threads
	Keys         *idempotency.Keys
	Stats        *stat.Stats
	Retention    *retention.Keeper
	Webhooks     *webhook.Hooks
	Migrations   *migration.Migrations
	Transfers    *transfer.Transfers
	Dashboard    *dashboard.Dashboard

	data        *dataFolder
	key         *secret.Key
	node        *db.Node
	zone        *dns.Server
	published   atomic.Pointer[domain.Domains] // what the zone answers from
	resolver    *dns.Resolver
	certs       *cert.Source
	outside     queue.Courier
	captured    *relay.Capture // nil for serve
	simulator   *relay.Simulator
	pool        *smtpclient.Pool // of outside; nil if that captures
	router      *route.Router    // the same
	sts         *route.STS       // the same
	doors       *doors
	http        []*http.Server
	httpProxies httpProxies
	smtp        []*smtpd.Server
	imap        *imapd.Server

	carrying duties // the queue, the webhooks and the migrations; end beside the doors
	duties   duties // what else runs in the background
	lease    duties // ends after everything that needs the node
	failed   chan error
}

// Start starts the service; when it returns, every door is open. ctx bounds
// the start alone.
func Start(ctx context.Context, c Config, log *slog.Logger) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Postmaster == "" {
		return nil, errNoPostmaster
	}
	s := &Server{Config: c, Log: slog.New(db.GatherOutages(log.Handler())), failed: make(chan error, 1), Hub: &signal.Hub{}}
	for _, d := range []*duties{&s.carrying, &s.duties, &s.lease} {
		d.init(s)
	}
	for _, floor := range []func(context.Context) error{
		s.openState, s.openDNS, s.openRooms, s.openDoors, s.startDuties, s.serve,
	} {
		if err := floor(ctx); err != nil {
			return nil, errors.Join(err, s.Shutdown())
		}
	}
	return s, nil
}

// startDuties starts what works in the background.
func (s *Server) startDuties(context.Context) error {
	s.listenToNodes() // before anybody wakes another
	s.duties.run(s.Domains.Run)
	s.duties.run(func(ctx context.Context) error { return s.Events.Number(ctx, s.Log) })
	s.duties.run(s.Stats.Run)
	s.duties.run(func(ctx context.Context) error { return s.Mailboxes.Run(ctx, s.report("purging mailboxes")) })
	s.duties.run(func(ctx context.Context) error { return s.Users.RunRefused(ctx, s.report("noting failed sign-ins")) })
	s.duties.run(func(ctx context.Context) error { return s.Mailboxes.RunNotes(ctx, s.report("noting sign-ins")) })
	s.duties.run(func(ctx context.Context) error { return s.Logins.Run(ctx, s.report("noting networks of log-ins")) })
	s.duties.run(s.Folders.Run)
	s.duties.run(s.Folders.RunRecount)
	s.duties.run(s.Search.Run)
	s.carrying.run(s.Queue.Run)
	s.carrying.run(s.Webhooks.Run)
	s.carrying.run(s.Migrations.Run)
	if s.sts != nil {
		s.duties.run(s.sts.Run)
	}
	s.duties.run(s.Inbound.RunNotices)
	s.duties.run(s.Inbound.RunWarnings)
	s.duties.run(s.Filter.Own.Bayes.Run)
	s.duties.run(func(ctx context.Context) error { return s.Outbox.RunIndex(ctx, s.Log) })
	s.duties.run(func(ctx context.Context) error { return s.Keys.Run(ctx, s.Log) })
	s.duties.run(func(ctx context.Context) error { return s.Limits.Run(ctx, s.Log) })
	s.duties.run(s.simulator.Run)
	s.duties.run(s.Retention.Run)
	s.duties.run(s.sweep)
	s.duties.run(s.endSuspended)
	return nil
}

// serve opens the doors, and in dev furnishes the house.
func (s *Server) serve(ctx context.Context) error {
	proxies, err := prefixes("--proxy-from", s.Config.ProxyFrom)
	if err != nil {
		return err
	}
	web := s.conns(1000) // of both: programs that send, and whole offices, may have one address
	web.Friend = func(from netip.Addr) bool { return s.friend(from) || s.httpProxies.trusts(from) }
	for name, serve := range map[string]func(net.Listener) error{
		"http":  func(l net.Listener) error { return s.http[0].Serve(&counted{l, web, s.Log}) },
		"https": func(l net.Listener) error { return s.http[1].ServeTLS(&counted{l, web, s.Log}, "", "") },
		"smtp":  s.smtp[0].Serve, "submission": s.smtp[1].Serve, "submissions": s.smtp[2].Serve,
		"imap": s.imap.Serve, "imaps": s.imap.ServeTLS,
	} {
		l := behind(s.doors.open[name], proxies)
		s.doors.serving.Go(func() {
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.fail(fmt.Errorf("the %s door: %w", name, err))
			}
		})
	}
	if err := s.certs.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if s.Config.Dev {
		return s.furnish(ctx)
	}
	if err := s.offerSetup(ctx); err != nil {
		return err
	}
	s.Log.Info("ready", "host", s.Config.Host, "node", s.Config.Node, "database", s.DB.Engine().String())
	return nil
}

// Version is what the service says of itself; set by main.
var Version = "development"

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// report logs what a background duty could not do; it tries again by itself.
func (s *Server) report(what string) func(error) {
	return func(err error) { s.Log.Error(what+" failed", "error", err) }
}
