// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Message is what the queue must know of a message to accept it.
type Message struct {
	About
	ID        db.ID
	DueAt     time.Time // scheduled until then; zero or past: at once
	ExpiresAt time.Time // bounced when not delivered by then
}

// Recipient is one of a message's recipients.
type Recipient struct {
	Address     string // as for RCPT TO
	Kind        string // to, cc, bcc; envelope: may share a transaction with others
	Destination string // the address's domain: A-labels, lower case
	Suppressed  bool   // begins, and ends, as suppressed
}

// Plan is the acceptance of a message: its deliveries, with places reserved in
// the windows of their destinations as far as there is room. Exactly one of
// Committed and Abandon must be called.
type Plan struct {
	q *Queue
}

// Plan reserves places for a message's deliveries. It does no I/O.
func (q *Queue) Plan(m Message, rcpts []Recipient) *Plan { return &Plan{q: q} }

// Queue adds the statements that insert the deliveries, and the events of
// suppressed ones, to the accept's job. It may run more than once.
func (p *Plan) Queue(b *db.Batch) {}

// Committed hands the deliveries that have a place to their couriers. Call it
// after the job's commit.
func (p *Plan) Committed() {}

// Abandon gives the places back. Call it when the job failed.
func (p *Plan) Abandon() {}
