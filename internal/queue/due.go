// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

const (
	headRows   = 200 // of what is due first, read in one look
	seekRows   = 500 // destinations sought in one look when the head is of no use
	maxFills   = 64  // claims under way
	forgetDead = time.Hour
)

var (
	head = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT $1`)
	seek = db.SQL(`SELECT destination, due_at FROM delivery
		WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination > $1
		ORDER BY destination, due_at LIMIT 1`)
	claim = db.SQL(`WITH due AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination = $2 AND due_at <= $3
			ORDER BY due_at LIMIT $4 {skip_locked})
		UPDATE delivery SET tenure = $1 WHERE (message, n) IN (SELECT message, n FROM due)
			AND tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred')
		RETURNING message, n, account, recipient, kind, state, due_at, expires_at, attempts, sequence,
			code, enhanced, reply, remote, notify, orcpt, offers`)
	promote = db.SQL(`UPDATE delivery SET state = 'queued', sequence = $4, updated_at = $5
		WHERE message = $1 AND n = $2 AND tenure = $3 AND state = 'scheduled'`)
)

// look takes over, finds what is due, and sets the next alarm.
func (q *Queue) look(ctx context.Context) error {
	now := q.o.Now()
	q.mu.Lock()
	q.alarm = now.Add(lookEvery)
	for _, d := range q.dests {
		switch {
		case now.Before(d.until):
			q.wakeAt(d.until)
		case (d.failures > 0 || d.slowed) && d.held == 0 && !d.waits && now.Sub(d.until) > forgetDead:
			d.failures, d.slowed = 0, false
			q.tidy(d)
		default:
			if now.Before(d.rest) {
				q.wakeAt(d.rest)
			}
			q.start(d)
			q.fill(d)
		}
	}
	attend := q.attended.IsZero() || now.Sub(q.attended) >= lookEvery
	q.mu.Unlock()
	var attended error
	if attend {
		attended = q.attend(ctx, now)
	}
	return errors.Join(attended, q.takeOver(ctx, now), q.reconcile(ctx, now), q.discover(ctx, now))
}

// waiting is a destination for which rows wait, and when the first is due.
type waiting struct {
	destination string
	due         int64
}

func scanWaiting(r db.Row) (w waiting, err error) { return w, r.Scan(&w.destination, &w.due) }

// discover finds the destinations for which something is due. The head of what
// is due may be all of destinations that can take no more; then it seeks from
// one destination to the next, which costs no more however much they have.
func (q *Queue) discover(ctx context.Context, now time.Time) error {
	first, err := db.All(ctx, q.o.DB, head.With(headRows), scanWaiting)
	if err != nil {
		return err
	}
	due := 0
	for _, w := range first {
		if w.due <= db.Micros(now) {
			due++
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if due < len(first) {
		q.wakeAt(db.Time(first[due].due))
	}
	q.found(first[:due])
	if due < headRows {
		q.cursor = ""
		return nil
	}
	cursor := q.cursor
	q.mu.Unlock()
	more, next, err := q.seek(ctx, cursor, now)
	q.mu.Lock()
	if err != nil {
		return err
	}
	q.found(more)
	if q.cursor = next; next != "" {
		q.wakeAt(now)
	}
	return nil
}

// seek reads a page of destinations that have something due, and where the
// next page begins; "" after the last.
func (q *Queue) seek(ctx context.Context, cursor string, now time.Time) (found []waiting, next string, err error) {
	for range seekRows {
		w := waiting{}
		err := q.o.DB.One(ctx, seek.With(cursor), &w.destination, &w.due)
		if errors.Is(err, db.ErrNoRow) {
			return found, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		cursor = w.destination
		if w.due <= db.Micros(now) {
			found = append(found, w)
		}
	}
	return found, cursor, nil
}

// found notes destinations with rows that are due. q.mu is held.
func (q *Queue) found(rows []waiting) {
	for _, w := range rows {
		d := q.dest(w.destination)
		d.waits = true
		d.arrived++ // a claim under way may have looked for what was due before
		q.fill(d)
	}
}

// fill claims rows that wait for a destination, once half of its window is
// free. q.mu is held.
func (q *Queue) fill(d *destination) {
	if !d.waits || d.filling || d.held > q.o.Window/2 {
		return
	}
	tenure, able := q.able()
	now := q.o.Now()
	if !able || !q.begun || q.checking || now.Before(d.until) {
		return
	}
	room := q.room(d)
	hold := q.standing.destination(d.name)
	if room <= 0 && hold == 0 || q.fills >= maxFills {
		q.crowded = true
		return
	}
	if hold != 0 {
		q.parkRows(d, hold)
		return
	}
	d.filling = true
	q.fills++
	q.hold(d, room)
	q.work.Add(1)
	f := &filling{d: d, tenure: tenure, room: room, arrived: d.arrived, overruled: q.overruled}
	go q.claim(f, now)
}

// filling is a claim under way. Its room is reserved.
type filling struct {
	d                        *destination
	tenure                   db.ID
	room, arrived, overruled int
}

func (q *Queue) claim(f *filling, now time.Time) {
	defer q.work.Done()
	var got []*Delivery
	lane := fnv.New64a()
	_, _ = lane.Write([]byte(f.d.name))
	err := q.o.DB.Write(q.last, db.ID(lane.Sum64()>>1), &db.Job{Guard: func(b *db.Batch) {
		got = got[:0]
		b.Queue(claim.With(f.tenure, f.d.name, db.Micros(now), f.room)).Each(func(r db.Row) error {
			d, err := scanDelivery(r, f, now)
			got = append(got, d)
			return err
		})
	}})
	slices.SortFunc(got, func(a, b *Delivery) int { return a.due.Compare(b.due) })
	if err != nil {
		q.o.Log.Error("claiming what is due failed", "destination", f.d.name, "error", err)
		got = nil
	}
	scheduled := q.claimed(f, got, err)
	for _, d := range scheduled {
		q.background(func() { q.promote(d) })
	}
}

func scanDelivery(r db.Row, f *filling, now time.Time) (*Delivery, error) {
	d := &Delivery{Destination: f.d.name, dest: f.d, tenure: f.tenure, seen: now}
	var state string
	var due, expires, notify int64
	err := r.Scan(&d.Message, &d.N, &d.Account, &d.Recipient, &d.Kind, &state, &due, &expires, &d.Attempts, &d.sequence,
		&d.last.Code, &d.last.Enhanced, &d.last.Reply, &d.last.Remote, &notify, &d.Original, &d.offers)
	d.Notify, d.tells = smtpclient.Notify(notify&notifyBits), smtpclient.Notify(notify>>tellsShift&notifyBits)
	d.state, d.due, d.ExpiresAt = State(state), db.Time(due), db.Time(expires)
	return d, err
}

// claimed takes claimed deliveries in hand, and returns those that were
// scheduled: they become queued first.
func (q *Queue) claimed(f *filling, got []*Delivery, err error) (scheduled []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fills--
	f.d.filling = false
	switch {
	case err != nil:
		q.doubt = q.o.Now()
	case len(got) < f.room && f.d.arrived == f.arrived:
		f.d.waits = false
	}
	var parked []*Delivery
	for _, d := range got {
		if q.overruled != f.overruled || len(q.overruling) > 0 {
			d.seen = time.Time{}
		}
		q.admit(d)
		switch {
		case q.standing.holds(d.Destination, d.Account) != 0:
			parked = append(parked, d)
		case d.state == Scheduled:
			scheduled = append(scheduled, d)
		default:
			q.push(d)
		}
	}
	q.letGo(parked, nil)
	q.hold(f.d, -f.room)
	q.start(f.d)
	if err == nil {
		q.vacate(f.d, 0)
	}
	return scheduled
}

// promote makes a scheduled delivery, which is due, a queued one, or ends it
// where its recipient has come on the suppression list.
func (q *Queue) promote(d *Delivery) {
	about, err := q.o.Describe(q.last, d.Message)
	if fault.Is(err, fault.NotFound) {
		about, err = About{Account: d.Account}, nil // Prepare will say so too
	}
	var why suppression.Reason
	if err == nil {
		why, err = q.suppressed(q.last, d, about)
	}
	if err != nil {
		q.o.Log.Error("a scheduled message could not be read", "message", d.Message, "error", err)
		q.releaseSome([]*Delivery{d}, q.o.Now().Add(jitter(troubleWait)), nil)
		return
	}
	data := statusData{About: about, ID: d.Message, Recipient: d.Recipient, Status: Queued, Sequence: d.sequence}
	now := db.Micros(q.o.Now())
	update := promote.With(d.Message, d.N, d.tenure, d.sequence+1, now)
	if why != "" {
		data.Status, data.Reason, data.Reply = Suppressed, why.Told(), suppressedReply(why)
		update = suppressDue.With(d.Message, d.N, d.tenure, d.sequence+1, now, data.Reply)
	}
	also, err := q.prepare(data.events(nil))
	if err == nil {
		err = q.write(d.Message, q.job(update, also, true))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil { // cancelled meanwhile, or the queue has ended
		q.forget(d)
		return
	}
	d.sequence++
	if d.state = data.Status; d.state == Suppressed {
		q.forget(d)
		return
	}
	q.push(d)
	q.start(d.dest)
}
