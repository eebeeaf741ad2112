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
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/user"
)

// Backup updates the backup of a service in a folder, whether or not the service is running. Of
// the settings it only needs the locations.
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
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // LoadOrCreateKey would create one
			return backup.Info{}, fmt.Errorf("the service's secret key is not in %s; give it by --secret-key", path)
		}
		if s.Key, err = secret.LoadOrCreateKey(path); err != nil {
			return backup.Info{}, err
		}
	}
	return backup.Take(ctx, s, to, Version)
}

// RestoreOptions are the options of Restore.
type RestoreOptions struct {
	// Moved says that the service has not run since the backup. Otherwise every folder gets a
	// new UIDVALIDITY, so that mail clients reload it, as UIDs assigned since will be assigned
	// again. Events continue at positions that were not assigned since. And the database gets a
	// new instance name, so that it deletes no file of the former one's folder.
	Moved bool
	// Hold holds the queued deliveries, which may have been sent since the backup, until an
	// operator releases them.
	Hold bool
	// RevokeKeys deletes all API keys and app passwords. Otherwise those of the backup work
	// again, including those that were deleted since.
	RevokeKeys bool
	backup.RestoreOptions
}

// RestoreResult is the result of Restore.
type RestoreResult struct {
	backup.RestoreResult
	Sessions, Links    int64                 // number revoked
	Keys, AppPasswords int64                 // number revoked or, without RevokeKeys, number that work
	KeyNames           []account.KeyIdentity // keys that work, at most MaxListedKeys
}

// MaxListedKeys is the maximum number of API keys in RestoreResult.KeyNames.
const MaxListedKeys = 100

// Restore restores a backup to a data folder and database on which no service has run.
func Restore(ctx context.Context, c Config, from string, how RestoreOptions) (done RestoreResult, err error) {
	s, err := c.backupService()
	if err != nil {
		return done, err
	}
	if err := backup.CheckFolder(from); err != nil { // before a data folder is created
		return done, err
	}
	// A lock file in the backup would make it look like a data folder, and the next backup
	// would fail.
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
		_, err := newAdminTools(d, &notify.Hub{}).Queue.Hold(ctx, admin.Command{All: true, ExistingOnly: true, Reason: "restored from a backup"})
		return err
	})
	return done, err
}

// revokeAccess deletes the sessions and links of the backup and, if keys is set, its API keys
// and app passwords. Otherwise it counts and lists those that work.
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
	return newAdminTools(d, &notify.Hub{}).Accounts.EachKey(ctx, func(k account.KeyIdentity) {
		if r.Keys++; len(r.KeyNames) < MaxListedKeys {
			r.KeyNames = append(r.KeyNames, k)
		}
	})
}

// backupService returns the locations of the service's data, and its secret key if given.
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
