// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// The actions of a notice, as RFC 3464 §2.3.3 names them.
const (
	ActionFailed    = "failed"
	ActionDelayed   = "delayed"
	ActionDelivered = "delivered"
	ActionRelayed   = "relayed" // to a host that sends no DSN; by "local" to addresses elsewhere
)

// Notice is a pending report to the sender of a submission about one recipient. It is inserted in
// the commit of the state change, and stays until the report is filed.
type Notice struct {
	ID        db.ID
	Message   db.ID
	N         int
	Action    string
	Recipient string
	Original  string // ORCPT as "rfc822;a@b", decoded; "" for none
	Code      int    // reply code of the host; 0 if there was none
	Enhanced  string
	Reply     string
	Remote    string    // the host, "local", "sandbox", or ""
	NextAt    time.Time // of delayed: the next attempt
	ExpiresAt time.Time // of delayed: when the delivery expires
	At        time.Time
}

const (
	// delayNoticeAfter is how long after acceptance the sender gets a delay notice.
	delayNoticeAfter = 4 * time.Hour
	// senderNotifyShift separates, in the notify column, NOTIFY as given from the sender's NOTIFY
	// for notices by this service.
	senderNotifyShift = 4
	notifyBits        = 1<<senderNotifyShift - 1
	// maxNoticeWait is the longest time that a notice waits for leased deliveries of other
	// recipients, so that one mail reports all.
	maxNoticeWait = 10 * time.Second
	// delayNoticeChunk is the maximum of delayed deliveries handled in one commit.
	delayNoticeChunk = 200
)

// SenderNotifyFromColumn returns the sender's NOTIFY from the column notify.
func SenderNotifyFromColumn(column int) smtpclient.Notify {
	return smtpclient.Notify(column >> senderNotifyShift & notifyBits)
}

// senderNotify returns NOTIFY for notices about a recipient, or its default (RFC 3461 §4.1).
func (p *Reservation) senderNotify(r Recipient) smtpclient.Notify {
	switch {
	case !p.m.NotifySender:
		return 0
	case r.Notify == 0:
		return smtpclient.NotifyFailure | smtpclient.NotifyDelay
	}
	return r.Notify
}

// delayNoticeAt returns when the sender gets a delay notice for an undelivered recipient; zero:
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

// newNotice returns the notice for an outcome, nil for none.
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
	insertNoticeQuery = db.SQL(`INSERT INTO notice (id, message, n, action, recipient, orcpt, code, enhanced, reply, remote_host,
			next_at, expires_at, at, due_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)`)
	deleteNoticeQuery   = db.SQL(`DELETE FROM notice WHERE id = $1`)
	postponeNoticeQuery = db.SQL(`UPDATE notice SET due_at = $2 WHERE id = $1`)
	dueNoticesQuery     = db.SQL(`SELECT message FROM notice WHERE due_at <= $1 ORDER BY due_at LIMIT $2`)
	messageNoticesQuery = db.SQL(`SELECT id, message, n, action, recipient, orcpt, code, enhanced, reply, remote_host, next_at, expires_at, at
		FROM notice WHERE message = $1 ORDER BY n, id`)
	countLeasedQuery = db.SQL(`SELECT COUNT(*) FROM delivery WHERE message = $1 AND lease > 0
		AND state IN ('scheduled', 'queued', 'deferred')`)
	anyDelayedQuery = db.SQL(`SELECT delay_report_at FROM delivery
		WHERE lease IS NULL AND delay_report_at > 0 AND state IN ('scheduled', 'queued', 'deferred') AND delay_report_at <= $1 LIMIT 1`)
	// The query skips leased deliveries. A later call handles them after their release, if they are
	// still late.
	takeDelayedQuery = db.SQL(`WITH late AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE lease IS NULL AND delay_report_at > 0 AND state IN ('scheduled', 'queued', 'deferred') AND delay_report_at <= $1
			ORDER BY delay_report_at LIMIT $2 {skip_locked})
		UPDATE delivery SET delay_report_at = 0 WHERE (message, n) IN (SELECT message, n FROM late)
		RETURNING message, n, recipient, orcpt, code, enhanced, reply, remote_host, due_at, expires_at`)
)

// InsertStatement returns the statement that inserts the notice, for the commit of what it reports.
func (n *Notice) InsertStatement() db.Statement {
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

// HasDelayed reports whether AddDelayNotices would add notices.
func (q *Queue) HasDelayed(ctx context.Context) (bool, error) {
	return db.Exists(ctx, q.o.DB, anyDelayedQuery.With(db.Micros(q.o.Now())))
}

// AddDelayNotices adds a notice for each delivery that is still undelivered after four hours, once
// per delivery and only if its sender wants delay notices. It reports whether there may be more.
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
			if _, err := tx.Exec(ctx, found[i].InsertStatement()); err != nil {
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

// MessagesToNotify returns the messages of the first limit due notices. more reports whether the
// limit was reached.
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

// Notices returns the notices of a message, in the order of recipients and of time. ready is false
// while other recipients are being tried whose notices could go into the same mail; again is then
// the time to ask again.
func (q *Queue) Notices(ctx context.Context, message db.ID) (all []Notice, ready bool, again time.Time, err error) {
	// This count must come first: a delivery that is settled in between has its notice by then.
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

// DeleteNoticeStatements returns the statements that delete notices, for the commit that files the
// report.
func (q *Queue) DeleteNoticeStatements(told []Notice) []db.Statement {
	list := make([]db.Statement, len(told))
	for i := range told {
		list[i] = deleteNoticeQuery.With(told[i].ID)
	}
	return list
}

// DropNotices deletes notices that have no one to report to.
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

// PostponeNotices makes notices due later, after an internal error.
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
