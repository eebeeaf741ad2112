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

	"github.com/mailstead/mailstead/internal/backup"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
)

// Backup brings the backup of a service in a folder up to date, while the service
// runs or not. Of the settings it needs those of where things are.
func Backup(ctx context.Context, c Config, to string) (backup.About, error) {
	if err := c.hasRun(ctx); err != nil {
		return backup.About{}, err
	}
	s, err := c.kept()
	if err != nil {
		return backup.About{}, err
	}
	if !s.KeyGiven {
		path := filepath.Join(c.Data, "secret.key")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // Load would make one
			return backup.About{}, fmt.Errorf("the service's secret key is not in %s; give it by --secret-key", path)
		}
		if s.Key, err = secret.Load(path); err != nil {
			return backup.About{}, err
		}
	}
	return backup.Take(ctx, s, to, Version)
}

// Restoring says what was between a backup and now.
type Restoring struct {
	// Moved: nothing. Otherwise every folder gets another UIDVALIDITY, so that mail
	// clients read it anew: UIDs given since will be given again. Events go on at
	// positions that were not given since. And the database is another one, which
	// deletes no file of the former one's folder.
	Moved bool
	// Hold keeps what was waiting to be sent, and may have been sent since, until an
	// operator releases it.
	Hold bool
}

// Restore makes a service of a backup where none is.
func Restore(ctx context.Context, c Config, from string, how Restoring) (blob.Copied, error) {
	s, err := c.kept()
	if err != nil {
		return blob.Copied{}, err
	}
	if err := backup.Is(from); err != nil { // before a data folder is made
		return blob.Copied{}, err
	}
	// With a lock in it, it would pass for a data folder, and the next backup be refused.
	there, _ := os.Stat(c.Data)
	if saved, err := os.Stat(from); err == nil && os.SameFile(there, saved) {
		return blob.Copied{}, fmt.Errorf("%s is the backup itself; name another folder with --data", c.Data)
	}
	data, err := openData(c.Data)
	if err != nil {
		return blob.Copied{}, err
	}
	defer data.close() //nolint:errcheck // it only unlocks
	return backup.Restore(ctx, from, s, func(ctx context.Context, d *db.DB) error {
		if !how.Moved {
			if err := errors.Join(folder.RenewAll(ctx, d, time.Now()), event.LeaveGap(ctx, d, time.Now()), d.ForgetName(ctx)); err != nil {
				return err
			}
		}
		if !how.Hold {
			return nil
		}
		_, err := newDesk(ctx, d).Queue.Hold(ctx, queue.Order{All: true, Once: true, Reason: "restored from a backup"})
		return err
	})
}

// kept says where the service keeps what it has.
func (c *Config) kept() (s backup.Service, err error) {
	if err := c.checkBlobs(); err != nil {
		return s, err
	}
	s = backup.Service{Data: c.Data, Database: c.databaseURL(), Blobs: c.Blobs, KeyGiven: c.SecretKey != ""}
	if s.KeyGiven {
		s.Key, err = secret.Parse(c.SecretKey)
	}
	return s, err
}
