// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// windowRows is the maximum of a webhook's deliveries read ahead. The others stay in their
	// rows.
	windowRows = 200
	// maxUnwritten is the maximum of a webhook's outcomes that wait for their commit.
	maxUnwritten = 200
	// idleTimeout is how long a node keeps the lease of a webhook without due deliveries.
	idleTimeout = 2 * time.Second
	// maxAttemptsPerTurn is how many attempts a webhook gets before its dispatcher ends, if other
	// webhooks wait to be claimed.
	maxAttemptsPerTurn = 500
	// errorDelay is the wait after a database error.
	errorDelay = time.Second
)

var (
	dispatchStateQuery = db.SQL(`SELECT l.arrivals, l.generation, l.resumes, w.revision, w.account, w.status, w.url, w.secrets
		FROM webhook_dispatch AS l JOIN webhook AS w ON w.id = l.webhook WHERE l.webhook = $1 AND l.lease = $2`)
	dueDeliveriesQuery = db.SQL(`SELECT id, kind, attempts, tries FROM webhook_delivery
		WHERE webhook = $1 AND state = 'pending' AND due_at <= $2 ORDER BY due_at, id LIMIT $3`)
	nextDueDeliveryQuery = db.SQL(`SELECT due_at FROM webhook_delivery
		WHERE webhook = $1 AND state = 'pending' AND due_at > $2 ORDER BY due_at LIMIT 1`)
	// A node releases a webhook only if it has seen all arrivals.
	releaseIdleQuery = db.SQL(`UPDATE webhook_dispatch SET lease = NULL, due_at = NULLIF(CAST($4 AS BIGINT), 0)
		WHERE webhook = $1 AND lease = $2 AND arrivals = $3`)
)

// windowDelivery is a delivery in a dispatcher's window.
type windowDelivery struct {
	id              db.ID
	kind            string
	attempts, tries int
}

// settings are the fields of a webhook's row that a dispatcher needs.
type settings struct {
	revision int64
	account  db.ID
	status   string
	target   target
	secrets  secrets
}

// dispatcher delivers the events of one webhook on this node. The goroutine of run owns all fields
// except stale and latestCircuit.
type dispatcher struct {
	h             *Service
	id            db.ID
	lease         db.ID
	stale         atomic.Bool // this node changed the row
	latestCircuit atomic.Pointer[circuitBreaker]

	settings
	circuitBreaker
	client     *client
	arrivals   int64
	generation int64 // of the row of webhook_dispatch
	disabled   bool  // the webhook is disabled: no attempt starts
	lost       bool  // this node no longer has the lease
	window     []windowDelivery
	inFlight   map[db.ID]windowDelivery // in an attempt, or outcome not yet written
	requeued   bool                     // a delivery in inFlight was settled and is due again: it was replayed
	running    int
	moreDue    bool      // the window may lack due rows
	nextDue    time.Time // when the next row is due; zero for none
	retryAt    time.Time // no database access until then
	started    int       // attempts started
	idleSince  time.Time // start of the idle time; zero while there is work
	finished   chan finishedAttempt
	written    chan outcome
}

func (h *Service) newDispatcher(id, leaseID db.ID, generation int64, c circuitBreaker) *dispatcher {
	return &dispatcher{
		h: h, id: id, lease: leaseID, generation: generation, circuitBreaker: c, moreDue: true, inFlight: map[db.ID]windowDelivery{},
		finished: make(chan finishedAttempt, maxConcurrent), written: make(chan outcome, maxConcurrent),
	}
}

// run delivers until no delivery is due for a while, or ctx ends; then running attempts may finish.
func (l *dispatcher) run(ctx context.Context) {
	sub := l.h.o.Hub.Subscribe(notify.Key{Kind: notify.Webhook, ID: int64(l.id)})
	defer sub.Close()
	defer l.client.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for look := true; ; {
		ending := ctx.Err() != nil || !l.hasLease()
		if !ending {
			if l.stale.Swap(false) || look {
				look = !l.reload(ctx)
			}
			l.readDue(ctx)
		}
		if len(l.inFlight) == 0 {
			if ending || l.release() {
				return
			}
		}
		var slot chan<- struct{}
		if !ending && !look && l.canStart() {
			slot = l.pool()
		}
		timer.Reset(l.waitTime())
		done := ctx.Done()
		if ending {
			done = nil
		}
		select {
		case slot <- struct{}{}:
			l.startAttempt()
		case a := <-l.finished:
			l.handleResult(a)
		case o := <-l.written:
			l.handleWritten(o)
		case <-sub.C:
			look = true
		case <-timer.C:
		case <-done:
		}
	}
}

// hasLease reports whether the node may start attempts for this webhook.
func (l *dispatcher) hasLease() bool {
	leaseID, ok := l.h.o.Node.Lease()
	return ok && leaseID == l.lease
}

// reload reads the webhook's row and its arrivals. It reports whether the database could be read.
func (l *dispatcher) reload(ctx context.Context) bool {
	if time.Now().Before(l.retryAt) {
		return false
	}
	var s settings
	var arrivals, generation, resumes int64
	var url string
	var sealed []byte
	err := l.h.o.DB.One(ctx, dispatchStateQuery.With(l.id, l.lease), &arrivals, &generation, &resumes, &s.revision, &s.account, &s.status, &url, &sealed)
	if errors.Is(err, db.ErrNoRow) {
		l.lost, l.window = true, nil
		return true
	}
	if err != nil {
		l.handleError(ctx, "looking after a webhook", err)
		return false
	}
	if arrivals != l.arrivals {
		l.arrivals, l.moreDue = arrivals, true
	}
	if generation != l.generation {
		l.generation, l.circuitBreaker = generation, circuitBreaker{limit: 1, resumes: l.resumes}
	}
	if resumes != l.resumes {
		l.resume(resumes)
		l.window, l.moreDue = nil, true // a redelivery comes before what is in the window
	}
	if s.revision == l.revision {
		return true
	}
	if s.secrets, err = l.h.openSecrets(sealed); err != nil {
		l.handleError(ctx, "looking after a webhook", err)
		return false
	}
	var code string
	if s.target, code, _ = l.h.parseURL(url); code != "" {
		// A URL that was allowed earlier may now be forbidden. Each attempt then fails with that
		// error.
		s.target.forbidden = true
	}
	if l.client == nil || s.target != l.target {
		l.client.close()
		l.client = l.h.newClient(s.target)
	}
	l.settings = s
	if l.disabled = s.status != StatusEnabled; l.disabled {
		l.window, l.moreDue = nil, true
	}
	return true
}

func (l *dispatcher) handleError(ctx context.Context, what string, err error) {
	l.retryAt = time.Now().Add(errorDelay)
	if ctx.Err() == nil && l.h.mayLogError() {
		l.h.o.Log.Error(what+" failed", "webhook", l.id, "error", err)
	}
}

// mayLogError lets one dispatcher per second write to the log: an unreachable database affects all
// of them.
func (h *Service) mayLogError() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.errorLoggedAt) < time.Second {
		return false
	}
	h.errorLoggedAt = now
	return true
}

// readDue reads the next due deliveries once the window is empty.
func (l *dispatcher) readDue(ctx context.Context) {
	now := l.h.o.Now()
	if !l.nextDue.IsZero() && !now.Before(l.nextDue) {
		l.nextDue, l.moreDue = time.Time{}, true
	}
	if l.disabled || l.lost || l.revision == 0 || len(l.window) > 0 || !l.moreDue || now.Before(l.pausedUntil) ||
		len(l.inFlight)-l.running >= maxUnwritten || time.Now().Before(l.retryAt) {
		return
	}
	limit := windowRows + len(l.inFlight)
	rows, err := db.All(ctx, l.h.o.DB, dueDeliveriesQuery.With(l.id, db.Micros(now), limit), func(r db.Row) (i windowDelivery, err error) {
		return i, r.Scan(&i.id, &i.kind, &i.attempts, &i.tries)
	})
	if err != nil {
		l.handleError(ctx, "reading what is due for a webhook", err)
		return
	}
	for _, i := range rows {
		held, inHand := l.inFlight[i.id]
		if !inHand {
			l.window = append(l.window, i)
		}
		l.requeued = l.requeued || inHand && held != i
	}
	if len(rows) == limit {
		return
	}
	var next time.Time
	err = l.h.o.DB.One(ctx, nextDueDeliveryQuery.With(l.id, db.Micros(now)), db.TimeScanner(&next))
	if db.IfNoRow(err, nil) != nil {
		l.handleError(ctx, "reading what is due for a webhook", err)
		return
	}
	l.moreDue, l.nextDue = false, next
}

// canStart reports whether an attempt may start.
func (l *dispatcher) canStart() bool {
	return !l.disabled && !l.lost && !l.turnUsed() && len(l.window) > 0 && l.running < max(l.limit, 1) &&
		len(l.inFlight)-l.running < maxUnwritten && !l.h.o.Now().Before(l.pausedUntil)
}

// turnUsed reports whether the webhook has used up its turn while others wait.
func (l *dispatcher) turnUsed() bool { return l.started >= maxAttemptsPerTurn && l.h.atCapacity() }

// pool returns the pool of the next attempt's slot: failing webhooks must not take the slots of the
// others.
func (l *dispatcher) pool() chan struct{} {
	if l.level > 0 {
		return l.h.probes
	}
	return l.h.slots
}

// waitTime returns how long run may wait if no signal arrives.
func (l *dispatcher) waitTime() time.Duration {
	wait := idleTimeout
	now := l.h.o.Now()
	if len(l.window) > 0 || l.moreDue {
		if d := l.pausedUntil.Sub(now); d > 0 {
			wait = min(wait, d)
		}
	} else if !l.nextDue.IsZero() {
		wait = min(wait, max(l.nextDue.Sub(now), 0))
	}
	if d := time.Until(l.retryAt); d > 0 {
		wait = min(wait, d)
	}
	return wait + time.Millisecond
}

// release releases the webhook after it was idle for a while. It reports whether this node no
// longer has the lease.
func (l *dispatcher) release() bool {
	if l.lost {
		return true
	}
	due, free := l.idleState()
	if !free {
		l.idleSince = time.Time{}
		return false
	}
	if l.idleSince.IsZero() {
		l.idleSince = time.Now()
	}
	if !l.disabled && time.Since(l.idleSince) < idleTimeout && !l.h.atCapacity() || time.Now().Before(l.retryAt) {
		return false
	}
	l.idleSince = time.Time{}
	err := l.h.o.DB.Write(l.h.writeCtx, l.id, &db.Mutation{Guard: func(b *db.Batch) {
		b.Queue(releaseIdleQuery.With(l.id, l.lease, l.arrivals, due)).OrFail(errSuperseded)
	}})
	switch {
	case err == nil:
		return true
	case errors.Is(err, errSuperseded):
		l.stale.Store(true) // a delivery arrived, or another node took over: reload tells
	default:
		l.handleError(l.h.writeCtx, "leaving a webhook", err)
	}
	return false
}

// idleState reports whether there is no work for now, and when the next delivery is due: 0 for no
// known time.
func (l *dispatcher) idleState() (due int64, free bool) {
	resting := l.h.o.Now().Before(l.pausedUntil)
	switch {
	case l.disabled:
		return 0, true
	case l.revision == 0: // not loaded yet
		return 0, false
	case !resting && l.turnUsed():
		return db.Micros(l.h.o.Now()), true
	case len(l.window) > 0 || l.moreDue:
		return db.Micros(l.pausedUntil), resting
	case resting && !l.nextDue.IsZero():
		return max(db.Micros(l.pausedUntil), db.Micros(l.nextDue)), true
	}
	return db.Micros(l.nextDue), true
}
