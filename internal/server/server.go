// SPDX-License-Identifier: Apache-2.0

// Package server is the wiring of the service and nothing else: Start reads
// from the ground floor to the doors, and shows who needs whom.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/credential"
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
	Users        *user.Users
	Domains      *domain.Domains
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
	Dashboard    *dashboard.Dashboard

	data      *dataFolder
	key       *secret.Key
	node      *db.Node
	zone      *dns.Server
	published atomic.Pointer[domain.Domains] // what the zone answers from
	resolver  *dns.Resolver
	certs     *cert.Source
	outside   queue.Courier
	captured  *relay.Capture // nil for serve
	simulator *relay.Simulator
	pool      *smtpclient.Pool // of outside; nil if that captures
	sts       *route.STS       // the same
	doors     *doors
	http      []*http.Server
	smtp      []*smtpd.Server
	imap      *imapd.Server

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
	s := &Server{Config: c, Log: log, failed: make(chan error, 1), Hub: &signal.Hub{}}
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
	if s.DB, err = db.Open(ctx, db.Options{URL: s.Config.databaseURL(), Log: s.Log, Lease: s.Config.Lease}); err != nil {
		return err
	}
	if err = s.DB.SameKey(ctx, s.key.Fingerprint()); err != nil {
		return err
	}
	if s.node, err = s.DB.Join(ctx, s.Config.Node, s.data.holder); err != nil {
		return err
	}
	s.lease.run(func(ctx context.Context) error { return s.node.Keep(ctx) })
	files, err := blob.NewFolder(s.Config.Blobs)
	s.Blobs = &blob.Store{DB: s.DB, Files: files, Now: time.Now}
	s.Events = &event.Log{DB: s.DB, Node: s.node, Hub: s.Hub, Now: time.Now}
	return err
}

// openDNS makes the resolver; in dev with the sandbox zone, which answers with
// the records that the domains here ask for.
func (s *Server) openDNS(context.Context) (err error) {
	c := dns.Config{Server: s.Config.Resolver, TrustAD: s.Config.TrustResolver}
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
		c.Sandbox = s.zone.Addr()
	}
	s.resolver, err = dns.New(c)
	return err
}

// openRooms makes the rooms from the ground floor up, and sets what a room
// needs of one above it.
func (s *Server) openRooms(ctx context.Context) (err error) {
	s.Keys = idempotency.New(s.DB, time.Now)
	s.Accounts = account.New(s.DB, s.Hub, time.Now)
	s.Limits = &limit.Limits{DB: s.DB, Events: s.Events, Hub: s.Hub, Defaults: s.Config.limits(), Now: s.Config.clock()}
	s.Domains = domain.New(domain.Options{
		DB: s.DB, Events: s.Events, Hub: s.Hub, Key: s.key, Resolver: s.resolver, Host: s.Config.Host, Addrs: s.addresses(),
		Ports:   domain.Ports{IMAPS: s.port("imaps"), Submissions: s.port("submissions"), Submission: s.port("submission")},
		Refused: []string{"simulator.test"}, Now: time.Now, Log: s.Log,
	})
	s.published.Store(s.Domains)
	guesses, hasher := throttle.NewGuesses(), credential.NewHasher()
	guesses.Friend = s.friend
	s.Mailboxes = mailbox.Open(mailbox.Options{
		DB: s.DB, Hub: s.Hub, Events: s.Events, Accounts: s.Accounts, Hasher: hasher, Guesses: guesses, Now: time.Now,
		MaxQuotaMB: int(s.Config.MaxQuotaMB), Storage: s.Limits.Storage, Host: s.Config.Host, Operator: s.Config.Postmaster, Owned: s.Domains.Owned, Hosted: s.hosted,
	})
	s.Users = &user.Users{DB: s.DB, Key: s.key, Hasher: hasher, Guesses: guesses, Issuer: s.Config.Host, Now: time.Now}
	s.Domains.HasMailboxes = s.Mailboxes.Any
	s.Folders = folder.New(folder.Options{DB: s.DB, Blobs: s.Blobs, Events: s.Events, Hub: s.Hub, Now: time.Now, Log: s.Log})
	s.Mailboxes.Provision, s.Mailboxes.Empty = s.Folders.Provision, s.Folders.Empty
	if s.Search, err = search.Open(ctx, search.Options{Path: s.data.file("search.db"), Folders: s.Folders, Now: time.Now, Log: s.Log}); err != nil {
		return err
	}
	s.Folders.Narrow = s.Search.Narrow

	s.Templates = &template.Templates{DB: s.DB, Now: time.Now}
	s.Suppressions = &suppression.List{DB: s.DB, Key: s.key, Base: s.baseURL(), Now: time.Now}
	s.Threads = &thread.Threads{NewID: s.DB.NewID}
	s.Stats = &stat.Stats{DB: s.DB}
	s.Events.Follow = append(s.Events.Follow, s.Stats.Follow)
	s.Outbox = &outbound.Outbox{
		DB: s.DB, Node: s.node, Blobs: s.Blobs, Threads: s.Threads, Suppressions: s.Suppressions, Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes,
		Templates: s.Templates, Stats: s.Stats, Keys: s.Keys, Limits: s.Limits, Key: s.key, Host: s.Config.Host, Now: time.Now,
		Signing: make(chan struct{}, max(1, runtime.NumCPU()/2)), Spare: make(chan struct{}, runtime.NumCPU()/2),
	}
	s.Queue = queue.New(queue.Options{
		DB: s.DB, Node: s.node, Events: s.Events, Hub: s.Hub, Key: s.key, Suppressions: s.Suppressions, Now: time.Now, Log: s.Log,
		Drain:   s.Config.Drain,
		Prepare: s.Outbox.Prepare, Describe: s.Outbox.Describe, Choose: s.choose,
		Again: func() {
			if c, ok := s.outside.(*relay.Courier); ok {
				c.DialAgain()
			}
		},
	})
	s.Outbox.Queue = s.Queue
	s.Operator = &queue.Operator{
		DB: s.DB, Events: s.Events, Wake: s.Hub.Wake, Now: time.Now, Describe: s.Outbox.Describe, Letters: s.Outbox.Letters,
	}
	s.Threads.Sources = []thread.Source{s.Outbox, s.Folders}
	judge, err := s.judge()
	if err != nil {
		return err
	}
	if s.Filter, err = s.filter(); err != nil {
		return err
	}
	s.Inbound = inbound.New(inbound.Options{
		Host: s.Config.Host, Base: s.baseURL(), Key: s.key, Blobs: s.Blobs, Events: s.Events, Mailboxes: s.Mailboxes, Folders: s.Folders, Queue: s.Queue,
		Node: s.node, Hub: s.Hub, Outbox: s.Outbox, Threads: s.Threads, Now: time.Now, Log: s.Log,
		Domains: s.Domains, Judge: judge, Enforcement: domain.Enforcement(s.Config.DMARC), Forgiving: s.offline(), Filter: s.suspect,
	})
	s.Events.Content = s.Inbound.Content
	if err := s.openWebhooks(); err != nil {
		return err
	}
	if err := s.openMigrations(); err != nil {
		return err
	}
	s.Retention = s.retention()
	return s.openCouriers()
}

// hosted tells the mailboxes who holds a domain.
func (s *Server) hosted(ctx context.Context, name string) (domain, account db.ID, ok bool, err error) {
	h, ok, err := s.Domains.Hosted(ctx, name)
	return h.Domain, h.Account, ok, err
}

// friend reports whether limits per client network don't apply: dev treats
// loopback so.
func (s *Server) friend(from netip.Addr) bool { return s.Config.Dev && from.Unmap().IsLoopback() }

// addresses are where the service is reached, as far as it knows.
func (s *Server) addresses() []netip.Addr {
	bind, err := netip.ParseAddr(s.Config.Bind)
	if err != nil || bind.IsUnspecified() {
		return nil
	}
	return []netip.Addr{bind}
}

// openCerts makes the source of certificates. Names that mail clients and
// senders use for customers' domains may have one too.
func (s *Server) openCerts() (err error) {
	allow := func(ctx context.Context, name string) error {
		for _, prefix := range []string{"autoconfig.", "autodiscover.", "mta-sts."} {
			domain, ok := strings.CutPrefix(name, prefix)
			if !ok {
				continue
			}
			if _, ok, err := s.Domains.Hosted(ctx, domain); ok || err != nil {
				return err
			}
		}
		return errors.New("this name is not served here")
	}
	switch kind := s.Config.TLS; {
	case kind == "self-signed":
		s.certs, err = cert.SelfSigned(cert.Local{Dir: s.data.path, Host: s.Config.Host, Allow: allow})
	case kind == "acme":
		var roots *x509.CertPool
		if file := s.Config.ACMERoots; file != "" {
			pem, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("--acme-roots: %w", err)
			}
			if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(pem) {
				return errors.New("--acme-roots: the file holds no certificate")
			}
		}
		s.certs, err = cert.ACME(cert.Authority{
			Dir: s.data.file("acme"), Host: s.Config.Host, Email: s.Config.ACMEEmail, URL: s.Config.ACMEDirectory, Roots: roots,
			Bind: s.Config.Bind, HTTPPort: int(s.port("http")), HTTPSPort: int(s.port("https")), Allow: allow, Log: s.Log,
		})
	default:
		certFile, keyFile, ok := strings.Cut(kind, ",")
		if !ok {
			return errors.New(`--tls must be "acme", "self-signed", or CERTIFICATE.pem,KEY.pem`)
		}
		s.certs, err = cert.Files(cert.Given{Pairs: []cert.Pair{{Cert: certFile, Key: keyFile}}, Log: s.Log})
	}
	return err
}

// openDoors makes the doors; serve opens them.
func (s *Server) openDoors(context.Context) error {
	if err := s.openCerts(); err != nil {
		return err
	}
	conns := func() *throttle.Conns {
		return &throttle.Conns{Total: 20_000, PerNetwork: 100, Friend: s.friend}
	}
	mx := smtpd.Server{Mode: smtpd.MX, Receiver: &smtpd.Incoming{Inbound: s.Inbound}, GreetDelay: 100 * time.Millisecond, Friend: s.friend}
	mx.Strangers = throttle.NewStrangers(s.Config.MXMessages, s.Config.MXUnknown)
	mx.Strangers.Friend = s.friend
	submission := smtpd.Server{Mode: smtpd.Submission, Receiver: &smtpd.Outgoing{Outbox: s.Outbox}, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submissions := smtpd.Server{Mode: smtpd.Submissions, Receiver: submission.Receiver, Mailboxes: s.Mailboxes, Hub: s.Hub}
	submission.Accounts, submissions.Accounts = s.Accounts, s.Accounts
	for _, door := range []*smtpd.Server{&mx, &submission, &submissions} {
		door.Host, door.TLS, door.Conns, door.Log = s.Config.Host, s.certs.TLSConfig(), conns(), s.Log
		s.smtp = append(s.smtp, door)
	}
	s.imap = imapd.New(imapd.Options{
		Host: s.Config.Host, TLS: s.certs.TLSConfig(), Mailboxes: s.Mailboxes, Folders: s.Folders, Blobs: s.Blobs, Conns: conns(),
		Log: s.Log, Now: time.Now, KeepLogin: s.Config.IMAPKeepLogin, Junked: s.Inbound.Junked, Sorted: s.Filter.Own.Bayes.Sorted,
	})
	s.Mailboxes.Revoked = s.imap.Revoked
	door := &api.API{
		Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes, Folders: s.Folders, Outbox: s.Outbox, Events: s.Events, Keys: s.Keys,
		Suppressions: s.Suppressions, Templates: s.Templates, Webhooks: s.Webhooks, Migrations: s.Migrations, Stats: s.Stats, Limits: s.Limits, Operator: s.Operator, Friend: s.friend,
		Setup:   s.clientSetup(),
		Signer:  func(ctx context.Context) (*tls.Certificate, error) { return s.certs.Signer(ctx, s.Config.Host) },
		Inbound: s.Inbound, Captured: s.captured, Base: s.baseURL(), Version: Version, Log: s.Log,
	}
	handler, err := s.pages(door)
	if err != nil {
		return err
	}
	for range 2 { // in clear, and with TLS
		s.http = append(s.http, &http.Server{
			Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute, WriteTimeout: 5 * time.Minute,
			IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
			TLSConfig: s.certs.TLSConfig("h2", "http/1.1"),
		})
		s.http[len(s.http)-1].RegisterOnShutdown(door.EndStreams)
	}
	return nil
}

// startDuties starts what works in the background.
func (s *Server) startDuties(context.Context) error {
	s.duties.run(s.Domains.Run)
	s.duties.run(func(ctx context.Context) error { return s.Events.Number(ctx, s.Log) })
	s.duties.run(func(ctx context.Context) error { return s.Mailboxes.Run(ctx, s.report("purging mailboxes")) })
	s.duties.run(func(ctx context.Context) error { return s.Mailboxes.RunNotes(ctx, s.report("noting sign-ins")) })
	s.duties.run(s.Folders.Run)
	s.duties.run(s.Search.Run)
	s.carrying.run(s.Queue.Run)
	s.carrying.run(s.Webhooks.Run)
	s.carrying.run(s.Migrations.Run)
	if s.sts != nil {
		s.duties.run(s.sts.Run)
	}
	s.duties.run(s.Inbound.RunNotices)
	s.duties.run(s.Filter.Own.Bayes.Run)
	s.duties.run(func(ctx context.Context) error { return s.Outbox.RunIndex(ctx, s.Log) })
	s.duties.run(func(ctx context.Context) error { return s.Keys.Run(ctx, s.Log) })
	s.duties.run(func(ctx context.Context) error { return s.Limits.Run(ctx, s.Log) })
	s.duties.run(s.simulator.Run)
	s.duties.run(s.Retention.Run)
	s.duties.run(s.sweep)
	s.listenToNodes()
	return nil
}

// serve opens the doors, and in dev furnishes the house.
func (s *Server) serve(ctx context.Context) error {
	proxies, err := prefixes("--proxy-from", s.Config.ProxyFrom)
	if err != nil {
		return err
	}
	for name, serve := range map[string]func(net.Listener) error{
		"http": s.http[0].Serve,
		"https": func(l net.Listener) error {
			return s.http[1].ServeTLS(l, "", "")
		},
		"smtp": s.smtp[0].Serve, "submission": s.smtp[1].Serve, "submissions": s.smtp[2].Serve,
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

// Failed tells of an error that the service can't go on with.
func (s *Server) Failed() <-chan error { return s.failed }

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

// Shutdown drains and ends the service: no new connections, sessions and
// attempts in hand finish within Config.Drain, then the background work, then
// the node's tenure, then the database. What sessions still hand in waits in
// its rows for the next start. It also cleans up after a start that failed.
func (s *Server) Shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Config.Drain)
	defer cancel()
	var errs []error
	var closing sync.WaitGroup
	var mu sync.Mutex
	end := func(f func(context.Context) error) {
		closing.Go(func() {
			err := f(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				errs = append(errs, err)
			}
		})
	}
	for _, h := range s.http {
		end(h.Shutdown)
	}
	for _, d := range s.smtp {
		end(d.Shutdown)
	}
	if s.imap != nil {
		end(s.imap.Shutdown)
	}
	end(func(context.Context) error { // it keeps the same time by itself
		s.carrying.end()
		return nil
	})
	closing.Wait()
	for _, h := range s.http {
		_ = h.Close() // what did not finish in time
	}
	if s.doors != nil {
		_ = s.doors.close() // those that serve closed theirs already
		s.doors.serving.Wait()
	}
	s.duties.end()
	if s.pool != nil {
		if err := s.pool.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	s.lease.end()
	if s.certs != nil {
		s.certs.Close()
	}
	if s.zone != nil {
		errs = append(errs, s.zone.Close())
	}
	if s.Search != nil {
		errs = append(errs, s.Search.Close())
	}
	if s.DB != nil {
		errs = append(errs, s.DB.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.close())
	}
	return errors.Join(errs...)
}
