// SPDX-License-Identifier: Apache-2.0

// Package queue delivers messages. A delivery is one message to one recipient, stored as a row with
// a state. The package guarantees:
//
//   - A committed delivery is tried until it reaches a final state, despite any failure. The
//     queue commits an attempt's outcome in one transaction with its events, and repeats that
//     commit until it succeeds.
//   - One node at a time has the lease of a delivery. A delivery may still go out twice: when the
//     node ends between a host's 250 and the commit of the outcome.
//   - Only conditional updates change a state, so a late outcome never overwrites a later state.
//   - A destination that is slow, dead or has a long backlog does not delay other destinations.
//
// Memory holds a window of leased deliveries per destination. All others wait in rows without a
// lease, and the queue finds them again by index.
package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Options configure a Queue.
type Options struct {
	DB     *db.DB
	Node   *lease.Node
	Events *event.Log
	Hub    *notify.Hub
	Key    *secret.Key // signs the return paths of API mail
	// Suppressions gets the recipients of API mail whose address bounces or who complain.
	Suppressions *suppression.List
	Now          func() time.Time
	Log          *slog.Logger

	// Prepare loads a message for sending: its metadata and its DKIM signatures, made once for all
	// its leased deliveries. A fault.NotFound or fault.Denied makes its deliveries fail, with the
	// error's message as the reason. Any other error delays them.
	Prepare func(ctx context.Context, message db.ID) (*OutboundMessage, error)
	// Describe loads the event data of a message.
	Describe func(ctx context.Context, message db.ID) (MessageInfo, error)
	// ChooseAgent returns the delivery agent for a destination (a domain, A-labels, lower case), at
	// the beginning of each session. An error makes the destination back off.
	ChooseAgent func(ctx context.Context, destination string) (Agent, error)

	// ResetBackoff makes the delivery agents forget which hosts were down a moment ago, for a retry
	// on demand. It is nil if they remember none.
	ResetBackoff func()

	Window       int           // maximum of leased deliveries per destination; 0: 200
	Capacity     int           // maximum of leased deliveries; 0: 20,000
	MaxSessions  int           // maximum of concurrent sessions; 0: 500
	DrainTimeout time.Duration // how long attempts may finish after the queue stops; 0: 30 s
}

const (
	// pollInterval is how often a node looks for deliveries that other nodes released.
	pollInterval = 5 * time.Second
	// maxWrites is the maximum of outcomes whose commit is pending. Delivery agents wait for a free
	// slot.
	maxWrites = 1024
	// expiredGrace is how long, from the queue's start, a delivery is tried that expired while no
	// node was running. Deliveries accepted just before the last node stopped had no attempt at
	// all.
	expiredGrace = 4 * time.Hour
)

// Queue schedules the deliveries of a node. It is safe for concurrent use.
type Queue struct {
	o              Options
	messages       *messageCache
	writeSlots     chan struct{} // one slot per outcome that is being written
	wake           chan struct{} // makes the main loop re-read nextWake
	attemptCtx     context.Context
	cancelAttempts context.CancelFunc // ends attemptCtx: delivery agents give up
	writeCtx       context.Context
	cancelWrites   context.CancelFunc // ends writeCtx, last of all: pending outcomes are dropped
	work           sync.WaitGroup     // sessions, claims, writes

	// Only the goroutine of Run uses these.
	retryRequests map[string]int64 // retry requests as applyRetryRequests last read them
	cursor        string           // where scanDestinations continues

	pruneCursor pruneCursor // has its own lock

	// onForget, if set, is called with each delivery that leaves the memory (for tests).
	onForget func(d *Delivery)

	// mu guards what follows: the deliveries in memory, and what decides whether they may be
	// attempted. It is never held during I/O.
	mu             sync.Mutex
	dispatch       *dispatch.Dispatcher[*Delivery]
	unwritten      int       // outcomes whose commit has failed so far
	startedAt      time.Time // when Run began
	draining       bool
	nextWake       time.Time
	uncertainSince time.Time    // first commit of unknown outcome that may have left leased rows; zero: none
	uncertainLast  time.Time    // last commit of unknown outcome
	overrides      int          // number of overrides so far
	holds          *activeHolds // active holds; nil for none
	holdsReadAt    time.Time    // when holds was read
}

type (
	deliveryKey = dispatch.Key
	claim       = dispatch.Claim[*Delivery]
)

// New returns a queue. Until Run is called it accepts deliveries and starts no attempts.
func New(o Options) *Queue {
	def := func(n *int, fallback int) {
		if *n <= 0 {
			*n = fallback
		}
	}
	def(&o.Window, 200)
	def(&o.Capacity, 20_000)
	def(&o.MaxSessions, 500)
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	q := &Queue{
		o:          o,
		messages:   newMessageCache(o.Prepare),
		writeSlots: make(chan struct{}, maxWrites),
		wake:       make(chan struct{}, 1),
	}
	q.dispatch = dispatch.New(dispatch.Options[*Delivery]{
		Now: o.Now, Window: o.Window, Capacity: o.Capacity, MaxSessions: o.MaxSessions,
		Lease:        q.usableLease,
		IsHeld:       func(destination string) bool { return q.holds.destinationHold(destination) != 0 },
		StartSession: q.startSession,
		StartClaim:   q.startClaim,
		WakeAt:       q.wakeAt,
		Forgotten:    q.afterForget,
	})
	q.attemptCtx, q.cancelAttempts = context.WithCancel(context.Background())
	q.writeCtx, q.cancelWrites = context.WithCancel(context.Background())
	return q
}

// Run processes deliveries until ctx ends. It takes over the deliveries of nodes that ended, starts
// sessions and finds due deliveries. Then it drains: running attempts may finish for
// Options.DrainTimeout, Run writes their outcomes, and releases the other deliveries for other
// nodes. The node's lease must be maintained (lease.Node.MaintainLease) until Run has returned.
func (q *Queue) Run(ctx context.Context) error {
	sub := q.o.Hub.Subscribe(notify.Key{Kind: notify.Queue})
	defer sub.Close()
	orders := q.o.Hub.Subscribe(notify.Key{Kind: notify.Hold})
	defer orders.Close()
	q.mu.Lock()
	q.startedAt = q.o.Now()
	q.dispatch.Start()
	q.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	woken := true
	for {
		q.mu.Lock()
		wait := q.nextWake.Sub(q.o.Now())
		q.mu.Unlock()
		if woken || wait <= 0 {
			if err := q.poll(ctx); err != nil && ctx.Err() == nil {
				q.o.Log.Error("looking for mail that is due failed", "error", err)
			}
			q.mu.Lock()
			wait = max(q.nextWake.Sub(q.o.Now()), 10*time.Millisecond)
			q.mu.Unlock()
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return q.drain()
		case <-sub.C:
			woken = true
		case <-orders.C:
			q.mu.Lock()
			q.holdsReadAt = time.Time{}
			q.mu.Unlock()
			woken = true
		case <-timer.C:
			woken = true
		case <-q.wake:
			woken = false
		}
	}
}

// wakeAt makes the main loop poll no later than at. q.mu is held.
func (q *Queue) wakeAt(at time.Time) {
	if !at.Before(q.nextWake) {
		return
	}
	q.nextWake = at
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drain waits for running attempts and their outcomes, then releases the node's deliveries.
func (q *Queue) drain() error {
	q.mu.Lock()
	q.draining = true
	attempts := q.dispatch.Stats().InAttempt
	q.mu.Unlock()
	q.o.Log.Info("the queue ends; running attempts may finish", "attempts", attempts)
	return q.o.Node.Drain(lease.Drain{
		Work: "deliveries", Wait: q.work.Wait, Timeout: q.o.DrainTimeout,
		CancelAttempts: q.cancelAttempts, CancelWrites: q.cancelWrites, Release: q.releaseLease,
	})
}

// Stats are current counts of a node's queue.
type Stats struct {
	Destinations int // destinations with leased or waiting deliveries, or in backoff
	Leased       int // leased deliveries
	InFlight     int // leased deliveries in an attempt
	Sessions     int // sessions at work
	Unwritten    int // outcomes whose commit has failed so far; no attempt begins while there is one
}

// Stats returns the current counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.dispatch.Stats()
	return Stats{Destinations: s.Destinations, Leased: s.Leased, InFlight: s.InAttempt, Sessions: s.Sessions, Unwritten: q.unwritten}
}

// usableLease returns the node's lease, and whether the queue may lease deliveries under it.
// q.mu is held.
func (q *Queue) usableLease() (db.ID, bool) {
	lease, ok := q.o.Node.Lease()
	return lease, ok && !q.draining && q.unwritten == 0
}

// afterForget is called with each delivery that leaves the memory. q.mu is held.
func (q *Queue) afterForget(d *Delivery) {
	q.messages.unretain(d.Message)
	if q.onForget != nil {
		q.onForget(d)
	}
}
