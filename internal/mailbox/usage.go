// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// MinCharge is what a message counts for at least, in bytes: its rows take about as
// much, however small it is.
const MinCharge = 1024

// used is what the messages of a mailbox count for: the larger of its size and
// MinCharge each. The surcharge is below zero only until a recount, when messages
// went that were never counted in it. Only mailbox_usage has these columns: what SQLite
// returns of an UPDATE knows no alias.
const used = `(bytes + CASE WHEN surcharge > 0 THEN surcharge ELSE 0 END)`

const fullness = `CASE WHEN (` + used + ` + $2 + $4) * 20 < m.quota * 17 THEN 0
				WHEN u.nearly_full = 0 AND (` + used + ` + $2 + $4) * 10 >= m.quota * 9 THEN 1
				ELSE u.nearly_full END`

var (
	// Room made by an expunge ends the time of being over quota. Of a mailbox that
	// gets to 90 % of its quota the owner is to be told, and once more after it was
	// below 85 %.
	deposit = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3, surcharge = u.surcharge + $4,
			over_since = CASE WHEN $2 + $4 < 0 THEN 0 ELSE over_since END, nearly_full = ` + fullness + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 RETURNING nearly_full`)
	claim = db.SQL(`UPDATE mailbox_usage AS u SET bytes = u.bytes + $2, messages = u.messages + $3, surcharge = u.surcharge + $4, nearly_full = ` + fullness + `
		FROM mailbox m WHERE u.mailbox = $1 AND m.id = $1 AND ` + used + ` + $2 + $4 <= m.quota
			AND ($3 = 0 OR u.messages + $3 <= $5) RETURNING nearly_full`)
	hold      = db.SQL(`SELECT mailbox FROM mailbox_usage WHERE mailbox = $1 {for_update}`)
	setUse    = db.SQL(`UPDATE mailbox_usage SET bytes = $2, messages = $3, surcharge = $4 WHERE mailbox = $1`)
	roomOf    = db.SQL(`SELECT m.quota, ` + used + `, u.over_since FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id WHERE m.id = $1`)
	overSince = db.SQL(`UPDATE mailbox_usage SET over_since = $2 WHERE mailbox = $1 AND over_since = 0`)
	notOver   = db.SQL(`UPDATE mailbox_usage SET over_since = 0 WHERE mailbox = $1 AND over_since = $2`)
)

// MaxMessages is how many messages a client may fill a mailbox up to: a COPY, all
// of which is one commit, would hold up everybody's.
const MaxMessages = 5_000_000

// Hold makes the statement that takes the row of a mailbox's use. Whoever changes
// folders or messages of a mailbox takes that first, by this, Deposit or Claim, and
// then whatever it needs: else, on PostgreSQL, two that take rows of folders in
// different orders would wait for each other, until after a second it gives one up.
func Hold(mailbox db.ID) db.Statement { return hold.With(mailbox) }

// Use is what messages count for in a mailbox: their sizes, and beyond these the
// Surcharge of each.
type Use struct{ Bytes, Messages, Surcharge int64 }

// Charge returns what a message counts for: its size, or MinCharge if that is more.
func Charge(size int64) int64 { return max(size, MinCharge) }

// Surcharge returns what a message counts for beyond its size.
func Surcharge(size int64) int64 { return Charge(size) - size }

// Less returns what is to be deposited when messages go.
func (u Use) Less() Use { return Use{-u.Bytes, -u.Messages, -u.Surcharge} }

// UseOf returns the use of a message.
func UseOf(size int64) Use { return Use{size, 1, Surcharge(size)} }

// Deposit makes the statement that changes the use of a mailbox, which may become
// less. It may overrun the quota: what RCPT accepted is filed. It returns one row,
// for ToTell.
func Deposit(mailbox db.ID, more Use) db.Statement {
	return deposit.With(mailbox, more.Bytes, more.Messages, more.Surcharge)
}

// Claim makes the statement that takes room for messages; it changes no row when
// the quota, or MaxMessages, does not allow it (Full is what to decline with), and
// returns one for ToTell else.
func Claim(mailbox db.ID, more Use) db.Statement {
	return claim.With(mailbox, more.Bytes, more.Messages, more.Surcharge, MaxMessages)
}

// SetUse makes the statement that corrects the use of a mailbox. The caller has it
// (Hold).
func SetUse(mailbox db.ID, all Use) db.Statement {
	return setUse.With(mailbox, all.Bytes, all.Messages, all.Surcharge)
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
	ample         = 512 << 20
	ampleMessages = 50_000
	roomyFor      = time.Second
)

// Full is the fault.OverQuota of a mailbox without room.
func Full() error { return fault.New(fault.OverQuota, CodeFull, "The mailbox is full.") }

// Room judges at RCPT whether a message of size bytes (0 if unknown) may come:
// fault.OverQuota with CodeFull when there is no room, with CodeFullLong when
// that has been so for seven days; fault.TooLarge when it exceeds the quota
// itself, so that no waiting helps. A mailbox whose INBOX or Junk folder holds as
// many messages as a folder may is full.
//
// A mailbox with ample room is not looked at again for a second, in which it
// can't be filled; any change of its quota ends that at once.
func (m *Mailboxes) Room(ctx context.Context, mailbox db.ID, size int64) error {
	size = Charge(size)
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
	left := int64(ampleMessages)
	if m.Left != nil {
		if left, err = m.Left(ctx, mailbox); err != nil {
			return err
		}
	}
	switch full := size > quota-used || left <= 0; {
	case size > quota:
		return fault.New(fault.TooLarge, "message_over_quota", "The message is larger than the mailbox.")
	case full && over == 0:
		err = m.mark(ctx, mailbox, overSince.With(mailbox, db.Micros(now)))
	case full && now.Sub(db.Time(over)) >= OverLong:
		return fault.New(fault.OverQuota, CodeFullLong, "The mailbox has been full for a long time.")
	case !full && over != 0:
		return m.mark(ctx, mailbox, notOver.With(mailbox, over))
	case !full:
		if quota-used-size >= ample && left >= ampleMessages {
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
