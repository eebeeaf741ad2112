// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// MinCountedSize is what a message counts for at least, in bytes: its rows take about as
// much, however small it is.
const MinCountedSize = 1024

// usedExpr is what the messages of a mailbox count for: the larger of its size and
// MinCountedSize each. The surcharge is below zero only until a recount, when messages
// went that were never counted in it. Only mailbox_usage has these columns: what SQLite
// returns of an UPDATE knows no alias.
const usedExpr = `(bytes + CASE WHEN surcharge > 0 THEN surcharge ELSE 0 END)`

const nearlyFullExpr = `CASE WHEN (` + usedExpr + ` + $2 + $4) * 20 < m.quota * 17 THEN 0
				WHEN u.nearly_full = 0 AND (` + usedExpr + ` + $2 + $4) * 10 >= m.quota * 9 THEN 1
				ELSE u.nearly_full END`

var (
	// Room made by an expunge ends the time of being over quota. Of a mailbox that
	// gets to 90 % of its quota the owner is to be told, and once more after it was
	// below 85 %.
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

// MaxMessages is how many messages a client may fill a mailbox up to: a COPY, all
// of which is one commit, would hold up everybody's.
const MaxMessages = 5_000_000

// LockUsage makes the statement that takes the row of a mailbox's use. Whoever changes
// folders or messages of a mailbox takes that first, by this, AddUsage or ReserveUsage, and
// then whatever it needs: else, on PostgreSQL, two that take rows of folders in
// different orders would wait for each other, until after a second it gives one up.
func LockUsage(mailbox db.ID) db.Statement { return lockUsageQuery.With(mailbox) }

// Usage is what messages count for in a mailbox: their sizes, and beyond these the
// Surcharge of each.
type Usage struct{ Bytes, Messages, Overhead int64 }

// CountedSize returns what a message counts for: its size, or MinCountedSize if that is more.
func CountedSize(size int64) int64 { return max(size, MinCountedSize) }

// Overhead returns what a message counts for beyond its size.
func Overhead(size int64) int64 { return CountedSize(size) - size }

// Negate returns what is to be deposited when messages go.
func (u Usage) Negate() Usage { return Usage{-u.Bytes, -u.Messages, -u.Overhead} }

// MessageUsage returns the use of a message.
func MessageUsage(size int64) Usage { return Usage{size, 1, Overhead(size)} }

// AddUsage makes the statement that changes the use of a mailbox, which may become
// less. It may overrun the quota: what RCPT accepted is filed. It returns one row,
// for MessagesToNotify.
func AddUsage(mailbox db.ID, more Usage) db.Statement {
	return addUsageQuery.With(mailbox, more.Bytes, more.Messages, more.Overhead)
}

// ReserveUsage makes the statement that takes room for messages; it changes no row when
// the quota, or MaxMessages, does not allow it (Full is what to decline with), and
// returns one for MessagesToNotify else.
func ReserveUsage(mailbox db.ID, more Usage) db.Statement {
	return reserveUsageQuery.With(mailbox, more.Bytes, more.Messages, more.Overhead, MaxMessages)
}

// SetUsage makes the statement that corrects the use of a mailbox. The caller has it
// (Hold).
func SetUsage(mailbox db.ID, all Usage) db.Statement {
	return setUsageQuery.With(mailbox, all.Bytes, all.Messages, all.Overhead)
}

// Codes of a fault.OverQuota.
const (
	CodeMailboxFull     = "mailbox_full"      // for now: 452 4.2.2
	CodeMailboxFullLong = "mailbox_full_long" // for over FullGracePeriod: 552 5.2.2
)

// FullGracePeriod is for how long a full mailbox has senders try again.
const FullGracePeriod = 7 * 24 * time.Hour

const (
	// ampleBytes room is more than arrives within ampleTTL.
	ampleBytes    = 512 << 20
	ampleMessages = 50_000
	ampleTTL      = time.Second
)

// FullError is the fault.OverQuota of a mailbox without room.
func FullError() error { return fault.New(fault.OverQuota, CodeMailboxFull, "The mailbox is full.") }

// CheckQuota judges at RCPT whether a message of size bytes (0 if unknown) may come:
// fault.OverQuota with CodeMailboxFull when there is no room, with CodeMailboxFullLong when
// that has been so for seven days; fault.TooLarge when it exceeds the quota
// itself, so that no waiting helps. A mailbox whose INBOX or Junk folder holds as
// many messages as a folder may is full.
//
// A mailbox with ample room is not looked at again for a second, in which it
// can't be filled; any change of its quota ends that at once.
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
	if errors.Is(err, db.ErrNoRow) {
		return notFound()
	}
	if err != nil {
		return err
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
