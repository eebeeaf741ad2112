// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

var (
	dropQuery = db.SQL(`UPDATE delivery SET state = 'failed', lease = NULL, hold = 0, sequence = sequence + 1,
			code = 0, enhanced = '5.3.0', reply = $3, remote_host = '', updated_at = $4
		WHERE message = $1 AND n = $2 AND (lease IS NULL OR lease = 0) AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING attempts, sequence, notify, orcpt`)
	markHeldQuery = db.SQL(`UPDATE delivery SET hold = $3, held_at = $4
		WHERE message = $1 AND n = $2 AND lease > 0 AND hold = 0 AND state IN ('scheduled', 'queued', 'deferred')`)
)

// dropOperation is the state of a running Drop.
type dropOperation struct {
	*Queue
	cmd   *Command
	reply string
	now   time.Time
	res   *Result
	info  map[db.ID]queue.MessageInfo
}

// Drop ends the selected deliveries as failed, with the command's reason. A node must release
// leased deliveries first. A running attempt keeps its outcome. If that is a deferral, Drop ends
// the delivery if the outcome comes within the command's Wait; otherwise the delivery stays held.
// So no dropped delivery is still being attempted.
func (q *Queue) Drop(ctx context.Context, c Command) (res Result, err error) {
	if err := c.Normalize(); err != nil {
		return res, err
	}
	d := &dropOperation{Queue: q, cmd: &c, now: q.Now(), res: &res, info: map[db.ID]queue.MessageInfo{}, reply: "Dropped by the operator of the service."}
	if c.Reason != "" {
		d.reply = "Dropped by the operator of the service: " + c.Reason
	}
	var open []Entry
	err = q.forEachChunk(ctx, &c, allIndexes, &res, func(list []Entry) error {
		res.Matched += len(list)
		if c.DryRun {
			return nil
		}
		left, err := d.dropChunk(ctx, list)
		open = append(open, left...)
		return err
	})
	if len(open) > 0 {
		q.wake(notify.Hold)
	}
	pause := 100 * time.Millisecond
	for end := time.Now().Add(c.Wait); err == nil && len(open) > 0; pause = min(2*pause, 2*time.Second) {
		var left []Entry
		if left, err = d.stillOpen(ctx, open); err != nil {
			break
		}
		if open = left; len(open) == 0 || time.Now().After(end) {
			break
		}
		res.Leased = len(open)
		if c.Progress != nil {
			c.Progress(res)
		}
		if err = notify.Sleep(ctx, pause); err != nil {
			break
		}
		left = nil
		for some := range slices.Chunk(open, maxChangedRows) {
			var still []Entry
			if still, err = d.dropChunk(ctx, slices.Clone(some)); err != nil {
				break
			}
			left = append(left, still...)
		}
		if err == nil {
			open = left
		}
	}
	res.Leased = len(open)
	if res.Changed > 0 {
		q.Events.WakeSequencer()
		q.wake(notify.SenderNotice)
	}
	return res, err
}

// stillOpen returns the entries that are not final yet.
func (d *dropOperation) stillOpen(ctx context.Context, open []Entry) (left []Entry, err error) {
	for _, e := range open {
		found := false
		err := d.DB.Each(ctx, openByMessageQuery.With(e.Message, e.N-1, 1), func(r db.Row) error {
			now, err := scanEntry(r)
			found = now.N == e.N
			return err
		})
		if err != nil {
			return nil, err
		}
		if found {
			left = append(left, e)
		}
	}
	return left, nil
}

// droppedRow is the row that dropQuery returns.
type droppedRow struct {
	attempts, sequence, notify int
	original                   string
}

// dropChunk drops deliveries in one commit, with their events and notices. It marks leased
// deliveries as held instead, and returns them.
func (d *dropOperation) dropChunk(ctx context.Context, list []Entry) (left []Entry, err error) {
	clear(d.info)
	for _, e := range list {
		if _, known := d.info[e.Message]; known {
			continue
		}
		if d.info[e.Message], err = d.messageInfo(ctx, e.Message, e.Account); err != nil {
			return nil, err
		}
	}
	done := map[int]droppedRow{}
	now := db.Micros(d.now)
	job := &db.Mutation{
		Guard: func(b *db.Batch) {
			clear(done)
			for i, e := range list {
				b.Queue(dropQuery.With(e.Message, e.N, d.reply, now)).Each(func(r db.Row) error {
					var x droppedRow
					err := r.Scan(&x.attempts, &x.sequence, &x.notify, &x.original)
					done[i] = x
					return err
				})
				b.Queue(markHeldQuery.With(e.Message, e.N, queue.IndividualHold, now))
			}
		},
		Apply: func(b *db.Batch) {
			for i, x := range done {
				d.addEvents(b, &list[i], x)
			}
		},
	}
	err = d.retryOnConflict(func() error { return d.DB.Write(ctx, list[0].Message, job) })
	if err != nil {
		return nil, err
	}
	d.res.Changed += len(done)
	for i, e := range list {
		if _, ok := done[i]; !ok {
			left = append(left, e)
		}
	}
	return left, nil
}

// addEvents adds the events of a dropped delivery and the notice for its sender.
func (d *dropOperation) addEvents(b *db.Batch, e *Entry, x droppedRow) {
	s := queue.StatusChange{
		MessageInfo: d.info[e.Message], ID: e.Message, Recipient: e.Recipient, Status: queue.Failed, Sequence: x.sequence - 1,
		Attempts: x.attempts, Enhanced: "5.3.0", Reply: d.reply,
	}
	for _, event := range s.Events(nil) {
		if statement, err := d.Events.RecordStatement(event); err == nil { // its data is plain text
			b.Queue(statement)
		}
	}
	if d.cmd.Silent || queue.SenderNotifyFromColumn(x.notify)&smtpclient.NotifyFailure == 0 {
		return
	}
	n := queue.Notice{
		ID: d.DB.NewID(), Message: e.Message, N: e.N, Action: queue.ActionFailed, Recipient: e.Recipient, Original: x.original,
		Enhanced: "5.3.0", Reply: d.reply, At: d.now,
	}
	b.Queue(n.InsertStatement())
}
