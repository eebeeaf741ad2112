// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	allottedQuery = db.SQL(`SELECT CAST(COALESCE((SELECT allotted FROM mailbox_storage WHERE account = $1), 0) AS BIGINT),
		CAST(COALESCE((SELECT SUM(` + usedExpr + `) FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE account = $1 AND deleted_at > 0), 0) AS BIGINT)`)
	usedBytesQuery   = db.SQL(`SELECT COUNT(*), CAST(COALESCE(SUM(` + usedExpr + `), 0) AS BIGINT) FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE account = $1`)
	liveQuotaQuery   = db.SQL(`SELECT quota FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	addAllottedQuery = db.SQL(`INSERT INTO mailbox_storage (account, allotted) VALUES ($1, $2)
		ON CONFLICT (account) DO UPDATE SET allotted = mailbox_storage.allotted + excluded.allotted`)
)

// StorageUsage returns the sum of the quotas of an account's mailboxes and their usage, in bytes.
// The usage of a deleted mailbox counts for both until it is purged. The usage of more than
// MaxSummedMailboxes may be up to UsedSumTTL old.
func (m *Mailboxes) StorageUsage(ctx context.Context, account db.ID) (quotas, used int64, err error) {
	var deleted int64
	if err := m.db.One(ctx, allottedQuery.With(account), &quotas, &deleted); err != nil {
		return 0, 0, err
	}
	used, err = m.usedBytes(ctx, account)
	return quotas + deleted, used, err
}

const (
	// MaxSummedMailboxes is the maximum number of mailboxes of an account that are summed up on
	// each call.
	MaxSummedMailboxes = 1000
	// UsedSumTTL is how long the sum of more mailboxes is cached.
	UsedSumTTL = time.Minute
)

// usedSumCache caches the usage of large accounts. If the sum were a column, all deliveries to an
// account would have to update the same row, one after the other.
type usedSumCache struct {
	semaphores notify.KeyedSemaphore[db.ID] // one reader per account at a time
	mu         sync.Mutex
	byAccount  map[db.ID]cachedSum
}

type cachedSum struct {
	bytes     int64
	expiresAt time.Time
}

func (s *usedSumCache) get(account db.ID, now time.Time) (bytes int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.byAccount[account]
	return sum.bytes, now.Before(sum.expiresAt)
}

func (s *usedSumCache) put(account db.ID, bytes int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, sum := range s.byAccount {
		if !now.Before(sum.expiresAt) {
			delete(s.byAccount, other)
		}
	}
	s.byAccount[account] = cachedSum{bytes, now.Add(UsedSumTTL)}
}

func (m *Mailboxes) usedBytes(ctx context.Context, account db.ID) (int64, error) {
	if bytes, ok := m.usedSums.get(account, m.now()); ok {
		return bytes, nil
	}
	pass, err := m.usedSums.semaphores.Acquire(ctx, account, 1)
	if err != nil {
		return 0, err
	}
	defer pass()
	now := m.now()
	if bytes, ok := m.usedSums.get(account, now); ok { // another caller has read it meanwhile
		return bytes, nil
	}
	var mailboxes, bytes int64
	err = m.db.One(ctx, usedBytesQuery.With(account), &mailboxes, &bytes)
	if err == nil && mailboxes > MaxSummedMailboxes {
		m.usedSums.put(account, bytes, now)
	}
	return bytes, err
}

// withinStorageLimit runs change, which may change the quota of a mailbox of the account, create or
// delete it, and updates the sum of the quotas. Then it checks whether the sum of the quotas is within the limit; if not, it returns a
// fault.Conflict. A quota that doesn't grow is never rejected; limit 0 means none.
func (m *Mailboxes) withinStorageLimit(ctx context.Context, tx *db.Tx, account, id db.ID, limit int64, change func() error) error {
	// The lock keeps the sum valid until the commit.
	if err := m.Accounts.Lock(ctx, tx, account); err != nil {
		return err
	}
	before, err := quotaIfLive(ctx, tx, account, id)
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	after, err := quotaIfLive(ctx, tx, account, id)
	if err == nil && after != before {
		err = tx.Run(ctx, addAllottedQuery.With(account, after-before))
	}
	if err != nil || limit == 0 || after <= before {
		return err
	}
	var quotas, deleted int64
	if err := tx.One(ctx, allottedQuery.With(account), &quotas, &deleted); err != nil {
		return err
	}
	sum := quotas + deleted
	if sum <= limit {
		return nil
	}
	text := fmt.Sprintf("The quotas of this account's mailboxes may be %d megabytes together; %d of them are left.", limit>>20, max(0, limit-sum+after-before)>>20)
	if deleted > 0 {
		text += fmt.Sprintf(" Deleted mailboxes hold %d megabytes until they can't be restored any more.", (deleted+1<<20-1)>>20)
	}
	return fault.New(fault.Conflict, "storage_limit_exceeded", "%s", text)
}

// quotaIfLive returns the quota of a mailbox; 0 if it is missing or deleted.
func quotaIfLive(ctx context.Context, tx *db.Tx, account, id db.ID) (quota int64, err error) {
	return quota, db.IfNoRow(tx.One(ctx, liveQuotaQuery.With(id, account), &quota), nil)
}

// storageLimit returns the limit for the sum of the quotas of an account; 0 means no limit.
func (m *Mailboxes) storageLimit(ctx context.Context, account db.ID) (int64, error) {
	if m.StorageLimit == nil {
		return 0, nil
	}
	return m.StorageLimit(ctx, account)
}
