// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/migration"
)

// openMigrations creates the service that copies mailboxes from other servers. It may connect to
// the same networks as webhooks.
func (s *Server) openMigrations() error {
	dialer, roots, err := s.customerDialer()
	if err != nil {
		return err
	}
	s.Migrations = migration.New(migration.Options{
		DB: s.DB, Node: s.node, Hub: s.Hub, Events: s.Events, Blobs: s.Blobs, Folders: s.Folders, Key: s.key, Roots: roots,
		Dialer: dialer, MinRetryDelay: s.Config.MigrationWait, Now: time.Now, Log: s.Log,
	})
	return nil
}

// deleteMail deletes a mailbox's migrations and mail, for the mailbox package.
func (s *Server) deleteMail(ctx context.Context, mailbox db.ID) error {
	if err := s.Migrations.DeleteByMailbox(ctx, mailbox); err != nil {
		return err
	}
	return s.Folders.PurgeMailbox(ctx, mailbox)
}
