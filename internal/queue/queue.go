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
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/signal"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Options are what a Queue works with.
type Options struct {
	DB     *db.DB
	Node   *db.Node
	Events *event.Log
	Hub    *signal.Hub
	Key    *secret.Key // signs the return paths of API mail
	// Suppressions gets the recipients of API mail that are at fault or complain.
	Suppressions *suppression.List
	Now          func() time.Time
	Log          *slog.Logger

	// Prepare loads a message for sending: its facts, and its DKIM signatures,
	// made once for all its deliveries in hand. A fault.NotFound or
	// fault.Denied makes its deliveries failed, with the error's message as
	// the reason; any other error puts them off for a while.
	Prepare func(ctx context.Context, message db.ID) (*Mail, error)
	// Describe loads what events say about a message.
	Describe func(ctx context.Context, message db.ID) (About, error)
	// Choose names the courier for a destination (a domain, A-labels, lower
	// case), at the beginning of each run. An error puts the destination off.
	Choose func(ctx context.Context, destination string) (Courier, error)

	// Again tells the couriers that destinations are wanted now, also at hosts
	// that were down a moment ago; nil if they remember none.
	Again func()

	Window int           // deliveries in hand per destination at most; 0: 200
	Places int           // deliveries in hand at most; 0: 20,000
	Runs   int           // runs at the same time at most; 0: 500
	Drain  time.Duration // how long couriers may finish when the queue ends; 0: 30 s
}

const (
	// lookEvery is how often a node looks for what other nodes left.
	lookEvery = 5 * time.Second
	// maxWrites bounds the outcomes that wait for their commit at once;
	// couriers wait for a place among them.
	maxWrites = 1024
	// endGrace is how long, after the drain, the last outcomes may take.
	endGrace = 5 * time.Second
	// afterAll is how long a delivery is tried, from the start on, whose time ran
	// out while no node was there: what was accepted just before had no try at all.
	afterAll = 4 * time.Hour
)

// Queue schedules the deliveries of a node. It is safe for use by many
// goroutines.
type Queue struct {
	o     Options
	mails *mails
	slots chan struct{} // one for each outcome that is being written
	poke  chan struct{} // the main loop shall look at its alarm
	carry context.Context
	stop  context.CancelFunc // ends carry: couriers give up
	last  context.Context
	quit  context.CancelFunc // ends last: outcomes are given up
	work  sync.WaitGroup     // runs, fills, writes
	ended map[db.ID]time.Time
	// settled, if set, is told each delivery that left the memory (for tests).
	settled func(d *Delivery)

	mu         sync.Mutex
	dests      map[string]*destination
	hand       map[place]*Delivery
	senders    map[db.ID]*sender
	line       []*sender      // that wait for runs
	behind     []*destination // whose rows wait to be claimed
	waiting    int            // destinations with rows that wait and may be claimed, as far as is known
	full       bool           // no place was left for what waits
	held       int            // places taken
	yielding   int            // of these, on their way to others
	runs       int
	aside      int // runs that wait for something, and don't count
	carried    int
	fills      int
	unwritten  int // outcomes whose commit failed so far
	begun      bool
	since      time.Time // when it began
	ending     bool
	checking   bool // rows and memory are being compared: nothing is claimed
	alarm      time.Time
	doubt      time.Time     // when a commit of unknown outcome may first have left rows behind; zero: never
	doubted    time.Time     // when one may last have
	cursor     string        // where the search over destinations goes on
	overruling map[db.ID]int // messages whose deliveries are being ended by a verb
	overruled  int           // how often that happened
	standing   *standing     // what operators hold; nil for nothing
	attended   time.Time     // when that was learned

	nudged map[string]int64 // what operators wanted tried, as heed last read it; its own

	pruned pruned // has a lock of its own
}

// place names a delivery.
type place struct {
	message db.ID
	n       int
}

// New returns a queue. Until Run is called it accepts deliveries and starts
// none.
func New(o Options) *Queue {
	def := func(n *int, fallback int) {
		if *n <= 0 {
			*n = fallback
		}
	}
	def(&o.Window, 200)
	def(&o.Places, 20_000)
	def(&o.Runs, 500)
	if o.Drain <= 0 {
		o.Drain = 30 * time.Second
	}
	q := &Queue{
		o:          o,
		mails:      newMails(o.Prepare),
		slots:      make(chan struct{}, maxWrites),
		poke:       make(chan struct{}, 1),
		ended:      map[db.ID]time.Time{},
		dests:      map[string]*destination{},
		hand:       map[place]*Delivery{},
		senders:    map[db.ID]*sender{},
		overruling: map[db.ID]int{},
	}
	q.carry, q.stop = context.WithCancel(context.Background())
	q.last, q.quit = context.WithCancel(context.Background())
	return q
}

// Run carries deliveries until ctx ends: it takes over what ended nodes had in
// hand, starts runs, and finds what is due. Then it drains: attempts in hand
// may finish for Options.Drain, their outcomes are written, and what was not
// begun is released for other nodes. The node's lease must be kept (db.Node.Keep)
// until Run has returned.
func (q *Queue) Run(ctx context.Context) error {
	sub := q.o.Hub.Subscribe(signal.Key{Kind: signal.Queue})
	defer sub.Close()
	orders := q.o.Hub.Subscribe(signal.Key{Kind: signal.Hold})
	defer orders.Close()
	q.mu.Lock()
	q.begun, q.since = true, q.o.Now()
	q.startAll()
	q.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	woken := true
	for {
		q.mu.Lock()
		wait := q.alarm.Sub(q.o.Now())
		q.mu.Unlock()
		if woken || wait <= 0 {
			if err := q.look(ctx); err != nil && ctx.Err() == nil {
				q.o.Log.Error("looking for mail that is due failed", "error", err)
			}
			q.mu.Lock()
			wait = max(q.alarm.Sub(q.o.Now()), 10*time.Millisecond)
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
			q.attended = time.Time{}
			q.mu.Unlock()
			woken = true
		case <-timer.C:
			woken = true
		case <-q.poke:
			woken = false
		}
	}
}

// wakeAt makes the main loop look no later than at. q.mu is held.
func (q *Queue) wakeAt(at time.Time) {
	if !at.Before(q.alarm) {
		return
	}
	q.alarm = at
	select {
	case q.poke <- struct{}{}:
	default:
	}
}

// drain ends the queue in order.
func (q *Queue) drain() error {
	q.mu.Lock()
	q.ending = true
	carried := q.carried
	q.mu.Unlock()
	q.o.Log.Info("the queue ends; attempts in hand may finish", "carried", carried)
	defer q.quit()
	done := make(chan struct{})
	go func() {
		q.work.Wait()
		close(done)
	}()
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{{q.o.Drain, q.stop}, {endGrace, q.quit}, {endGrace, func() {}}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			q.stop()
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
	InHand       int // deliveries in hand
	Carried      int // of these, with a courier
	Runs         int // runs at work
	Unwritten    int // outcomes whose commit failed so far: no attempt begins while there is one
}

// Stats returns the figures.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Destinations: len(q.dests), InHand: q.held, Carried: q.carried, Runs: q.runs, Unwritten: q.unwritten}
}
