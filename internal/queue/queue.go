// SPDX-License-Identifier: Apache-2.0

// Package queue carries deliveries to their recipients: one message to one
// recipient each, a row with a state. What it promises:
//
//   - a delivery that was committed is tried until it reaches a final state,
//     whatever ends or breaks meanwhile; what an attempt brought is written in
//     the transaction of its events, or tried again until it is;
//   - one node has a delivery in hand at a time. A delivery may still go out
//     twice: when the node ends between a host's 250 and the commit of that;
//   - states change by conditional updates alone, so that a late answer never
//     overwrites a later state;
//   - a destination that is slow, dead or has a long backlog holds up no other.
//
// Memory holds a window of deliveries per destination; the rest waits in rows
// that no node has, and is found again by index.
package queue

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Options are what a Queue works with.
type Options struct {
	DB     *db.DB
	Node   *db.Node
	Events *event.Log
	Hub    *notify.Hub
	Key    *secret.Key // signs the return paths of API mail
	// Suppressions gets the recipients of API mail that are at fault or complain.
	Suppressions *suppression.List
	Now          func() time.Time
	Log          *slog.Logger

	// Prepare loads a message for sending: its facts, and its DKIM signatures,
	// made once for all its deliveries in hand. A fault.NotFound or
	// fault.Denied makes its deliveries failed, with the error's message as
	// the reason; any other error puts them off for a while.
	Prepare func(ctx context.Context, message db.ID) (*OutboundMessage, error)
	// Describe loads what events say about a message.
	Describe func(ctx context.Context, message db.ID) (MessageInfo, error)
	// ChooseAgent names the courier for a destination (a domain, A-labels, lower
	// case), at the beginning of each run. An error puts the destination off.
	ChooseAgent func(ctx context.Context, destination string) (Agent, error)

	// ResetBackoff tells the couriers that destinations are wanted now, also at hosts
	// that were down a moment ago; nil if they remember none.
	ResetBackoff func()

	Window       int           // deliveries in hand per destination at most; 0: 200
	Capacity     int           // deliveries in hand at most; 0: 20,000
	MaxSessions  int           // runs at the same time at most; 0: 500
	DrainTimeout time.Duration // how long couriers may finish when the queue ends; 0: 30 s
}

const (
	// pollInterval is how often a node looks for what other nodes left.
	pollInterval = 5 * time.Second
	// maxWrites bounds the outcomes that wait for their commit at once;
	// couriers wait for a place among them.
	maxWrites = 1024
	// drainGrace is how long, after the drain, the last outcomes may take.
	drainGrace = 5 * time.Second
	// expiredGrace is how long a delivery is tried, from the start on, whose time ran
	// out while no node was there: what was accepted just before had no try at all.
	expiredGrace = 4 * time.Hour
)

// Queue schedules the deliveries of a node. It is safe for use by many
// goroutines.
type Queue struct {
	o              Options
	messages       *messageCache
	writeSlots     chan struct{} // one for each outcome that is being written
	wake           chan struct{} // the main loop shall look at its alarm
	attemptCtx     context.Context
	cancelAttempts context.CancelFunc // ends carry: couriers give up
	writeCtx       context.Context
	cancelWrites   context.CancelFunc // ends last: outcomes are given up
	work           sync.WaitGroup     // runs, fills, writes
	expiredLeases  map[db.ID]time.Time
	// onForget, if set, is told each delivery that left the memory (for tests).
	onForget func(d *Delivery)

	mu              sync.Mutex
	dests           map[string]*destination
	leased          map[deliveryKey]*Delivery
	accounts        map[db.ID]*accountLoad
	waitingAccounts []*accountLoad // that wait for runs
	refillQueue     []*destination // whose rows wait to be claimed
	backlogged      int            // destinations with rows that wait and may be claimed, as far as is known
	full            bool           // no place was left for what waits
	slotsUsed       int            // places taken
	preempting      int            // of these, on their way to others
	sessions        int
	waitingSessions int // runs that wait for something, and don't count
	inFlight        int
	claims          int
	unwritten       int // outcomes whose commit failed so far
	started         bool
	startedAt       time.Time // when it began
	draining        bool
	reconciling     bool // rows and memory are being compared: nothing is claimed
	nextWake        time.Time
	uncertainSince  time.Time     // when a commit of unknown outcome may first have left rows behind; zero: never
	uncertainLast   time.Time     // when one may last have
	cursor          string        // where the search over destinations goes on
	overriding      map[db.ID]int // messages whose deliveries are being ended by a verb
	overrides       int           // how often that happened
	holds           *activeHolds  // what operators hold; nil for nothing
	holdsReadAt     time.Time     // when that was learned

	retryRequests map[string]int64 // what operators wanted tried, as heed last read it; its own

	pruneCursor pruneCursor // has a lock of its own
}

// deliveryKey names a delivery.
type deliveryKey struct {
	message db.ID
	n       int
}

// New returns a queue. Until Session is called it accepts deliveries and starts
// none.
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
		o:             o,
		messages:      newMessageCache(o.Prepare),
		writeSlots:    make(chan struct{}, maxWrites),
		wake:          make(chan struct{}, 1),
		expiredLeases: map[db.ID]time.Time{},
		dests:         map[string]*destination{},
		leased:        map[deliveryKey]*Delivery{},
		accounts:      map[db.ID]*accountLoad{},
		overriding:    map[db.ID]int{},
	}
	q.attemptCtx, q.cancelAttempts = context.WithCancel(context.Background())
	q.writeCtx, q.cancelWrites = context.WithCancel(context.Background())
	return q
}

// Run carries deliveries until ctx ends: it takes over what ended nodes had in
// hand, starts runs, and finds what is due. Then it drains: attempts in hand
// may finish for Options.DrainTimeout, their outcomes are written, and what was not
// begun is released for other nodes. The node's lease must be kept (db.Node.MaintainLease)
// until Session has returned.
func (q *Queue) Run(ctx context.Context) error {
	sub := q.o.Hub.Subscribe(notify.Key{Kind: notify.Queue})
	defer sub.Close()
	orders := q.o.Hub.Subscribe(notify.Key{Kind: notify.Hold})
	defer orders.Close()
	q.mu.Lock()
	q.started, q.startedAt = true, q.o.Now()
	q.resumeAll()
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

// wakeAt makes the main loop look no later than at. q.mu is held.
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

// drain ends the queue in order.
func (q *Queue) drain() error {
	q.mu.Lock()
	q.draining = true
	carried := q.inFlight
	q.mu.Unlock()
	q.o.Log.Info("the queue ends; attempts in hand may finish", "carried", carried)
	defer q.cancelWrites()
	done := make(chan struct{})
	go func() {
		q.work.Wait()
		close(done)
	}()
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{{q.o.DrainTimeout, q.cancelAttempts}, {drainGrace, q.cancelWrites}, {drainGrace, func() {}}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			q.cancelAttempts()
			return q.releaseOwn()
		case <-timer.C:
			step.then()
		}
	}
	// What a courier still has is released when the node's lease ends.
	q.o.Log.Error("couriers did not end in time; what they carried will be tried again")
	return nil
}

// Stats are a node's figures at this moment.
type Stats struct {
	Destinations int // with something in hand, waiting or put off
	Leased       int // deliveries in hand
	InFlight     int // of these, with a courier
	Sessions     int // runs at work
	Unwritten    int // outcomes whose commit failed so far: no attempt begins while there is one
}

// Stats returns the figures.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Destinations: len(q.dests), Leased: q.slotsUsed, InFlight: q.inFlight, Sessions: q.sessions, Unwritten: q.unwritten}
}
