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
	"github.com/mailstead/mailstead/internal/datadir"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/fulltext"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/imapd"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/inbound/dsn"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
	"github.com/mailstead/mailstead/internal/user"
)

// openServices creates the services of all packages, each after those that it needs. A package
// gets what it needs from one above it as an option.
func (s *Server) openServices(ctx context.Context) (err error) {
	s.Keys = idempotency.New(s.DB, s.key, time.Now)
	s.Accounts = account.New(s.DB, s.Hub, time.Now)
	s.Limits = &quota.Limiter{DB: s.DB, Events: s.Events, Hub: s.Hub, Defaults: s.Config.defaultLimits(), Now: s.Config.clock()}
	s.Audit = &audit.Log{DB: s.DB, Now: time.Now}
	s.Domains = domain.New(domain.Options{
		DB: s.DB, Events: s.Events, Audit: s.Audit, Hub: s.Hub, Key: s.key, Resolver: s.resolver, Host: s.Config.Host, Addrs: s.Config.senderAddrs(), UsesSmartHost: s.Config.usesSmartHost(),
		Ports:         domain.Ports{IMAPS: s.port("imaps"), Submissions: s.port("submissions"), Submission: s.port("submission")},
		ReservedNames: []string{suppression.SimulatorDomain}, FirstCheckDelay: s.Config.FirstDomainCheck, HasMailboxes: mailbox.HasAddresses, GenerateKey: s.Config.GenerateKey, Now: time.Now, Log: s.Log,
	})
	if s.dnsServer != nil {
		s.dnsServer.Serve(s.Domains.ZoneRecords)
	}
	hasher := credential.NewHasherWithCost(s.Config.PasswordCost)
	s.Logins = ratelimit.NewLoginLimiter(s.DB, s.key.Subkey("login-limiter"), s.isExempt)
	if s.SearchIndex, err = fulltext.Open(ctx, fulltext.Options{Path: s.data.File(datadir.SearchFile), Now: time.Now, Log: s.Log}); err != nil {
		return err
	}
	s.Folders = folder.New(folder.Options{DB: s.DB, Blobs: s.Blobs, Events: s.Events, Hub: s.Hub, Now: time.Now, Log: s.Log,
		MaxMessages: s.Config.MaxFolderMessages, MaxFolders: s.Config.MaxFolders})
	s.Searcher = search.New(s.Folders, s.SearchIndex)
	if err := s.openMigrations(); err != nil {
		return err
	}
	s.imapSessions = imapd.NewSessions(s.DB, s.Hub, s.Log)
	s.Mailboxes = mailbox.Open(mailbox.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Accounts: s.Accounts, Hasher: hasher, SCRAM: s.newSCRAM(hasher), Logins: s.Logins, Now: time.Now,
		MaxQuotaMB: int(s.Config.MaxQuotaMB), StorageLimit: s.Limits.StorageLimit, Host: s.Config.Host, Postmaster: s.Config.Postmaster, OwnerAddresses: s.ownerAddresses, VerifiedName: s.Domains.VerifiedName, FindHosted: s.Domains.FindHosted,
		CreateFolders: s.Folders.Provision, DeleteMail: s.deleteMail, RemainingMessages: s.Folders.RemainingMessages, OnRevoked: s.imapSessions.RecheckLogins,
	})
	s.Transfers = &mailio.Service{Folders: s.Folders, Blobs: s.Blobs, Now: time.Now, Log: s.Log}
	if err := s.openRemoteAgent(); err != nil {
		return err
	}
	s.openOutbound()
	s.Users = &user.Users{
		DB: s.DB, Key: s.key, Hasher: hasher, Logins: s.Logins, Issuer: s.Config.Host, BaseURL: s.baseURL(), OperatorAccount: account.OperatorAccount,
		SendMail: s.Outbox.SendServiceMail, Now: time.Now,
	}
	if err := s.openInbound(); err != nil {
		return err
	}
	if err := s.openWebhooks(); err != nil {
		return err
	}
	s.simulator = relay.NewSimulator(relay.SimulatorOptions{DB: s.DB, Queue: s.Queue, Now: time.Now, Log: s.Log})
	s.Retention = s.newRetention()
	return nil
}

// newSCRAM returns the SCRAM-SHA-256 verifier; nil if it is off.
func (s *Server) newSCRAM(hasher *credential.Hasher) *credential.SCRAM {
	if s.Config.SCRAM != "on" && s.Config.SCRAM != "learn" {
		return nil
	}
	return &credential.SCRAM{Hasher: hasher, Key: s.key.Subkey("scram-salt"), Offered: s.Config.SCRAM == "on"}
}

// openOutbound creates the services for outgoing mail.
func (s *Server) openOutbound() {
	s.Templates = &template.Templates{DB: s.DB, Now: time.Now}
	s.Suppressions = &suppression.List{DB: s.DB, Key: s.key, BaseURL: s.baseURL(), Now: time.Now}
	messages := &outbound.Messages{
		DB: s.DB, Blobs: s.Blobs, Accounts: s.Accounts, Domains: s.Domains, Key: s.key, Host: s.Config.Host, Now: time.Now,
		SignSlots: make(chan struct{}, max(1, notify.Processors/2)), ExtraSignSlots: make(chan struct{}, notify.Processors/2),
	}
	s.Threads = &thread.Threads{NewID: s.DB.NewID, Sources: []thread.Source{messages, s.Folders}}
	s.Queue = queue.New(queue.Options{
		DB: s.DB, Node: s.node, Events: s.Events, Hub: s.Hub, Key: s.key, Suppressions: s.Suppressions, Now: time.Now, Log: s.Log,
		DrainTimeout: s.Config.Drain,
		Prepare:      messages.Prepare, Describe: messages.MessageInfo, ChooseAgent: s.chooseAgent, ResetBackoff: s.forgetFailures,
	})
	s.Outbox = &outbound.Outbox{
		Messages: messages, Node: s.node, Queue: s.Queue, Suppressions: s.Suppressions, Threads: s.Threads, Mailboxes: s.Mailboxes,
		Templates: s.Templates, Keys: s.Keys, Limits: s.Limits,
		Index: &index.Index{DB: s.DB, Node: s.node, Queue: s.Queue, Stats: s.Stats, Load: messages.Load, Accepting: &messages.Accepting, Now: time.Now},
	}
	s.Operator = &admin.Queue{
		DB: s.DB, Events: s.Events, Wake: s.Hub.Wake, Now: time.Now, Describe: messages.MessageInfo, LoadViews: messages.MessageViews,
	}
}

// openInbound creates the services for incoming mail.
func (s *Server) openInbound() error {
	verify, err := s.newVerifier()
	if err != nil {
		return err
	}
	if s.Filter, err = s.newSpamFilter(); err != nil {
		return err
	}
	var loopsBack func(context.Context, string) bool
	if s.router != nil {
		loopsBack = s.router.LoopsBack
	}
	s.Inbound = inbound.New(inbound.Options{
		Host: s.Config.Host, BaseURL: s.baseURL(), Key: s.key, Blobs: s.Blobs, Events: s.Events, Mailboxes: s.Mailboxes, Accounts: s.Accounts, Folders: s.Folders, Queue: s.Queue,
		Hub: s.Hub, Outbox: s.Outbox, Threads: s.Threads, Now: time.Now, Log: s.Log,
		Domains: s.Domains, LoopsBack: loopsBack, Verifier: verify, MaxEnforcement: domain.Enforcement(s.Config.DMARC), AcceptUnknownPolicy: s.offline(), SpamFilter: s.Filter.Check,
	})
	s.Notifications = &dsn.Sender{
		Host: s.Config.Host, Key: s.key, DB: s.DB, Node: s.node, Hub: s.Hub, Blobs: s.Blobs, Mailboxes: s.Mailboxes, Domains: s.Domains, Queue: s.Queue,
		Outbox: s.Outbox, Inbound: s.Inbound, Now: time.Now, Log: s.Log,
	}
	return nil
}

// ownerAddresses returns the addresses of an account's owners, for the mailbox package.
func (s *Server) ownerAddresses(ctx context.Context, account db.ID) ([]address.Address, error) {
	return user.OwnerAddresses(ctx, s.DB, account)
}

// isExempt reports whether limits per client network don't apply: in dev for loopback.
func (s *Server) isExempt(from netip.Addr) bool { return s.Config.Dev && from.Unmap().IsLoopback() }
