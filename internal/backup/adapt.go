// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/user"
)

// maxListedKeys is the maximum number of API keys in RestoreResult.KeyNames.
const maxListedKeys = 100

// adaptDatabase changes what must differ from the service that the backup is of, before anybody
// uses the new database.
func (r *restoreRun) adaptDatabase(ctx context.Context, d *db.DB) error {
	if err := r.revokeAccess(ctx, d); err != nil {
		return err
	}
	if !r.options.Moved {
		if err := errors.Join(folder.RenewUIDValidity(ctx, d, time.Now()), event.SkipPositions(ctx, d, time.Now()), d.ResetInstanceName(ctx)); err != nil {
			return err
		}
	}
	if !r.options.Hold {
		return nil
	}
	_, err := (&admin.Queue{DB: d, Now: time.Now}).Hold(ctx, admin.Command{All: true, ExistingOnly: true, Reason: "restored from a backup"})
	return err
}

// revokeAccess deletes the sessions and links of the backup and, with RevokeKeys, its API keys and
// app passwords. Otherwise it counts and lists those that work.
func (r *restoreRun) revokeAccess(ctx context.Context, d *db.DB) (err error) {
	done := &r.result
	if done.Sessions, done.Links, err = user.DeleteSessionsAndLinks(ctx, d); err != nil {
		return err
	}
	profiles, err := mailbox.DeleteProfileLinks(ctx, d)
	if err != nil {
		return err
	}
	done.Links += profiles
	if r.options.RevokeKeys {
		if done.Keys, err = account.DeleteAllKeys(ctx, d); err == nil {
			done.AppPasswords, err = mailbox.DeleteAppPasswords(ctx, d)
		}
		return err
	}
	if done.AppPasswords, err = mailbox.CountAppPasswords(ctx, d); err != nil {
		return err
	}
	return account.New(d, &notify.Hub{}, time.Now).EachKey(ctx, func(k account.KeyIdentity) {
		if done.Keys++; len(done.KeyNames) < maxListedKeys {
			done.KeyNames = append(done.KeyNames, k)
		}
	})
}
