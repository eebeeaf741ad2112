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
	"github.com/mailstead/mailstead/internal/backup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/user"
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
	// EndKeys deletes all API keys and app passwords. Otherwise they are as they were,
	// with those that were deleted since.
	EndKeys bool
	backup.Options
}

// Restored is what became of a backup.
type Restored struct {
	backup.Restored
	Sessions, Links    int64             // that were ended
	Keys, AppPasswords int64             // that were ended, or else work as before
	KeyNames           []account.KeyName // of those that work, at most MaxKeyNames
}

// MaxKeyNames is how many API keys Restore names.
const MaxKeyNames = 100

// Restore makes a service of a backup where none is.
func Restore(ctx context.Context, c Config, from string, how Restoring) (done Restored, err error) {
	s, err := c.kept()
	if err != nil {
		return done, err
	}
	if err := backup.Is(from); err != nil { // before a data folder is made
		return done, err
	}
	// With a lock in it, it would pass for a data folder, and the next backup be refused.
	there, _ := os.Stat(c.Data)
	if saved, err := os.Stat(from); err == nil && os.SameFile(there, saved) {
		return done, fmt.Errorf("%s is the backup itself; name another folder with --data", c.Data)
	}
	data, err := openData(c.Data)
	if err != nil {
		return done, err
	}
	defer data.close() //nolint:errcheck // it only unlocks
	done.Restored, err = backup.Restore(ctx, from, s, how.Options, func(ctx context.Context, d *db.DB) error {
		if err := done.endAccess(ctx, d, how.EndKeys); err != nil {
			return err
		}
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
	return done, err
}

// endAccess ends the sessions and links that the backup has, and if they are to end
// the keys. Otherwise it notes those that work.
func (r *Restored) endAccess(ctx context.Context, d *db.DB, keys bool) (err error) {
	if r.Sessions, r.Links, err = user.EndAll(ctx, d); err != nil {
		return err
	}
	profiles, err := mailbox.EndLinks(ctx, d)
	if err != nil {
		return err
	}
	r.Links += profiles
	if keys {
		if r.Keys, err = account.EndEveryKey(ctx, d); err == nil {
			r.AppPasswords, err = mailbox.EndAppPasswords(ctx, d)
		}
		return err
	}
	if r.AppPasswords, err = mailbox.AppPasswordCount(ctx, d); err != nil {
		return err
	}
	return newDesk(ctx, d).Accounts.EveryKey(ctx, func(k account.KeyName) {
		if r.Keys++; len(r.KeyNames) < MaxKeyNames {
			r.KeyNames = append(r.KeyNames, k)
		}
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
