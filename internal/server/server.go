// SPDX-License-Identifier: Apache-2.0

// Package server wires the service together, and does nothing else. Start opens the packages from
// the lowest layer up to the listeners, and shows how they depend on each other.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/demo"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/fulltext"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/inbound/dsn"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/listener"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/retention"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/smtpd"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Server is a running service. Its packages' services are exported for tests and for the
// demonstration data of dev.
type Server struct {
	Config Config
	Log    *slog.Logger
	Dev    *demo.Info // content of dev.json; nil for serve
	// SetupURL is the one-time sign-up link for the first user; "" when there is a user.
	SetupURL string

	DB            *db.DB
	Hub           *notify.Hub
	Events        *event.Log
	Blobs         *blob.Store
	Accounts      *account.Accounts
	Audit         *audit.Log
	Users         *user.Users
	Domains       *domain.Domains
	Logins        *ratelimit.LoginLimiter
	Mailboxes     *mailbox.Mailboxes
	Folders       *folder.Folders
	Searcher      *search.Searcher
	SearchIndex   *fulltext.Index
	Queue         *queue.Queue
	Operator      *admin.Queue
	Outbox        *outbound.Outbox
	Inbound       *inbound.Service
	Notifications *dsn.Sender
	Filter        *spam.Filter
	Suppressions  *suppression.List
	Limits        *quota.Limiter
	Templates     *template.Templates
	Threads       *thread.Threads
	Keys          *idempotency.Keys
	Stats         *stat.Stats
	Retention     *retention.Pruner
	Webhooks      *webhook.Service
	Migrations    *migration.Service
	Transfers     *mailio.Service
	Dashboard     *dashboard.Dashboard

	data           *datadir.Dir
	key            *secret.Key
	node           *lease.Node
	dnsServer      *dns.Server // of the sandbox zone; nil for serve
	resolver       *dns.Resolver
	certs          *cert.Source
	remoteAgent    queue.Agent
	forgetFailures func()         // of remoteAgent; nil in the sandbox
	capture        *relay.Sandbox // nil for serve
	simulator      *relay.Simulator
	smtpPool       *smtpclient.Pool   // for outside mail; nil if the sandbox captures it
	router         *route.Router      // as smtpPool
	sts            *route.STSResolver // as smtpPool
	listeners      *listeners
	httpServers    []*http.Server
	httpConns      *ratelimit.ConnLimiter // of both HTTP servers
	smtpServers    []*smtpd.Server
	imapServer     *imapd.Server
	imapSessions   *imapd.Sessions

	drainTasks taskGroup // queue, webhooks and migrations; they end together with the listeners
	tasks      taskGroup // other background tasks
	leaseTasks taskGroup // ends after everything that needs the node
	failed     chan error
}

// Start starts the service. When it returns, all listeners are open. ctx only bounds the start.
func Start(ctx context.Context, c Config, log *slog.Logger) (*Server, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Postmaster == "" {
		return nil, errNoPostmaster
	}
	s := &Server{Config: c, Log: slog.New(db.CollapseOutages(log.Handler())), failed: make(chan error, 1)}
	for _, d := range []*taskGroup{&s.drainTasks, &s.tasks, &s.leaseTasks} {
		d.init(s)
	}
	for _, layer := range []func(context.Context) error{
		s.openState, s.openDNS, s.openServices, s.openServers, s.startTasks, s.serve,
	} {
		if err := layer(ctx); err != nil {
			return nil, errors.Join(err, s.Shutdown())
		}
	}
	return s, nil
}

// startTasks starts the background tasks.
func (s *Server) startTasks(context.Context) error {
	s.tasks.run(func(ctx context.Context) error { // before any task signals another
		return s.Hub.Listen(ctx, s.DB, s.Log, s.invalidate, s.Mailboxes.InvalidateAll)
	})
	s.tasks.run(s.Domains.Run)
	s.tasks.run(func(ctx context.Context) error { return s.Events.RunSequencer(ctx, s.Log) })
	s.tasks.run(s.Stats.Run)
	s.tasks.run(func(ctx context.Context) error {
		return s.Mailboxes.RunMaintenance(ctx, s.logFailure("purging mailboxes"))
	})
	s.tasks.run(func(ctx context.Context) error {
		return s.Users.RunFailedSignInFlusher(ctx, s.logFailure("noting failed sign-ins"))
	})
	s.tasks.run(func(ctx context.Context) error { return s.Mailboxes.RunFlush(ctx, s.logFailure("noting sign-ins")) })
	s.tasks.run(func(ctx context.Context) error { return s.Logins.Run(ctx, s.logFailure("noting networks of log-ins")) })
	s.tasks.run(s.Folders.Run)
	s.tasks.run(s.Folders.RunUsageRecount)
	s.tasks.run(fulltext.NewIndexer(s.SearchIndex, s.Folders).Run)
	s.drainTasks.run(s.Queue.Run)
	s.drainTasks.run(s.Webhooks.Run)
	s.drainTasks.run(s.Migrations.Run)
	if s.sts != nil {
		s.tasks.run(s.sts.Run)
	}
	s.tasks.run(s.Notifications.Run)
	s.tasks.run(s.Inbound.RunQuotaWarnings)
	s.tasks.run(s.Filter.Builtin.Bayes.Run)
	s.tasks.run(func(ctx context.Context) error { return s.Outbox.Index.Run(ctx, s.Log) })
	s.tasks.run(func(ctx context.Context) error { return s.Keys.Run(ctx, s.Log) })
	s.tasks.run(func(ctx context.Context) error { return s.Limits.Run(ctx, s.Log) })
	s.tasks.run(s.simulator.Run)
	s.tasks.run(s.Retention.Run)
	s.tasks.run(func(ctx context.Context) error { return s.Blobs.RunSweep(ctx, s.logFailure("sweeping files")) })
	s.tasks.run(s.imapSessions.Run)
	return nil
}

// serve starts the servers and, in dev, creates the demonstration data.
func (s *Server) serve(ctx context.Context) error {
	proxies, err := parsePrefixes("--proxy-from", s.Config.ProxyFrom)
	if err != nil {
		return err
	}
	for name, serve := range map[string]func(net.Listener) error{
		"http": func(l net.Listener) error { return s.httpServers[0].Serve(listener.WithLimit(l, s.httpConns, s.Log)) },
		"https": func(l net.Listener) error {
			return s.httpServers[1].ServeTLS(listener.WithLimit(l, s.httpConns, s.Log), "", "")
		},
		"smtp": s.smtpServers[0].Serve, "submission": s.smtpServers[1].Serve, "submissions": s.smtpServers[2].Serve,
		"imap": s.imapServer.Serve, "imaps": s.imapServer.ServeTLS,
	} {
		l := listener.WithPROXY(s.listeners.byName[name], proxies)
		s.listeners.serving.Go(func() {
			if err := serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.fail(fmt.Errorf("the %s listener: %w", name, err))
			}
		})
	}
	if err := s.certs.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if s.Config.Dev {
		return s.seedDemo(ctx)
	}
	if err := s.createSetupLink(ctx); err != nil {
		return err
	}
	s.Log.Info("ready", "host", s.Config.Host, "node", s.Config.Node, "database", s.DB.Engine().String())
	return nil
}

// Version is the service's version; set by main.
var Version = "development"

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// logFailure returns a function that logs the error of a background task, which retries by itself.
func (s *Server) logFailure(what string) func(error) {
	return func(err error) { s.Log.Error(what+" failed", "error", err) }
}
