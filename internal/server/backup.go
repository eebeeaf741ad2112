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
func Backup(ctx context.Context, c Config, to string) (backup.Info, error) {
	if err := c.checkInitialized(ctx); err != nil {
		return backup.Info{}, err
	}
	s, err := c.backupService()
	if err != nil {
		return backup.Info{}, err
	}
	if !s.KeyGiven {
		path := filepath.Join(c.Data, "secret.key")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // Load would make one
			return backup.Info{}, fmt.Errorf("the service's secret key is not in %s; give it by --secret-key", path)
		}
		if s.Key, err = secret.LoadOrCreateKey(path); err != nil {
			return backup.Info{}, err
		}
	}
	return backup.Take(ctx, s, to, Version)
}

// RestoreOptions says what was between a backup and now.
type RestoreOptions struct {
	// Moved: nothing. Otherwise every folder gets another UIDVALIDITY, so that mail
	// clients read it anew: UIDs given since will be given again. Events go on at
	// positions that were not given since. And the database is another one, which
	// deletes no file of the former one's folder.
	Moved bool
	// Hold keeps what was waiting to be sent, and may have been sent since, until an
	// operator releases it.
	Hold bool
	// RevokeKeys deletes all API keys and app passwords. Otherwise they are as they were,
	// with those that were deleted since.
	RevokeKeys bool
	backup.RestoreOptions
}

// RestoreResult is what became of a backup.
type RestoreResult struct {
	backup.RestoreResult
	Sessions, Links    int64                 // that were ended
	Keys, AppPasswords int64                 // that were ended, or else work as before
	KeyNames           []account.KeyIdentity // of those that work, at most MaxListedKeys
}

// MaxListedKeys is how many API keys Restore names.
const MaxListedKeys = 100

// Restore makes a service of a backup where none is.
func Restore(ctx context.Context, c Config, from string, how RestoreOptions) (done RestoreResult, err error) {
	s, err := c.backupService()
	if err != nil {
		return done, err
	}
	if err := backup.CheckFolder(from); err != nil { // before a data folder is made
		return done, err
	}
	// With a lock in it, it would pass for a data folder, and the next backup be refused.
	there, _ := os.Stat(c.Data)
	if saved, err := os.Stat(from); err == nil && os.SameFile(there, saved) {
		return done, fmt.Errorf("%s is the backup itself; name another folder with --data", c.Data)
	}
	data, err := openDataDir(c.Data)
	if err != nil {
		return done, err
	}
	defer data.close() //nolint:errcheck // it only unlocks
	done.RestoreResult, err = backup.Restore(ctx, from, s, how.RestoreOptions, func(ctx context.Context, d *db.DB) error {
		if err := done.revokeAccess(ctx, d, how.RevokeKeys); err != nil {
			return err
		}
		if !how.Moved {
			if err := errors.Join(folder.RenewUIDValidity(ctx, d, time.Now()), event.SkipPositions(ctx, d, time.Now()), d.ResetInstanceName(ctx)); err != nil {
				return err
			}
		}
		if !how.Hold {
			return nil
		}
		_, err := newAdminTools(ctx, d).Queue.Hold(ctx, queue.Command{All: true, ExistingOnly: true, Reason: "restored from a backup"})
		return err
	})
	return done, err
}

// revokeAccess ends the sessions and links that the backup has, and if they are to end
// the keys. Otherwise it notes those that work.
func (r *RestoreResult) revokeAccess(ctx context.Context, d *db.DB, keys bool) (err error) {
	if r.Sessions, r.Links, err = user.DeleteSessionsAndLinks(ctx, d); err != nil {
		return err
	}
	profiles, err := mailbox.DeleteProfileLinks(ctx, d)
	if err != nil {
		return err
	}
	r.Links += profiles
	if keys {
		if r.Keys, err = account.DeleteAllKeys(ctx, d); err == nil {
			r.AppPasswords, err = mailbox.DeleteAppPasswords(ctx, d)
		}
		return err
	}
	if r.AppPasswords, err = mailbox.CountAppPasswords(ctx, d); err != nil {
		return err
	}
	return newAdminTools(ctx, d).Accounts.EachKey(ctx, func(k account.KeyIdentity) {
		if r.Keys++; len(r.KeyNames) < MaxListedKeys {
			r.KeyNames = append(r.KeyNames, k)
		}
	})
}

// backupService says where the service keeps what it has.
func (c *Config) backupService() (s backup.Service, err error) {
	if err := c.checkBlobs(); err != nil {
		return s, err
	}
	s = backup.Service{Data: c.Data, Database: c.databaseURL(), Blobs: c.Blobs, KeyGiven: c.SecretKey != ""}
	if s.KeyGiven {
		s.Key, err = secret.ParseKey(c.SecretKey)
	}
	return s, err
}
