// SPDX-License-Identifier: Apache-2.0

// Package outbound accepts mail that an account sends through the API, or that a mailbox submits
// over SMTP. It checks every rule, composes the message, and commits it together with its
// deliveries; only then is it accepted.
package outbound

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/thread"
)

// Outbox accepts messages and shows their status.
type Outbox struct {
	*Messages
	Node         *lease.Node
	Queue        *queue.Queue
	Index        *index.Index
	Suppressions *suppression.List
	Threads      *thread.Threads
	Mailboxes    *mailbox.Mailboxes
	Templates    *template.Templates // for submissions, like Keys
	Keys         *idempotency.Keys   // for submissions; the API has its own
	Limits       *quota.Limiter

	pruneCursor pruneCursor
}

// How long delivery is tried. RFC 5321 §4.5.4.1 requires at least 4–5 days for people's mail; an
// application prefers to know sooner.
const (
	ExpiryAPI        = 72 * time.Hour
	ExpirySubmission = 5 * 24 * time.Hour
)

// Get returns a message of an account with its deliveries, or fault.NotFound.
func (o *Outbox) Get(ctx context.Context, account, id db.ID) (Message, error) {
	r, err := o.loadOwned(ctx, account, id)
	if err != nil {
		return Message{}, err
	}
	m := r.toMessage()
	all, err := o.Queue.Deliveries(ctx, id)
	m.SetDeliveries(all)
	return m, err
}

// Attempts returns the attempts of a message's deliveries, each with its SMTP conversation, or
// fault.NotFound.
func (o *Outbox) Attempts(ctx context.Context, account, id db.ID) ([]queue.Attempt, error) {
	if _, err := o.Get(ctx, account, id); err != nil {
		return nil, err
	}
	return o.Queue.Attempts(ctx, id)
}
