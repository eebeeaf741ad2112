// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/datadir"
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
	Domains  *domain.Domains // without a resolver
	Audit    *audit.Log
	Users    *user.Users    // only for links; nobody signs in through AdminTools
	Limits   *quota.Limiter // without the service's settings: use Overrides

	db  *db.DB
	hub *notify.Hub
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
	// If a signal is lost, nodes notice a few seconds later, as they also poll.
	hub := notify.NewHub(ctx, d, slog.New(slog.DiscardHandler))
	messages, log := &outbound.Messages{DB: d, Now: time.Now}, &audit.Log{DB: d, Now: time.Now}
	return &AdminTools{
		db: d, hub: hub, Accounts: account.New(d, hub, time.Now), Audit: log, Domains: domain.New(domain.Options{DB: d, Hub: hub, Audit: log, Now: time.Now}),
		Users: &user.Users{DB: d, Now: time.Now}, Limits: &quota.Limiter{DB: d, Hub: hub, Now: time.Now},
		Queue: &admin.Queue{
			DB: d, Events: &event.Log{DB: d, Hub: hub, Now: time.Now}, Now: time.Now, Describe: messages.MessageInfo, LoadViews: messages.MessageViews,
			Wake: hub.Wake,
		},
	}, nil
}

// Close signals running nodes what has changed, and closes the database.
func (d *AdminTools) Close() error {
	d.hub.Flush()
	return d.db.Close()
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
	_, err := os.Stat(filepath.Join(c.Data, datadir.DatabaseFile))
	if pe, ok := err.(*fs.PathError); ok && errors.Is(err, fs.ErrNotExist) { //nolint:errorlint // what Stat returns
		err = fmt.Errorf("%w on the data folder %s: %w", errNotInitialized, c.Data, pe.Err)
	}
	return err
}
