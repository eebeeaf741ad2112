// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// RestorePeriod is how long a deleted mailbox can be restored.
const RestorePeriod = 30 * 24 * time.Hour

// Change is a change of a mailbox; nil fields stay as they are.
type Change struct {
	DisplayName *string
	QuotaMB     *int
	Status      *string // StatusActive or StatusSuspended
	// ForwardTo are additional addresses that receive its mail, at most MaxForwards; an empty list
	// ends forwarding.
	ForwardTo  *[]string
	KeepCopy   *bool // forwarded mail is also stored here
	SpamFilter *SpamFilter
}

var (
	// Suspending ends cached logins on every node, even if notifications are lost.
	updateQuery = db.SQL(`UPDATE mailbox SET
			display_name = CASE WHEN CAST($3 AS BOOLEAN) THEN CAST($4 AS TEXT) ELSE display_name END,
			quota = CASE WHEN CAST($5 AS BIGINT) > 0 THEN $5 ELSE quota END,
			generation = CASE WHEN CAST($6 AS TEXT) = '' OR $6 = status THEN generation ELSE generation + 1 END,
			status = CASE WHEN $6 = '' THEN status ELSE $6 END,
			forward_to = CASE WHEN CAST($7 AS BOOLEAN) THEN CAST($8 AS TEXT) ELSE forward_to END,
			keep_copy = CASE WHEN CAST($9 AS BOOLEAN) THEN CAST($10 AS BOOLEAN) ELSE keep_copy END,
			spam_filter = CASE WHEN CAST($11 AS TEXT) = '' THEN spam_filter ELSE $11 END
		WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	deleteMailboxQuery = db.SQL(`UPDATE mailbox SET deleted_at = $3, generation = generation + 1
		WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	restoreQuery = db.SQL(`UPDATE mailbox SET deleted_at = 0, generation = generation + 1
		WHERE id = $1 AND account = $2 AND deleted_at > $3`)
	setPasswordQuery = db.SQL(`UPDATE mailbox SET password = $3, scram_of = $3, scram = $4, generation = generation + 1
		WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	changePasswordQuery = db.SQL(`UPDATE mailbox SET password = $3, scram_of = $3, scram = $4, generation = generation + 1
		WHERE id = $1 AND account = $2 AND deleted_at = 0 AND generation = $5`)
)

// Update changes a mailbox. A quota above the account's remaining quota is a fault.Conflict.
func (m *Mailboxes) Update(ctx context.Context, account, id db.ID, c Change) (Mailbox, error) {
	set, quota, err := m.updateStatement(ctx, account, id, c)
	if err != nil {
		return Mailbox{}, err
	}
	limit := int64(0)
	if quota {
		if limit, err = m.storageLimit(ctx, account); err != nil {
			return Mailbox{}, err
		}
	}
	tell := false
	write := func(tx *db.Tx) error {
		if c.DisplayName == nil {
			return tx.ExecOrFail(ctx, set, notFound())
		}
		return updatePieces(ctx, tx, account, id, func() error { return tx.ExecOrFail(ctx, set, notFound()) })
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if !quota {
			return write(tx)
		}
		if err := m.withinStorageLimit(ctx, tx, account, id, limit, func() error { return write(tx) }); err != nil {
			return err
		}
		// With another quota, the mailbox may become nearly full or stop being so.
		return tx.Each(ctx, AddUsage(id, Usage{}), ScanNearlyFull(&tell))
	})
	if err != nil {
		return Mailbox{}, err
	}
	if c.Status != nil {
		m.revokeLogins(id)
	} else {
		m.notifyChanged(id)
	}
	if tell {
		m.Hub.Wake(notify.Key{Kind: notify.QuotaWarning})
	}
	return m.Get(ctx, account, id)
}

// updateStatement validates a change. It returns the statement that makes it, and whether it sets a
// quota.
func (m *Mailboxes) updateStatement(ctx context.Context, account, id db.ID, c Change) (set db.Statement, gives bool, err error) {
	var bad fault.FieldErrors
	var name, status, forward string
	var quota int64
	if c.DisplayName != nil {
		name = *c.DisplayName
		checkDisplayName(&bad, name)
	}
	if c.QuotaMB != nil {
		m.validateQuotaMB(&bad, *c.QuotaMB)
		quota = int64(*c.QuotaMB) << 20
	}
	if c.Status != nil {
		status = *c.Status
		if status != StatusActive && status != StatusSuspended {
			bad.Add("status", "unknown_status", "Give active or suspended.")
		}
	}
	if c.ForwardTo != nil {
		if forward, err = m.parseForwards(ctx, &bad, account, id, *c.ForwardTo); err != nil {
			return set, false, err
		}
	}
	filter := SpamFilter("")
	if c.SpamFilter != nil {
		filter = *c.SpamFilter
		checkSpamFilter(&bad, filter)
	}
	keep := c.KeepCopy == nil || *c.KeepCopy
	return updateQuery.With(id, account, c.DisplayName != nil, name, quota, status, c.ForwardTo != nil, forward, c.KeepCopy != nil, keep, string(filter)), quota > 0, bad.Err()
}

// Delete disables a mailbox immediately. It can be restored for 30 days; meanwhile its address is
// free for another mailbox.
func (m *Mailboxes) Delete(ctx context.Context, account, id db.ID) error {
	if err := m.db.Tx(ctx, func(tx *db.Tx) error {
		return m.withinStorageLimit(ctx, tx, account, id, 0, func() error {
			return tx.ExecOrFail(ctx, deleteMailboxQuery.With(id, account, db.Micros(m.now())), notFound())
		})
	}); err != nil {
		return err
	}
	m.revokeLogins(id)
	return nil
}

// Restore restores a deleted mailbox unchanged. It returns a fault.Conflict if the address is in
// use by another, if the mailbox isn't deleted, or if its quota is above the account's remaining
// quota.
func (m *Mailboxes) Restore(ctx context.Context, account, id db.ID) (Mailbox, error) {
	limit, err := m.storageLimit(ctx, account)
	if err != nil {
		return Mailbox{}, err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := m.withinStorageLimit(ctx, tx, account, id, limit, func() error {
			return tx.ExecOrFail(ctx, restoreQuery.With(id, account, db.Micros(m.now().Add(-RestorePeriod))), notFound())
		}); err != nil {
			return err
		}
		return m.checkNoAlias(ctx, tx, id)
	})
	switch {
	case m.db.IsConflict(err):
		return Mailbox{}, addressTakenError()
	case fault.Is(err, fault.NotFound):
		if _, lives := m.Get(ctx, account, id); lives == nil {
			err = fault.New(fault.Conflict, "not_deleted", "This mailbox is not deleted.")
		}
		return Mailbox{}, err
	case err != nil:
		return Mailbox{}, err
	}
	m.revokeLogins(id)
	return m.Get(ctx, account, id)
}

// SetPassword sets the password of a mailbox. If given is nil, it generates and returns one. Logins
// with the old password end immediately on every node.
func (m *Mailboxes) SetPassword(ctx context.Context, account, id db.ID, given *string) (string, error) {
	if given != nil {
		if err := credential.CheckNewPassword("password", *given).Err(); err != nil {
			return "", err
		}
	}
	// Hashing is expensive, so check first that the mailbox exists.
	box, err := m.Get(ctx, account, id)
	if err != nil {
		return "", err
	}
	password, made, stored, err := m.hashPassword(ctx, account, box.Address, given)
	if err != nil {
		return "", err
	}
	if err := m.replacePassword(ctx, id, setPasswordQuery.With(id, account, stored.phc, stored.scram), notFound()); err != nil {
		return "", err
	}
	m.revokeLogins(id)
	if !made {
		password = ""
	}
	return password, nil
}

// ChangePassword is SetPassword for a user who has just signed in to box. It returns the updated
// mailbox. It returns a fault.Conflict if that login has ended meanwhile, so that someone with the
// old password can't override the person who ended the login.
func (m *Mailboxes) ChangePassword(ctx context.Context, box Mailbox, password string) (Mailbox, error) {
	if err := credential.CheckNewPassword("password", password).Err(); err != nil {
		return Mailbox{}, err
	}
	_, _, stored, err := m.hashPassword(ctx, box.Account, box.Address, &password)
	if err != nil {
		return Mailbox{}, err
	}
	changed := fault.New(fault.Conflict, "password_changed", "The password was changed meanwhile.")
	if err := m.replacePassword(ctx, box.ID, changePasswordQuery.With(box.ID, box.Account, stored.phc, stored.scram, box.generation), changed); err != nil {
		return Mailbox{}, err
	}
	m.revokeLogins(box.ID)
	box.generation++
	return box, nil
}

// replacePassword sets the password of a mailbox, which ends all its logins. If the statement
// changes no row it returns unchanged.
func (m *Mailboxes) replacePassword(ctx context.Context, id db.ID, set db.Statement, unchanged error) error {
	return m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, set, unchanged); err != nil {
			return err
		}
		return m.Logins.ForgetNetworks(ctx, tx, credentialOf(kindPassword, id))
	})
}

var (
	purgeableQuery   = db.SQL(`SELECT id, account FROM mailbox WHERE deleted_at > 0 AND deleted_at < $1 ORDER BY deleted_at LIMIT $2`)
	purgeQuery       = db.SQL(`DELETE FROM mailbox WHERE id = $1 AND deleted_at > 0 AND deleted_at < $2`)
	deleteUsageQuery = db.SQL(`DELETE FROM mailbox_usage WHERE mailbox = $1`)
)

// purgeMargin is added to RestorePeriod, so that nodes whose clocks differ never purge a mailbox
// that another node is restoring.
const purgeMargin = 24 * time.Hour

// purgeBatchSize is the maximum number of mailboxes that Purge deletes.
const purgeBatchSize = 100

// Purge permanently deletes mailboxes that can no longer be restored, with all mail. It returns how
// many it deleted.
func (m *Mailboxes) Purge(ctx context.Context) (int, error) {
	if m.Node != nil {
		if _, ok := m.Node.Lease(); !ok { // this node's clock may be wrong
			return 0, nil
		}
	}
	before := db.Micros(m.now().Add(-RestorePeriod - purgeMargin))
	type box struct{ id, account db.ID }
	boxes, err := db.All(ctx, m.db, purgeableQuery.With(before, purgeBatchSize), func(r db.Row) (b box, err error) { return b, r.Scan(&b.id, &b.account) })
	if err != nil {
		return 0, err
	}
	var failed error
	purged := 0
	for _, b := range boxes {
		err := m.DeleteMail(ctx, b.id)
		if err == nil {
			err = m.db.Tx(ctx, func(tx *db.Tx) error { return m.purgeMailbox(ctx, tx, b.account, b.id, before) })
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		purged++
	}
	return purged, failed
}

// purgeMailbox deletes the rows of a mailbox that was deleted before a time.
func (m *Mailboxes) purgeMailbox(ctx context.Context, tx *db.Tx, account, id db.ID, before int64) error {
	if err := m.Accounts.Lock(ctx, tx, account); err != nil {
		return err
	}
	err := updatePieces(ctx, tx, account, id, func() error { return tx.Run(ctx, purgeQuery.With(id, before)) })
	if err != nil {
		return err
	}
	return tx.Run(ctx, removeTargetQuery.With(id), deleteAppPasswordsQuery.With(id), deleteLinksQuery.With(id), deleteSignInsQuery.With(id),
		deleteSessionsQuery.With(id), deleteVacationQuery.With(id), deleteRepliesQuery.With(id), deleteUsageQuery.With(id))
}

// RunMaintenance runs every hour until ctx ends. It purges deleted mailboxes, unwanted verifiers
// and stale sessions. It passes errors to report.
func (m *Mailboxes) RunMaintenance(ctx context.Context, report func(error)) error {
	notify.Repeat(ctx, nil, func(ctx context.Context) (time.Duration, error) {
		n, err := m.Purge(ctx)
		again := time.Hour
		if n == purgeBatchSize {
			again = 0
		}
		return again, errors.Join(err, m.deleteVerifiers(ctx), m.deleteStaleSessions(ctx))
	}, report)
	return nil
}
