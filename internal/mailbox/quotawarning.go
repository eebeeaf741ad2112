// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// warningPending is the value of mailbox_usage.nearly_full until the owner was warned.
const warningPending = 1

var (
	// nearlyFullQuery excludes deleted mailboxes; their owners are warned after a restore.
	nearlyFullQuery = db.SQL(`SELECT u.mailbox FROM mailbox_usage u JOIN mailbox m ON m.id = u.mailbox
		WHERE u.nearly_full = 1 AND m.deleted_at = 0 LIMIT $1`)
	markWarnedQuery = db.SQL(`UPDATE mailbox_usage SET nearly_full = 2 WHERE mailbox = $1 AND nearly_full = 1 RETURNING ` + usedExpr)
)

// ScanNearlyFull reads the row of AddUsage and ReserveUsage. It sets tell if the mailbox has
// reached 90 % of its quota and its owner was not warned yet. The caller that commits this wakes
// notify.QuotaWarning.
func ScanNearlyFull(tell *bool) func(db.Row) error {
	return func(r db.Row) error {
		var state int
		err := r.Scan(&state)
		*tell = state == warningPending
		return err
	}
}

// ListNearlyFull lists at most limit mailboxes whose owners are to be warned.
func (m *Mailboxes) ListNearlyFull(ctx context.Context, limit int) ([]db.ID, error) {
	return db.All(ctx, m.db, nearlyFullQuery.With(limit), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
}

// MarkWarned returns the statement that decides whether an owner is warned now. It returns a row
// with the usage once. After the usage fell below 85 %, it does so again when the mailbox is nearly
// full.
func MarkWarned(mailbox db.ID) db.Statement { return markWarnedQuery.With(mailbox) }
