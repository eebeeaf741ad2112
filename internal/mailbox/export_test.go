// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// SetPause replaces the delay after failed logins.
func (m *Mailboxes) SetPause(f func(context.Context, time.Duration) error) { m.Logins.Sleep = f }

// DropVerifiers is the part of RunMaintenance for SCRAM.
func (m *Mailboxes) DropVerifiers(ctx context.Context) error { return m.deleteVerifiers(ctx) }

// DropSessions is the part of RunMaintenance for sessions.
func (m *Mailboxes) DropSessions(ctx context.Context) error { return m.deleteStaleSessions(ctx) }

// IndexAll writes the pieces of all mailboxes that have none.
func (m *Mailboxes) IndexAll(ctx context.Context) error {
	all, err := db.All(ctx, m.db, withoutPiecesQuery.With(), scanMailbox)
	if err != nil {
		return err
	}
	return m.db.Tx(ctx, func(tx *db.Tx) error {
		for _, b := range all {
			if err := writePieces(ctx, tx, b.Account, b.ID, nil, b.searchPieces()); err != nil {
				return err
			}
		}
		return nil
	})
}

var withoutPiecesQuery = db.SQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id
	WHERE NOT EXISTS (SELECT 1 FROM mailbox_piece p WHERE p.mailbox = id)`)
