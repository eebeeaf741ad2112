// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

const fullness = `CASE WHEN (u.bytes + $2) * 20 < m.quota * 17 THEN 0
				WHEN u.nearly_full = 0 AND (u.bytes + $2) * 10 >= m.quota * 9 THEN 1
				ELSE u.nearly_full END`

var (
	// Room made by an expunge ends the time of being over quota. Of a mailbox that
	// gets to 90 % of its quota the owner is to be told, and once more after it was
	// below 85 %.
	deposit = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3,
			over_since = CASE WHEN $2 < 0 THEN 0 ELSE over_since END, nearly_full = ` + fullness + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 RETURNING nearly_full`)
	claim = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3, nearly_full = ` + fullness + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 AND u.bytes + $2 <= m.quota
			AND ($3 = 0 OR u.messages + $3 <= $4) RETURNING nearly_full`)
	hold      = db.SQL(`SELECT mailbox FROM mailbox_usage WHERE mailbox = $1 {for_update}`)
	roomOf    = db.SQL(`SELECT m.quota, u.bytes, u.over_since FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id WHERE m.id = $1`)
	overSince = db.SQL(`UPDATE mailbox_usage SET over_since = $2 WHERE mailbox = $1 AND over_since = 0`)
	notOver   = db.SQL(`UPDATE mailbox_usage SET over_since = 0 WHERE mailbox = $1 AND over_since = $2`)
)

// MaxMessages is how many messages a client may fill a mailbox up to. Bytes do
// not bound them: who copies tiny ones over and over doubles them each time, and
// a COPY, all of which is one commit, would hold up everybody's.
const MaxMessages = 5_000_000

// Hold makes the statement that takes the row of a mailbox's use. Whoever changes
// folders or messages of a mailbox takes that first, by this, Deposit or Claim, and
// then whatever it needs: else, on PostgreSQL, two that take rows of folders in
// different orders would wait for each other, until after a second it gives one up.
func Hold(mailbox db.ID) db.Statement { return hold.With(mailbox) }

// Deposit makes the statement that changes a mailbox's use by bytes and
// messages, which may be negative. It may overrun the quota: what RCPT
// accepted is filed. It returns one row, for ToTell.
func Deposit(mailbox db.ID, bytes, messages int64) db.Statement {
	return deposit.With(mailbox, bytes, messages)
}

// Claim makes the statement that takes room for bytes and messages; it changes
// no row when the quota, or MaxMessages, does not allow it (Full is what to
// decline with), and returns one for ToTell else.
func Claim(mailbox db.ID, bytes, messages int64) db.Statement {
	return claim.With(mailbox, bytes, messages, MaxMessages)
}

// Codes of a fault.OverQuota.
const (
	CodeFull     = "mailbox_full"      // for now: 452 4.2.2
	CodeFullLong = "mailbox_full_long" // for over OverLong: 552 5.2.2
)

// OverLong is for how long a full mailbox has senders try again.
const OverLong = 7 * 24 * time.Hour

const (
	// ample room is more than arrives within roomyFor.
	ample    = 512 << 20
	roomyFor = time.Second
)

// Full is the fault.OverQuota of a mailbox without room.
func Full() error { return fault.New(fault.OverQuota, CodeFull, "The mailbox is full.") }

// Room judges at RCPT whether a message of size bytes (0 if unknown) may come:
// fault.OverQuota with CodeFull when there is no room, with CodeFullLong when
// that has been so for seven days; fault.TooLarge when it exceeds the quota
// itself, so that no waiting helps.
//
// A mailbox with ample room is not looked at again for a second, in which it
// can't be filled; any change of its quota ends that at once.
func (m *Mailboxes) Room(ctx context.Context, mailbox db.ID, size int64) error {
	now := m.now()
	m.mu.Lock()
	roomy := size < ample && now.Before(m.roomy[mailbox])
	changes := m.changes
	m.mu.Unlock()
	if roomy {
		return nil
	}
	var quota, used, over int64
	err := m.db.One(ctx, roomOf.With(mailbox), &quota, &used, &over)
	if errors.Is(err, db.ErrNoRow) {
		return notFound()
	}
	if err != nil {
		return err
	}
	switch full := used >= quota || size > quota-used; {
	case size > quota:
		return fault.New(fault.TooLarge, "message_over_quota", "The message is larger than the mailbox.")
	case full && over == 0:
		err = m.mark(ctx, mailbox, overSince.With(mailbox, db.Micros(now)))
	case full && now.Sub(db.Time(over)) >= OverLong:
		return fault.New(fault.OverQuota, CodeFullLong, "The mailbox has been full for a long time.")
	case !full && over != 0:
		return m.mark(ctx, mailbox, notOver.With(mailbox, over))
	case !full:
		if quota-used-size >= ample {
			remember(m, m.roomy, mailbox, now.Add(roomyFor), changes)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return Full()
}

func (m *Mailboxes) mark(ctx context.Context, mailbox db.ID, s db.Statement) error {
	return m.db.Write(ctx, mailbox, &db.Job{Guard: func(b *db.Batch) { b.Queue(s) }})
}
