// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"
)

// Courier carries deliveries to one kind of destination: into mailboxes here,
// or to other hosts by SMTP.
type Courier interface {
	// Runs says how many runs shall work for a destination at the same time
	// when so many deliveries wait for it; at least 1 is taken.
	Runs(waiting int) int
	// Carry works through a run: it takes consignments by r.Next until that
	// returns nil, and reports each by r.Done or r.Trouble, so that many
	// messages can share a connection. It may take the next before it
	// reported the last (pipelining). What it took and did not report when it
	// returns is deferred. ctx ends when the attempt must be given up.
	Carry(ctx context.Context, r *Run)
}

// Consignment is what one SMTP transaction carries: a message to one recipient,
// or, for mail that a mailbox submitted, to several of the same destination.
type Consignment struct {
	Mail *Mail
	From string      // MAIL FROM without angle brackets; "" is the null sender
	To   []*Delivery // at least one, at most 100

	taken time.Time
}

// Run is a courier's work for one destination. Its methods serve one goroutine
// at a time.
type Run struct {
	q    *Queue
	ctx  context.Context
	dest string
}

// Destination returns the domain that the run is for: A-labels, lower case.
func (r *Run) Destination() string { return r.dest }

// Next returns the next consignment, or nil when the run shall end: nothing
// waits at this moment, another destination needs the place, or the queue is
// ending. It may load and sign a message, but never waits for one to come.
func (r *Run) Next() *Consignment { return nil }

// Done reports what became of a consignment: one outcome per recipient in
// their order, or a single one for all.
func (r *Run) Done(c *Consignment, outcomes ...Outcome) {}

// Trouble reports that the destination as a whole can't be reached: c is
// deferred with o, the rest of what is in hand for the destination is put off,
// and after a while one run tries again. End the run after it.
func (r *Run) Trouble(c *Consignment, o Outcome) {}
