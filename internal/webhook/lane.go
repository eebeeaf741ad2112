// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// windowRows is how many deliveries of a webhook are read ahead. The rest
	// waits in its rows.
	windowRows = 200
	// maxUnwritten is how many outcomes of a webhook may wait for their commit.
	maxUnwritten = 200
	// linger is how long a node stays with a webhook for which nothing is due.
	linger = 2 * time.Second
	// share is how many attempts a webhook gets before it makes room, while
	// others wait for a place in hand.
	share = 500
	// troubleWait is how long after trouble with the database it is tried again.
	troubleWait = time.Second
)

var (
	laneNow = db.SQL(`SELECT l.arrivals, l.life, w.revision, w.account, w.status, w.url, w.secrets
		FROM webhook_lane AS l JOIN webhook AS w ON w.id = l.webhook WHERE l.webhook = $1 AND l.tenure = $2`)
	dueNow = db.SQL(`SELECT id, kind, attempts, tries FROM webhook_delivery
		WHERE webhook = $1 AND state = 'pending' AND due_at <= $2 ORDER BY due_at, id LIMIT $3`)
	dueNext = db.SQL(`SELECT due_at FROM webhook_delivery
		WHERE webhook = $1 AND state = 'pending' AND due_at > $2 ORDER BY due_at LIMIT 1`)
	// A node leaves only if nothing arrived that it has not seen.
	leaveLane = db.SQL(`UPDATE webhook_lane SET tenure = NULL, due_at = NULLIF(CAST($4 AS BIGINT), 0)
		WHERE webhook = $1 AND tenure = $2 AND arrivals = $3`)
)

// item is a delivery in the window.
type item struct {
	id              db.ID
	kind            string
	attempts, tries int
}

// settings are what a webhook's row says.
type settings struct {
	revision int64
	account  db.ID
	status   string
	target   target
	secrets  secrets
}

// lane is a node's work for one webhook. All but changed and latest belongs to
// the goroutine of run.
type lane struct {
	h       *Hooks
	id      db.ID
	tenure  db.ID
	changed atomic.Bool // the row was changed here
	latest  atomic.Pointer[circuit]

	settings
	circuit
	client   *client
	arrivals int64
	life     int64
	off      bool // it is disabled: nothing begins
	lost     bool // the node does not have it any more
	window   []item
	hand     map[db.ID]item // being tried, or not yet written
	anew     bool           // something in hand was written, and is due again: it was replayed
	flying   int
	more     bool      // rows may be due that are not in the window
	next     time.Time // when the next row is due; zero for none
	trouble  time.Time // the database is left alone until then
	begun    int       // attempts
	idle     time.Time // since when there is nothing to do; zero while there is
	landed   chan landing
	written  chan outcome
}

func (h *Hooks) newLane(id, tenure db.ID, c circuit) *lane {
	return &lane{
		h: h, id: id, tenure: tenure, circuit: c, more: true, hand: map[db.ID]item{},
		landed: make(chan landing, maxFlying), written: make(chan outcome, maxFlying),
	}
}

// run works for the webhook until nothing is due any more, or ctx ends; then
// attempts under way may finish.
func (l *lane) run(ctx context.Context) {
	sub := l.h.o.Hub.Subscribe(signal.Key{Kind: signal.Webhook, ID: int64(l.id)})
	defer sub.Close()
	defer l.client.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for look := true; ; {
		ending := ctx.Err() != nil || !l.mine()
		if !ending {
			if l.changed.Swap(false) || look {
				look = !l.look(ctx)
			}
			l.fill(ctx)
		}
		if len(l.hand) == 0 {
			if ending || l.leave() {
				return
			}
		}
		var slot chan<- struct{}
		if !ending && !look && l.ready() {
			slot = l.pool()
		}
		timer.Reset(l.wait())
		done := ctx.Done()
		if ending {
			done = nil
		}
		select {
		case slot <- struct{}{}:
			l.launch()
		case a := <-l.landed:
			l.land(a)
		case o := <-l.written:
			l.settled(o)
		case <-sub.C:
			look = true
		case <-timer.C:
		case <-done:
		}
	}
}

// mine reports whether the node may begin attempts here.
func (l *lane) mine() bool {
	tenure, ok := l.h.o.Node.Tenure()
	return ok && tenure == l.tenure
}

// look reads the webhook's row, and whether something has arrived. It reports
// whether the database could be read.
func (l *lane) look(ctx context.Context) bool {
	if time.Now().Before(l.trouble) {
		return false
	}
	var s settings
	var arrivals, life int64
	var url string
	var sealed []byte
	err := l.h.o.DB.One(ctx, laneNow.With(l.id, l.tenure), &arrivals, &life, &s.revision, &s.account, &s.status, &url, &sealed)
	if errors.Is(err, db.ErrNoRow) {
		l.lost, l.window = true, nil
		return true
	}
	if err != nil {
		l.fail(ctx, "looking after a webhook", err)
		return false
	}
	if arrivals != l.arrivals {
		l.arrivals, l.more = arrivals, true
	}
	if life != l.life {
		if l.life != 0 {
			l.circuit = circuit{limit: 1}
		}
		l.life = life
	}
	if s.revision == l.revision {
		return true
	}
	if s.secrets, err = l.h.open(sealed); err != nil {
		l.fail(ctx, "looking after a webhook", err)
		return false
	}
	var code string
	if s.target, code, _ = l.h.parse(url); code != "" {
		// What was allowed once may be no more; each attempt says so.
		s.target.refused = true
	}
	if l.client == nil || s.target != l.target {
		l.client.close()
		l.client = l.h.newClient(s.target)
	}
	l.settings = s
	if l.off = s.status != Enabled; l.off {
		l.window, l.more = nil, true
	}
	return true
}

func (l *lane) fail(ctx context.Context, what string, err error) {
	l.trouble = time.Now().Add(troubleWait)
	if ctx.Err() == nil && l.h.mayComplain() {
		l.h.o.Log.Error(what+" failed", "webhook", l.id, "error", err)
	}
}

// mayComplain lets one lane a second write to the log: a database that is away is
// away for all of them.
func (h *Hooks) mayComplain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.complained) < time.Second {
		return false
	}
	h.complained = now
	return true
}

// fill reads what is due next, once the window is empty.
func (l *lane) fill(ctx context.Context) {
	now := l.h.o.Now()
	if !l.next.IsZero() && !now.Before(l.next) {
		l.next, l.more = time.Time{}, true
	}
	if l.off || l.lost || l.revision == 0 || len(l.window) > 0 || !l.more || now.Before(l.rest) ||
		len(l.hand)-l.flying >= maxUnwritten || time.Now().Before(l.trouble) {
		return
	}
	limit := windowRows + len(l.hand)
	rows, err := db.All(ctx, l.h.o.DB, dueNow.With(l.id, db.Micros(now), limit), func(r db.Row) (i item, err error) {
		return i, r.Scan(&i.id, &i.kind, &i.attempts, &i.tries)
	})
	if err != nil {
		l.fail(ctx, "reading what is due for a webhook", err)
		return
	}
	for _, i := range rows {
		held, inHand := l.hand[i.id]
		if !inHand {
			l.window = append(l.window, i)
		}
		l.anew = l.anew || inHand && held != i
	}
	if len(rows) == limit {
		return
	}
	var next int64
	err = l.h.o.DB.One(ctx, dueNext.With(l.id, db.Micros(now)), &next)
	if err != nil && !errors.Is(err, db.ErrNoRow) {
		l.fail(ctx, "reading what is due for a webhook", err)
		return
	}
	l.more, l.next = false, db.Time(next)
}

// ready reports whether an attempt may begin.
func (l *lane) ready() bool {
	return !l.off && !l.lost && !l.spent() && len(l.window) > 0 && l.flying < max(l.limit, 1) &&
		len(l.hand)-l.flying < maxUnwritten && !l.h.o.Now().Before(l.rest)
}

// spent reports whether the webhook has had its share, and others wait.
func (l *lane) spent() bool { return l.begun >= share && l.h.crowded() }

// pool is where an attempt takes its place: those of webhooks that fail must
// not take those of the others.
func (l *lane) pool() chan struct{} {
	if l.level > 0 {
		return l.h.probes
	}
	return l.h.slots
}

// wait is how long there is nothing to do if nothing happens.
func (l *lane) wait() time.Duration {
	wait := linger
	now := l.h.o.Now()
	if len(l.window) > 0 || l.more {
		if d := l.rest.Sub(now); d > 0 {
			wait = min(wait, d)
		}
	} else if !l.next.IsZero() {
		wait = min(wait, max(l.next.Sub(now), 0))
	}
	if d := time.Until(l.trouble); d > 0 {
		wait = min(wait, d)
	}
	return wait + time.Millisecond
}

// leave gives the webhook up once nothing has been due for a while. It reports
// whether the node has it no more.
func (l *lane) leave() bool {
	if l.lost {
		return true
	}
	due, free := l.rests()
	if !free {
		l.idle = time.Time{}
		return false
	}
	if l.idle.IsZero() {
		l.idle = time.Now()
	}
	if !l.off && time.Since(l.idle) < linger && !l.h.crowded() || time.Now().Before(l.trouble) {
		return false
	}
	l.idle = time.Time{}
	err := l.h.o.DB.Write(l.h.last, l.id, &db.Job{Guard: func(b *db.Batch) {
		b.Queue(leaveLane.With(l.id, l.tenure, l.arrivals, due)).Else(errSuperseded)
	}})
	switch {
	case err == nil:
		return true
	case errors.Is(err, errSuperseded):
		l.changed.Store(true) // something arrived, or it was taken over: a look tells
	default:
		l.fail(l.h.last, "leaving a webhook", err)
	}
	return false
}

// rests reports whether there is nothing to do for now, and when there is again:
// 0 for not by itself.
func (l *lane) rests() (due int64, free bool) {
	resting := l.h.o.Now().Before(l.rest)
	switch {
	case l.off:
		return 0, true
	case l.revision == 0: // not yet looked at
		return 0, false
	case !resting && l.spent():
		return db.Micros(l.h.o.Now()), true
	case len(l.window) > 0 || l.more:
		return db.Micros(l.rest), resting
	case resting && !l.next.IsZero():
		return max(db.Micros(l.rest), db.Micros(l.next)), true
	}
	return db.Micros(l.next), true
}
