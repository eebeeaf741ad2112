// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// The actions of a notice, in the words of RFC 3464 §2.3.3.
const (
	ActionFailed    = "failed"
	ActionDelayed   = "delayed"
	ActionDelivered = "delivered"
	ActionRelayed   = "relayed" // to a host that will not report; from "local" to addresses elsewhere
)

// Notice is what the sender of a submission is to be told of one recipient. It
// is written in the commit of what happened, and stays until Told is committed.
type Notice struct {
	ID        db.ID
	Message   db.ID
	N         int
	Action    string
	Recipient string
	Original  string // ORCPT as "rfc822;a@b", decoded; "" for none
	Code      int    // of the host's reply; 0 if there was none
	Enhanced  string
	Reply     string
	Remote    string    // the host, "local", "sandbox", or ""
	NextAt    time.Time // of delayed: the next try
	ExpiresAt time.Time // of delayed: until when it is tried
	At        time.Time
}

const (
	// delayNoticeAfter is after how long the sender is told that the mail is not
	// there yet.
	delayNoticeAfter = 4 * time.Hour
	// senderNotifyShift parts NOTIFY as given from what we tell, in the column.
	senderNotifyShift = 4
	notifyBits        = 1<<senderNotifyShift - 1
	// maxNoticeWait is how long a notice waits at most for those of other
	// recipients that are in hand, to be told in the same mail.
	maxNoticeWait = 10 * time.Second
	// delayNoticeChunk bounds how many late deliveries are noted in one commit.
	delayNoticeChunk = 200
)

// senderNotify is what the sender is told of a recipient: NOTIFY, or what that is by
// default (RFC 3461 §4.1).
func (p *Reservation) senderNotify(r Recipient) smtpclient.Notify {
	switch {
	case !p.m.NotifySender:
		return 0
	case r.Notify == 0:
		return smtpclient.NotifyFailure | smtpclient.NotifyDelay
	}
	return r.Notify
}

// delayNoticeAt is when the sender is told that a recipient has nothing yet; zero:
// never.
func (p *Reservation) delayNoticeAt(r Recipient) time.Time {
	switch {
	case p.senderNotify(r)&smtpclient.NotifyDelay == 0:
		return time.Time{}
	case p.m.DueAt.After(p.at):
		return p.m.DueAt.Add(delayNoticeAfter)
	}
	return p.at.Add(delayNoticeAfter)
}

// newNotice returns what the sender is to be told of a verdict, nil for nothing.
func (q *Queue) newNotice(d *Delivery, v outcomeRecord) *Notice {
	n := &Notice{
		ID: q.o.DB.NewID(), Message: d.Message, N: d.N, Recipient: d.Recipient, Original: d.Original,
		Code: v.Code, Enhanced: v.Enhanced, Reply: v.Reply, Remote: v.Remote, At: q.o.Now(),
	}
	switch {
	case (v.State == Bounced || v.State == Failed) && d.senderNotify&smtpclient.NotifyFailure != 0:
		n.Action = ActionFailed
	case v.State == Delivered && d.senderNotify&smtpclient.NotifySuccess != 0 && !v.RemoteDSN:
		n.Action = ActionRelayed
		if v.Remote == "local" && !v.Forwarded {
			n.Action = ActionDelivered
		}
	default:
		return nil
	}
	return n
}

var (
	insertNoticeQuery = db.SQL(`INSERT INTO notice (id, message, n, action, recipient, orcpt, code, enhanced, reply, remote,
			next_at, expires_at, at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)`)
	deleteNoticeQuery   = db.SQL(`DELETE FROM notice WHERE id = $1`)
	postponeNoticeQuery = db.SQL(`UPDATE notice SET due_at = $2 WHERE id = $1`)
	dueNoticesQuery     = db.SQL(`SELECT message FROM notice WHERE due_at <= $1 ORDER BY due_at LIMIT $2`)
	messageNoticesQuery = db.SQL(`SELECT id, message, n, action, recipient, orcpt, code, enhanced, reply, remote, next_at, expires_at, at
		FROM notice WHERE message = $1 ORDER BY n, id`)
	countLeasedQuery = db.SQL(`SELECT COUNT(*) FROM delivery WHERE message = $1 AND tenure > 0
		AND state IN ('scheduled', 'queued', 'deferred')`)
	anyDelayedQuery = db.SQL(`SELECT late_at FROM delivery
		WHERE tenure IS NULL AND late_at > 0 AND state IN ('scheduled', 'queued', 'deferred') AND late_at <= $1 LIMIT 1`)
	// A delivery that is in hand at this moment is noted when it no longer is,
	// should it be late still.
	takeDelayedQuery = db.SQL(`WITH late AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE tenure IS NULL AND late_at > 0 AND state IN ('scheduled', 'queued', 'deferred') AND late_at <= $1
			ORDER BY late_at LIMIT $2 {skip_locked})
		UPDATE delivery SET late_at = 0 WHERE (message, n) IN (SELECT message, n FROM late)
		RETURNING message, n, recipient, orcpt, code, enhanced, reply, remote, due_at, expires_at`)
)

func (n *Notice) insertStatement() db.Statement {
	return insertNoticeQuery.With(n.ID, n.Message, n.N, n.Action, n.Recipient, n.Original, n.Code, n.Enhanced, n.Reply, n.Remote,
		db.Micros(n.NextAt), db.Micros(n.ExpiresAt), db.Micros(n.At))
}

func scanNotice(r db.Row) (n Notice, err error) {
	var next, expires, at int64
	err = r.Scan(&n.ID, &n.Message, &n.N, &n.Action, &n.Recipient, &n.Original, &n.Code, &n.Enhanced, &n.Reply, &n.Remote,
		&next, &expires, &at)
	n.NextAt, n.ExpiresAt, n.At = db.Time(next), db.Time(expires), db.Time(at)
	return n, err
}

// HasDelayed reports whether AddDelayNotices would find something.
func (q *Queue) HasDelayed(ctx context.Context) (bool, error) {
	err := q.o.DB.One(ctx, anyDelayedQuery.With(db.Micros(q.o.Now())), new(int64))
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}

// AddDelayNotices makes notices of what has not been delivered for four hours, once
// for each delivery whose sender wants to know. It reports whether there may
// be more.
func (q *Queue) AddDelayNotices(ctx context.Context) (more bool, err error) {
	now := q.o.Now()
	count := 0
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		count = 0
		var found []Notice
		err := tx.Each(ctx, takeDelayedQuery.With(db.Micros(now), delayNoticeChunk), func(r db.Row) error {
			n := Notice{ID: q.o.DB.NewID(), Action: ActionDelayed, At: now}
			var next, expires int64
			err := r.Scan(&n.Message, &n.N, &n.Recipient, &n.Original, &n.Code, &n.Enhanced, &n.Reply, &n.Remote, &next, &expires)
			n.NextAt, n.ExpiresAt = db.Time(next), db.Time(expires)
			found = append(found, n)
			return err
		})
		if err != nil {
			return err
		}
		for i := range found {
			if _, err := tx.Exec(ctx, found[i].insertStatement()); err != nil {
				return err
			}
		}
		count = len(found)
		return nil
	})
	if err == nil && count > 0 {
		q.o.Hub.Wake(notify.Key{Kind: notify.SenderNotice})
	}
	return count == delayNoticeChunk, err
}

// MessagesToNotify returns messages whose senders are to be told something now: those of
// the first limit notices. more says that there were so many.
func (q *Queue) MessagesToNotify(ctx context.Context, limit int) (list []db.ID, more bool, err error) {
	seen := map[db.ID]bool{}
	notices := 0
	err = q.o.DB.Each(ctx, dueNoticesQuery.With(db.Micros(q.o.Now()), limit), func(r db.Row) error {
		var id db.ID
		if err := r.Scan(&id); err != nil {
			return err
		}
		if notices++; !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
		return nil
	})
	return list, notices == limit, err
}

// Notices returns what the sender of a message is to be told, in the order of
// recipients and of time. ready is false, with a time to ask again, while
// other recipients are being tried whose notices could go with them.
func (q *Queue) Notices(ctx context.Context, message db.ID) (all []Notice, ready bool, again time.Time, err error) {
	// Before the notices: what leaves the hand meanwhile has its notice then.
	var open int
	if err := q.o.DB.One(ctx, countLeasedQuery.With(message), &open); err != nil {
		return nil, false, time.Time{}, err
	}
	if all, err = db.All(ctx, q.o.DB, messageNoticesQuery.With(message), scanNotice); err != nil || len(all) == 0 {
		return nil, true, time.Time{}, err
	}
	first := all[0].At
	for _, n := range all {
		if n.At.Before(first) {
			first = n.At
		}
	}
	again = first.Add(maxNoticeWait)
	return all, open == 0 || !q.o.Now().Before(again), again, nil
}

// DeleteNoticeStatements returns the statements that delete notices, for the commit that files
// the mail which tells them.
func (q *Queue) DeleteNoticeStatements(told []Notice) []db.Statement {
	list := make([]db.Statement, len(told))
	for i := range told {
		list[i] = deleteNoticeQuery.With(told[i].ID)
	}
	return list
}

// DropNotices deletes notices that there is nobody for.
func (q *Queue) DropNotices(ctx context.Context, list []Notice) error {
	return q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		for _, s := range q.DeleteNoticeStatements(list) {
			if _, err := tx.Exec(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// PostponeNotices makes notices due later, after trouble of our own.
func (q *Queue) PostponeNotices(ctx context.Context, list []Notice, until time.Time) error {
	return q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		for i := range list {
			if _, err := tx.Exec(ctx, postponeNoticeQuery.With(list[i].ID, db.Micros(until))); err != nil {
				return err
			}
		}
		return nil
	})
}
