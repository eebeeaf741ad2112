// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

// Accounts opens the accounts of a service for an operator's command, which
// may run beside the service itself. done closes them.
func Accounts(ctx context.Context, data, database string) (a *account.Accounts, done func(), err error) {
	c := Config{Data: data, Database: database}
	if database == "sqlite" {
		if _, err := os.Stat(filepath.Join(data, "mailstead.db")); err != nil {
			if pe, ok := err.(*fs.PathError); ok { //nolint:errorlint // what Stat returns
				err = pe.Err
			}
			return nil, nil, fmt.Errorf("no service has run on the data folder %s: %w", data, err)
		}
	}
	d, err := db.Open(ctx, db.Options{URL: c.databaseURL()})
	if err != nil {
		return nil, nil, err
	}
	return account.New(d, &signal.Hub{}, time.Now), func() { _ = d.Close() }, nil
}
