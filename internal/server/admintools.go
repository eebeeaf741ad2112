// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/user"
)

// AdminTools is what an operator's commands work with: the rows of a service, which
// may be running beside them or not.
type AdminTools struct {
	Accounts *account.Accounts
	Queue    *queue.Admin
	Audit    *audit.Log
	Users    *user.Users    // to make links; nobody signs in at a desk
	Limits   *quota.Limiter // without the service's settings: see Overrides

	db      *db.DB
	domains *domain.Domains // without a resolver
}

// OpenAdminTools opens the database of a service that has run on a data folder. The
// caller closes it. It takes no lock and joins no lease: what a desk does is
// conditional on what stands in the rows.
func OpenAdminTools(ctx context.Context, data, database string) (*AdminTools, error) {
	c := Config{Data: data, Database: database}
	if err := c.checkInitialized(ctx); err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, db.Options{URL: c.databaseURL()})
	if err != nil {
		return nil, err
	}
	return newAdminTools(ctx, d), nil
}

var errNotInitialized = errors.New("no service has run")

// checkInitialized refuses a data folder without a database, and a database without a
// service: to open one makes tables in it, whosever it is.
func (c *Config) checkInitialized(ctx context.Context) error {
	if c.Database != "sqlite" {
		err := db.CheckUnused(ctx, c.Database)
		switch {
		case err == nil:
			return fmt.Errorf("%w on this database", errNotInitialized)
		case fault.Is(err, fault.Conflict):
			return nil
		}
		return err
	}
	_, err := os.Stat(filepath.Join(c.Data, "mailstead.db"))
	if pe, ok := err.(*fs.PathError); ok && errors.Is(err, fs.ErrNotExist) { //nolint:errorlint // what Stat returns
		err = fmt.Errorf("%w on the data folder %s: %w", errNotInitialized, c.Data, pe.Err)
	}
	return err
}

func newAdminTools(ctx context.Context, d *db.DB) *AdminTools {
	hub := &notify.Hub{}
	outbox := &outbound.Outbox{DB: d, Now: time.Now}
	return &AdminTools{
		db: d, domains: domain.New(domain.Options{DB: d, Hub: hub, Now: time.Now}), Accounts: account.New(d, hub, time.Now), Audit: &audit.Log{DB: d, Now: time.Now},
		Users: &user.Users{DB: d, Now: time.Now}, Limits: &quota.Limiter{DB: d, Hub: hub, Now: time.Now},
		Queue: &queue.Admin{
			DB: d, Events: &event.Log{DB: d, Hub: hub, Now: time.Now}, Now: time.Now, Describe: outbox.MessageInfo, LoadViews: outbox.MessageViews,
			Wake: func(k notify.Key) { notifyNodes(ctx, d, k) },
		},
	}
}

// RunAudited carries out a change of an operator's command. Its entry of the audit log of
// the account is written before it: without one nothing is changed. action names the
// command, object what is changed, and what says it in a sentence.
func (d *AdminTools) RunAudited(ctx context.Context, of db.ID, action, object, what string, do func() error) error {
	p, err := d.Audit.Begin(ctx, audit.Entry{Account: of, Actor: audit.Actor{Kind: audit.ActorOperator, Name: "command line"}, Action: action, Object: object, Description: what})
	if err != nil {
		return err
	}
	err = do()
	switch {
	case err == nil:
		return p.Done(ctx, "", "")
	case fault.KindOf(err) == fault.Internal:
		return errors.Join(err, p.Fail(ctx))
	}
	return errors.Join(err, p.Discard(ctx))
}

// notifyNodes signals running nodes. Lost, it is a few seconds later: nodes look by themselves.
func notifyNodes(ctx context.Context, d *db.DB, keys ...notify.Key) {
	_ = d.Notify(ctx, notify.Encode(keys)...)
}

// SetAccountStatus is that of account.Accounts, and tells running nodes.
func (d *AdminTools) SetAccountStatus(ctx context.Context, id db.ID, status string) error {
	err := d.Accounts.SetStatus(ctx, id, status)
	if err == nil {
		notifyNodes(ctx, d.db, notify.Key{Kind: notify.Account, ID: int64(id)}, notify.Key{Kind: notify.Suspension})
	}
	return err
}

// SuspendDomain suspends a domain, or ends that. It stands in the activity of the
// accounts that claim it.
func (d *AdminTools) SuspendDomain(ctx context.Context, name string, yes bool) error {
	changed, err := d.domains.SetSuspended(ctx, name, yes)
	keys := []notify.Key{{Kind: notify.Domain}, {Kind: notify.Suspension}}
	for _, h := range changed {
		keys = append(keys, notify.Key{Kind: notify.Domain, ID: int64(h.Domain)})
		err = errors.Join(err, auditSuspension(ctx, d.Audit, h))
	}
	if len(changed) > 0 {
		notifyNodes(ctx, d.db, keys...)
	}
	return err
}

// auditSuspension tells, in the activity of an account, what an operator did with its
// domain.
func auditSuspension(ctx context.Context, log *audit.Log, h domain.HostedDomain) error {
	what := "Suspended the domain " + h.Name + "."
	if !h.Suspended {
		what = "Ended the suspension of the domain " + h.Name + "."
	}
	return log.Write(ctx, audit.Entry{Account: h.Account, Actor: audit.Actor{Kind: audit.ActorOperator, Name: "operator"}, Action: "suspendDomain", Object: h.Domain.String(), Description: what})
}

// suspendDomain suspends a domain, or ends that, for an operator who has signed in or
// has a key.
func (s *Server) suspendDomain(ctx context.Context, name string, yes bool) error {
	changed, err := s.Domains.SetSuspended(ctx, name, yes)
	for _, h := range changed {
		err = errors.Join(err, auditSuspension(ctx, s.Audit, h))
	}
	return err
}

// Close ends it.
func (d *AdminTools) Close() error { return d.db.Close() }
