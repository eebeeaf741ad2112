// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/search"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
	"github.com/mailstead/mailstead/internal/throttle"
	"github.com/mailstead/mailstead/internal/transfer"
	"github.com/mailstead/mailstead/internal/user"
)

// openRooms makes the rooms from the ground floor up, and sets what a room
// needs of one above it.
func (s *Server) openRooms(ctx context.Context) (err error) {
	s.Keys = idempotency.New(s.DB, time.Now)
	s.Accounts = account.New(s.DB, s.Hub, time.Now)
	s.Limits = &limit.Limits{DB: s.DB, Events: s.Events, Hub: s.Hub, Defaults: s.Config.limits(), Now: s.Config.clock()}
	s.Domains = domain.New(domain.Options{
		DB: s.DB, Events: s.Events, Hub: s.Hub, Key: s.key, Resolver: s.resolver, Host: s.Config.Host, Addrs: s.Config.senders(), Relayed: s.Config.relayed(),
		Ports:   domain.Ports{IMAPS: s.port("imaps"), Submissions: s.port("submissions"), Submission: s.port("submission")},
		Refused: []string{"simulator.test"}, FirstCheck: s.Config.FirstCheck, Now: time.Now, Log: s.Log,
	})
	s.published.Store(s.Domains)
	hasher := credential.NewHasher()
	s.Logins = throttle.NewLoginLimiter(s.DB, s.key.Sub("login-limiter"))
	s.Logins.Friend = s.friend
	s.Mailboxes = mailbox.Open(mailbox.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Accounts: s.Accounts, Hasher: hasher, Scram: s.scram(hasher), Logins: s.Logins, Now: time.Now,
		MaxQuotaMB: int(s.Config.MaxQuotaMB), Storage: s.Limits.Storage, Host: s.Config.Host, Postmaster: s.Config.Postmaster, Owners: s.owners, Owned: s.Domains.Owned, Hosted: s.Domains.Hosted,
	})
	s.Audit = &audit.Log{DB: s.DB, Now: time.Now}
	s.Users = &user.Users{DB: s.DB, Key: s.key, Hasher: hasher, Logins: s.Logins, Issuer: s.Config.Host, Base: s.baseURL(), Operators: account.Operators, Now: time.Now}
	s.Domains.HasMailboxes = s.Mailboxes.Any
	s.Folders = folder.New(folder.Options{DB: s.DB, Blobs: s.Blobs, Events: s.Events, Hub: s.Hub, Now: time.Now, Log: s.Log,
		MaxMessages: s.Config.MaxFolderMessages, MaxFolders: s.Config.MaxFolders})
	s.Transfers = &transfer.Transfers{Folders: s.Folders, Blobs: s.Blobs, Now: time.Now, Log: s.Log}
	s.Mailboxes.Provision, s.Mailboxes.Empty, s.Mailboxes.Left = s.Folders.Provision, s.Folders.Empty, s.Folders.Left
	if s.Search, err = search.Open(ctx, search.Options{Path: s.data.file("search.db"), Folders: s.Folders, Now: time.Now, Log: s.Log}); err != nil {
		return err
	}
	s.Folders.Narrow, s.Folders.Find = s.Search.Narrow, s.Search.Find
	s.openSending()
	if err := s.openReceiving(); err != nil {
		return err
	}
	if err := s.openWebhooks(); err != nil {
		return err
	}
	if err := s.openMigrations(); err != nil {
		return err
	}
	s.Retention = s.retention()
	return s.openCouriers()
}

// scram is how SCRAM-SHA-256 is done, or nil.
func (s *Server) scram(hasher *credential.Hasher) *credential.Scram {
	if s.Config.Scram != "on" && s.Config.Scram != "learn" {
		return nil
	}
	return &credential.Scram{Hasher: hasher, Key: s.key.Sub("scram-salt"), Offered: s.Config.Scram == "on"}
}

// openSending makes what mail goes out by.
func (s *Server) openSending() {
	s.Templates = &template.Templates{DB: s.DB, Now: time.Now}
	s.Suppressions = &suppression.List{DB: s.DB, Key: s.key, Base: s.baseURL(), Now: time.Now}
	s.Threads = &thread.Threads{NewID: s.DB.NewID}
	s.Stats = stat.New(s.DB, s.Log)
	s.Events.Followed = append(s.Events.Followed, s.Stats.Numbered)
	s.Outbox = &outbound.Outbox{
		DB: s.DB, Node: s.node, Blobs: s.Blobs, Threads: s.Threads, Suppressions: s.Suppressions, Accounts: s.Accounts, Domains: s.Domains, Mailboxes: s.Mailboxes,
		Templates: s.Templates, Stats: s.Stats, Keys: s.Keys, Limits: s.Limits, Key: s.key, Host: s.Config.Host, Now: time.Now,
		Signing: make(chan struct{}, max(1, signal.Processors/2)), Spare: make(chan struct{}, signal.Processors/2),
	}
	s.Users.Mail = s.Outbox.SendService
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
}

// openReceiving makes what mail comes in by.
func (s *Server) openReceiving() error {
	judge, err := s.judge()
	if err != nil {
		return err
	}
	if s.Filter, err = s.filter(); err != nil {
		return err
	}
	s.Inbound = inbound.New(inbound.Options{
		Host: s.Config.Host, Base: s.baseURL(), Key: s.key, Blobs: s.Blobs, Events: s.Events, Mailboxes: s.Mailboxes, Accounts: s.Accounts, Folders: s.Folders, Queue: s.Queue,
		Node: s.node, Hub: s.Hub, Outbox: s.Outbox, Threads: s.Threads, Now: time.Now, Log: s.Log,
		Domains: s.Domains, Judge: judge, Enforcement: domain.Enforcement(s.Config.DMARC), Forgiving: s.offline(), Filter: s.Filter.Judge,
	})
	s.Events.Content, s.Events.WithoutContent = s.Inbound.Content, inbound.WithoutContent
	return nil
}

// owners tells the mailboxes who owns an account.
func (s *Server) owners(ctx context.Context, account db.ID) ([]address.Address, error) {
	return user.OwnerAddresses(ctx, s.DB, account)
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
