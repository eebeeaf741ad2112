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
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/user"
)

// AdminTools gives an operator's commands access to the database of a service, whether or not
// the service is running.
type AdminTools struct {
	Accounts *account.Accounts
	Queue    *admin.Queue
	Audit    *audit.Log
	Users    *user.Users    // only for links; nobody signs in through AdminTools
	Limits   *quota.Limiter // without the service's settings: use Overrides

	db      *db.DB
	domains *domain.Domains // without a resolver
}

// OpenAdminTools opens the database of a service that has run on a data folder. The caller must
// call Close. It takes no lock and no lease, as each change is conditional on the state of the
// rows.
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

// checkInitialized returns errNotInitialized for a data folder without a database, and for a
// database on which no service has run: to open that would create tables in it.
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
	messages := &outbound.Messages{DB: d, Now: time.Now}
	return &AdminTools{
		db: d, domains: domain.New(domain.Options{DB: d, Hub: hub, Now: time.Now}), Accounts: account.New(d, hub, time.Now), Audit: &audit.Log{DB: d, Now: time.Now},
		Users: &user.Users{DB: d, Now: time.Now}, Limits: &quota.Limiter{DB: d, Hub: hub, Now: time.Now},
		Queue: &admin.Queue{
			DB: d, Events: &event.Log{DB: d, Hub: hub, Now: time.Now}, Now: time.Now, Describe: messages.MessageInfo, LoadViews: messages.MessageViews,
			Wake: func(k notify.Key) { notifyNodes(ctx, d, k) },
		},
	}
}

// RunAudited makes a change for an operator's command. It writes the entry to the account's audit
// log first: if that fails, it changes nothing. action is the command's name, object is the
// changed object, and what describes the change in a sentence.
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

// notifyNodes signals running nodes. If a signal is lost, nodes notice a few seconds later, as
// they also poll.
func notifyNodes(ctx context.Context, d *db.DB, keys ...notify.Key) {
	_ = d.Notify(ctx, notify.Encode(keys)...)
}

// SetAccountStatus calls SetStatus of account.Accounts, and notifies running nodes.
func (d *AdminTools) SetAccountStatus(ctx context.Context, id db.ID, status string) error {
	err := d.Accounts.SetStatus(ctx, id, status)
	if err == nil {
		notifyNodes(ctx, d.db, notify.Key{Kind: notify.Account, ID: int64(id)}, notify.Key{Kind: notify.Suspension})
	}
	return err
}

// SuspendDomain suspends a domain or, if yes is false, ends the suspension. It adds an entry to
// the audit log of each account that claims the domain.
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

// auditSuspension adds an entry about the operator's change to the account's audit log.
func auditSuspension(ctx context.Context, log *audit.Log, h domain.HostedDomain) error {
	what := "Suspended the domain " + h.Name + "."
	if !h.Suspended {
		what = "Ended the suspension of the domain " + h.Name + "."
	}
	return log.Write(ctx, audit.Entry{Account: h.Account, Actor: audit.Actor{Kind: audit.ActorOperator, Name: "operator"}, Action: "suspendDomain", Object: h.Domain.String(), Description: what})
}

// suspendDomain suspends a domain, or ends the suspension, for an operator who has signed in or
// uses a key.
func (s *Server) suspendDomain(ctx context.Context, name string, yes bool) error {
	changed, err := s.Domains.SetSuspended(ctx, name, yes)
	for _, h := range changed {
		err = errors.Join(err, auditSuspension(ctx, s.Audit, h))
	}
	return err
}

// Close closes the database.
func (d *AdminTools) Close() error { return d.db.Close() }
