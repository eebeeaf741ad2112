// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	storage = db.SQL(`SELECT CAST(COALESCE(SUM(CASE WHEN deleted_at = 0 THEN quota ELSE ` + used + ` END), 0) AS BIGINT),
			CAST(COALESCE(SUM(` + used + `), 0) AS BIGINT), CAST(COALESCE(SUM(CASE WHEN deleted_at = 0 THEN 0 ELSE ` + used + ` END), 0) AS BIGINT)
		FROM mailbox LEFT JOIN mailbox_usage u ON u.mailbox = id WHERE account = $1`)
	quotaOf = db.SQL(`SELECT quota FROM mailbox WHERE id = $1 AND account = $2`)
)

// Stored returns what the quotas of an account's mailboxes are together, and
// what these hold, in bytes. Of a deleted mailbox what it holds counts for both, until
// that is gone.
func (m *Mailboxes) Stored(ctx context.Context, account db.ID) (allotted, used int64, err error) {
	err = m.db.One(ctx, storage.With(account), &allotted, &used, new(int64))
	return allotted, used, err
}

// allot runs change, which gives a mailbox of the account a quota, and then
// finds out whether the quotas are still within the limit of them all: if not,
// it is a fault.Conflict. A quota that does not grow is never refused.
func (m *Mailboxes) allot(ctx context.Context, tx *db.Tx, account, id db.ID, limit int64, change func() error) error {
	if limit == 0 {
		return change()
	}
	// So that the figure is still true when this is committed.
	if err := m.Accounts.Hold(ctx, tx, account); err != nil {
		return err
	}
	before, err := live(ctx, tx, account, id)
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	var after, sum, deleted int64
	if err := tx.One(ctx, quotaOf.With(id, account), &after); err != nil {
		return err
	}
	if err := tx.One(ctx, storage.With(account), &sum, new(int64), &deleted); err != nil {
		return err
	}
	if sum <= limit || after <= before {
		return nil
	}
	text := fmt.Sprintf("The quotas of this account's mailboxes may be %d megabytes together; %d of them are left.", limit>>20, max(0, limit-sum+after-before)>>20)
	if deleted > 0 {
		text += fmt.Sprintf(" Deleted mailboxes hold %d megabytes until they can't be restored any more.", (deleted+1<<20-1)>>20)
	}
	return fault.New(fault.Conflict, "storage_limit_exceeded", "%s", text)
}

var liveQuota = db.SQL(`SELECT quota FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0`)

// live returns the quota that a mailbox has; 0 if it is not there, or deleted.
func live(ctx context.Context, tx *db.Tx, account, id db.ID) (quota int64, err error) {
	err = tx.One(ctx, liveQuota.With(id, account), &quota)
	if errors.Is(err, db.ErrNoRow) {
		return 0, nil
	}
	return quota, err
}

// storageLimit returns what the quotas of an account may be together; 0 is no
// limit.
func (m *Mailboxes) storageLimit(ctx context.Context, account db.ID) (int64, error) {
	if m.Storage == nil {
		return 0, nil
	}
	return m.Storage(ctx, account)
}
