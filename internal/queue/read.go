// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Record is a delivery as the API shows it.
type Record struct {
	N         int
	Recipient string
	Kind      string
	State     State // Sending while a node has it in hand
	DueAt     time.Time
	ExpiresAt time.Time
	Attempts  int
	Code      int
	Enhanced  string
	Reply     string
	Remote    string
	UpdatedAt time.Time
}

// Attempt is one try of a delivery.
type Attempt struct {
	N          int // of the delivery
	Attempt    int // 1…
	StartedAt  time.Time
	Took       time.Duration
	Outcome    State
	Host       string
	IP         string
	TLS        string
	Stage      string
	Code       int
	Enhanced   string
	Reply      string
	Transcript string
}

// Deliveries returns the deliveries of a message in the order of recipients.
func (q *Queue) Deliveries(ctx context.Context, message db.ID) ([]Record, error) { return nil, nil }

// Attempts returns all attempts of a message, by delivery and time.
func (q *Queue) Attempts(ctx context.Context, message db.ID) ([]Attempt, error) { return nil, nil }

// Status derives a message's own state from those of its deliveries: the first
// of sending, deferred, queued and scheduled that one of them has, else the
// first of failed, bounced, complained, suppressed, cancelled and delivered.
func Status(states []State) State { return "" }

// Stats are a node's figures at this moment.
type Stats struct {
	InHand    int // deliveries in hand
	Carried   int // of these, with a courier
	Runs      int // runs at work
	Unwritten int // outcomes whose commit failed so far: no attempt begins while there is one
}

// Stats returns the figures.
func (q *Queue) Stats() Stats { return Stats{} }
