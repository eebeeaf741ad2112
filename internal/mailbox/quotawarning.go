// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// What mailbox_usage.nearly_full says of a mailbox that is.
const warningPending = 1

var (
	// nearlyFullQuery leaves out the deleted, of which nobody is told until they are
	// restored.
	nearlyFullQuery = db.SQL(`SELECT u.mailbox FROM mailbox_usage u JOIN mailbox m ON m.id = u.mailbox
		WHERE u.nearly_full = 1 AND m.deleted_at = 0 LIMIT $1`)
	markWarnedQuery = db.SQL(`UPDATE mailbox_usage SET nearly_full = 2 WHERE mailbox = $1 AND nearly_full = 1 RETURNING ` + usedExpr)
)

// ScanNearlyFull reads the row of AddUsage and ReserveUsage: it sets tell if the mailbox has
// become nearly full, at 90 % of its quota, and its owner was not told yet.
// Whoever commits that wakes signal.QuotaWarning.
func ScanNearlyFull(tell *bool) func(db.Row) error {
	return func(r db.Row) error {
		var state int
		err := r.Scan(&state)
		*tell = state == warningPending
		return err
	}
}

// ListNearlyFull lists at most limit mailboxes whose owners are to be told that they
// are nearly full.
func (m *Mailboxes) ListNearlyFull(ctx context.Context, limit int) ([]db.ID, error) {
	return db.All(ctx, m.db, nearlyFullQuery.With(limit), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
}

// MarkWarned makes the statement that decides whether an owner is told now: it
// returns a row, with what is used, once until the mailbox is nearly full again after it was less
// than 85 % full.
func MarkWarned(mailbox db.ID) db.Statement { return markWarnedQuery.With(mailbox) }
