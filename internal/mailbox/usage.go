// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// MinCountedSize is the minimum size that a message counts for, in bytes. The rows of a message
// take about as much, however small it is.
const MinCountedSize = 1024

// usedExpr is the usage of a mailbox: the larger of size and MinCountedSize of each message. The
// surcharge can be negative until a recount, if messages were removed that were never counted in
// it. Only mailbox_usage has these columns, because RETURNING of an UPDATE in SQLite knows no
// alias.
const usedExpr = `(bytes + CASE WHEN surcharge > 0 THEN surcharge ELSE 0 END)`

const nearlyFullExpr = `CASE WHEN (` + usedExpr + ` + $2 + $4) * 20 < m.quota * 17 THEN 0
				WHEN u.nearly_full = 0 AND (` + usedExpr + ` + $2 + $4) * 10 >= m.quota * 9 THEN 1
				ELSE u.nearly_full END`

var (
	// Freeing space by an expunge ends the over-quota period. At 90 % of its quota the owner is to
	// be warned, and again only after the usage was below 85 %.
	addUsageQuery = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3, surcharge = u.surcharge + $4,
			over_since = CASE WHEN $2 + $4 < 0 THEN 0 ELSE over_since END, nearly_full = ` + nearlyFullExpr + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 RETURNING nearly_full`)
	reserveUsageQuery = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3, surcharge = u.surcharge + $4, nearly_full = ` + nearlyFullExpr + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 AND ` + usedExpr + ` + $2 + $4 <= m.quota
			AND ($3 = 0 OR u.messages + $3 <= $5) RETURNING nearly_full`)
	lockUsageQuery      = db.SQL(`SELECT mailbox FROM mailbox_usage WHERE mailbox = $1 {for_update}`)
	setUsageQuery       = db.SQL(`UPDATE mailbox_usage SET bytes = $2, messages = $3, surcharge = $4 WHERE mailbox = $1`)
	quotaUsageQuery     = db.SQL(`SELECT m.quota, ` + usedExpr + `, u.over_since FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id WHERE m.id = $1`)
	startOverQuotaQuery = db.SQL(`UPDATE mailbox_usage SET over_since = $2 WHERE mailbox = $1 AND over_since = 0`)
	endOverQuotaQuery   = db.SQL(`UPDATE mailbox_usage SET over_since = 0 WHERE mailbox = $1 AND over_since = $2`)
)

// MaxMessages is the maximum number of messages that a client may store in a mailbox. A COPY of all
// is one commit, and a larger one would delay everybody's.
const MaxMessages = 5_000_000

// LockUsage returns the statement that locks the usage row of a mailbox. A transaction that changes
// folders or messages of a mailbox must lock it first, by LockUsage, AddUsage or ReserveUsage. On
// PostgreSQL two transactions that lock folder rows in different orders would deadlock, until after
// a second one of them is aborted.
func LockUsage(mailbox db.ID) db.Statement { return lockUsageQuery.With(mailbox) }

// Usage is the amount that messages count for: their sizes, their number, and the Overhead beyond
// the sizes.
type Usage struct{ Bytes, Messages, Overhead int64 }

// CountedSize returns the size that a message counts for: its size, or MinCountedSize if that is
// larger.
func CountedSize(size int64) int64 { return max(size, MinCountedSize) }

// Overhead returns the bytes that a message counts for beyond its size.
func Overhead(size int64) int64 { return CountedSize(size) - size }

// Negate returns the usage change when messages are removed.
func (u Usage) Negate() Usage { return Usage{-u.Bytes, -u.Messages, -u.Overhead} }

// MessageUsage returns the usage of a message.
func MessageUsage(size int64) Usage { return Usage{size, 1, Overhead(size)} }

// AddUsage returns the statement that changes the usage of a mailbox, up or down. It may exceed the
// quota, because mail accepted at RCPT is always stored. It returns one row, for ScanNearlyFull.
func AddUsage(mailbox db.ID, more Usage) db.Statement {
	return addUsageQuery.With(mailbox, more.Bytes, more.Messages, more.Overhead)
}

// ReserveUsage returns the statement that adds the usage of messages. If the quota or MaxMessages
// doesn't allow it, it changes no row and the caller returns FullError. Otherwise it returns one
// row, for ScanNearlyFull.
func ReserveUsage(mailbox db.ID, more Usage) db.Statement {
	return reserveUsageQuery.With(mailbox, more.Bytes, more.Messages, more.Overhead, MaxMessages)
}

// SetUsage returns the statement that corrects the usage of a mailbox. The caller holds its lock
// (LockUsage).
func SetUsage(mailbox db.ID, all Usage) db.Statement {
	return setUsageQuery.With(mailbox, all.Bytes, all.Messages, all.Overhead)
}

// Codes of a fault.OverQuota.
const (
	CodeMailboxFull     = "mailbox_full"      // temporary: 452 4.2.2
	CodeMailboxFullLong = "mailbox_full_long" // after FullGracePeriod: 552 5.2.2
)

// FullGracePeriod is how long a full mailbox makes senders try again.
const FullGracePeriod = 7 * 24 * time.Hour

const (
	// ampleBytes is more than can arrive within ampleTTL.
	ampleBytes    = 512 << 20
	ampleMessages = 50_000
	ampleTTL      = time.Second
)

// FullError returns the fault.OverQuota for a full mailbox.
func FullError() error { return fault.New(fault.OverQuota, CodeMailboxFull, "The mailbox is full.") }

// CheckQuota checks at RCPT whether a mailbox can receive a message of size bytes (0 if unknown).
// It returns fault.OverQuota with CodeMailboxFull if the mailbox is full, or with
// CodeMailboxFullLong if it has been full for seven days. It returns fault.TooLarge if the message
// exceeds the quota itself, so that waiting doesn't help. A mailbox is also full if its INBOX or
// Junk folder has the maximum number of messages.
//
// For a mailbox with ample free quota the result is cached for a second, in which it can't be
// filled. Any change of its quota invalidates the cache.
func (m *Mailboxes) CheckQuota(ctx context.Context, mailbox db.ID, size int64) error {
	size = CountedSize(size)
	now := m.now()
	m.mu.Lock()
	roomy := size < ampleBytes && now.Before(m.ampleUntil[mailbox])
	changes := m.changeCount
	m.mu.Unlock()
	if roomy {
		return nil
	}
	var quota, used, over int64
	err := m.db.One(ctx, quotaUsageQuery.With(mailbox), &quota, &used, &over)
	if err != nil {
		return db.IfNoRow(err, notFound())
	}
	left := int64(ampleMessages)
	if m.RemainingMessages != nil {
		if left, err = m.RemainingMessages(ctx, mailbox); err != nil {
			return err
		}
	}
	switch full := size > quota-used || left <= 0; {
	case size > quota:
		return fault.New(fault.TooLarge, "message_over_quota", "The message is larger than the mailbox.")
	case full && over == 0:
		err = m.setOverSince(ctx, mailbox, startOverQuotaQuery.With(mailbox, db.Micros(now)))
	case full && now.Sub(db.Time(over)) >= FullGracePeriod:
		return fault.New(fault.OverQuota, CodeMailboxFullLong, "The mailbox has been full for a long time.")
	case !full && over != 0:
		return m.setOverSince(ctx, mailbox, endOverQuotaQuery.With(mailbox, over))
	case !full:
		if quota-used-size >= ampleBytes && left >= ampleMessages {
			cacheUnlessChanged(m, m.ampleUntil, mailbox, now.Add(ampleTTL), changes)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return FullError()
}

func (m *Mailboxes) setOverSince(ctx context.Context, mailbox db.ID, s db.Statement) error {
	return m.db.Write(ctx, mailbox, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(s) }})
}
