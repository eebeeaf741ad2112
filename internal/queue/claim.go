// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/smtpclient"
	"github.com/mailstead/mailstead/internal/suppression"
)

// maxFills bounds the claims under way.
const maxFills = 64

var (
	// The rows of due are locked, so nothing is asked of them again: with what
	// an index knows PostgreSQL may look for them among all that waits. The same
	// holds wherever some rows of many are changed; TestExplain sees to it.
	claim = db.SQL(`WITH due AS MATERIALIZED (SELECT message, n FROM delivery
			WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination = $2 AND due_at <= $3
			ORDER BY due_at LIMIT $4 {skip_locked})
		UPDATE delivery SET tenure = $1 WHERE (message, n) IN (SELECT message, n FROM due)
		RETURNING message, n, account, recipient, kind, state, due_at, expires_at, attempts, sequence,
			code, enhanced, reply, remote, notify, orcpt, offers`)
	promote = db.SQL(`UPDATE delivery SET state = 'queued', sequence = $4, updated_at = $5
		WHERE message = $1 AND n = $2 AND tenure = $3 AND sequence = $6 AND state = 'scheduled'`)
)

// fill has rows that wait for a destination claimed, once half of its share is
// free and those before it had theirs. q.mu is held.
func (q *Queue) fill(d *destination) {
	if !d.behind && q.hungry(d, q.o.Now()) {
		d.behind = true
		q.behind = append(q.behind, d)
	}
	q.catchUp()
}

// hungry reports whether rows of a destination are to be claimed now.
func (q *Queue) hungry(d *destination, now time.Time) bool {
	return d.waits && !d.filling && !now.Before(d.until) && d.held <= q.share(d)/2
}

// catchUp claims rows of the destinations that are behind, in turn, while there
// are places. q.mu is held.
func (q *Queue) catchUp() {
	tenure, able := q.able()
	if !able || !q.begun || q.checking || q.full && q.held > q.resumes() {
		return
	}
	q.full = false
	now := q.o.Now()
	for len(q.behind) > 0 && q.fills < maxFills {
		d := q.behind[0]
		free, share := q.claimable()-q.held, q.share(d)
		hungry, hold := q.hungry(d, now), q.standing.destination(d.name)
		if hungry && hold == 0 && free < (share+1)/2 {
			q.full = true
			return
		}
		q.behind = slices.Delete(q.behind, 0, 1)
		d.behind = false
		switch {
		case !hungry:
			q.tidy(d)
		case hold != 0:
			q.parkRows(d, hold)
		default:
			room := min(share-d.held, free)
			d.filling = true
			q.fills++
			q.hold(d, room)
			q.work.Add(1)
			go q.claim(&filling{d: d, tenure: tenure, room: room, arrived: d.arrived, overruled: q.overruled}, now)
		}
	}
}

// errEnded declines a claim.
var errEnded = errors.New("the node's tenure has ended meanwhile")

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
	ours := false
	err := q.o.DB.Write(q.last, db.ID(lane.Sum64()>>1), &db.Job{Guard: func(b *db.Batch) {
		got = got[:0]
		// While the database was out of reach others may have buried the tenure:
		// they would not look again for what carries it.
		if ours = q.o.Node.Holds(f.tenure); !ours {
			return
		}
		b.Queue(claim.With(f.tenure, f.d.name, db.Micros(now), f.room)).Each(func(r db.Row) error {
			d, err := scanDelivery(r, f, now)
			got = append(got, d)
			return err
		})
	}})
	slices.SortFunc(got, func(a, b *Delivery) int { return a.due.Compare(b.due) })
	if err == nil && !ours {
		err = errEnded
	}
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

// filled notes that a claim has ended. q.mu is held.
func (q *Queue) filled(d *destination) {
	d.filling = false
	if q.fills--; q.fills == 0 && q.checking {
		q.wakeAt(q.o.Now()) // reconcile waits for it
	}
}

// claimed takes claimed deliveries in hand, and returns those that were
// scheduled: they become queued first.
func (q *Queue) claimed(f *filling, got []*Delivery, err error) (scheduled []*Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.filled(f.d)
	switch {
	case err != nil:
		q.doubts()
	case len(got) < f.room && f.d.arrived == f.arrived:
		q.served(f.d)
	}
	var parked []*Delivery
	for _, d := range got {
		if q.overruled != f.overruled || len(q.overruling) > 0 {
			d.seen = time.Time{}
		}
		if d.ExpiresAt.Before(q.since) {
			d.ExpiresAt = q.since.Add(afterAll)
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
	to := Queued
	if why != "" {
		to = Suppressed
	}
	for again := true; again; {
		var job *db.Job
		if job, err = q.promotion(d, about, why); err == nil {
			err = q.write(d.Message, job)
		}
		again = errors.Is(err, errLost) && q.resequence(d)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil { // cancelled meanwhile, or the queue has ended; or an earlier try was committed after all
		q.doubts()
		q.forget(d)
		return
	}
	d.sequence++
	if d.state = to; d.state == Suppressed {
		q.forget(d)
		return
	}
	q.push(d)
	q.start(d.dest)
}

func (q *Queue) promotion(d *Delivery, about About, why suppression.Reason) (*db.Job, error) {
	data := statusData{About: about, ID: d.Message, Recipient: d.Recipient, Status: Queued, Sequence: d.sequence}
	now := db.Micros(q.o.Now())
	update := promote.With(d.Message, d.N, d.tenure, d.sequence+1, now, d.sequence)
	if why != "" {
		data.Status, data.Reason, data.Reply = Suppressed, why.Told(), suppressedReply(why)
		update = suppressDue.With(d.Message, d.N, d.tenure, d.sequence+1, now, data.Reply, d.sequence)
	}
	also, err := q.prepare(data.events(nil))
	return q.job(update, also, true), err
}
