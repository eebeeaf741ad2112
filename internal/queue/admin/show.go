// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
)

// MessageDetails is a message with all its deliveries, final ones included.
type MessageDetails struct {
	ID         db.ID
	Account    db.ID
	View       MessageView // zero if the message was deleted
	Status     queue.State
	Deliveries []queue.DeliveryStatus
	Attempts   []queue.Attempt // sorted by delivery and time
}

var accountQuery = db.SQL(`SELECT account FROM delivery WHERE message = $1 LIMIT 1`)

// Show returns a message of any account. It returns a fault.NotFound if there is none.
func (q *Queue) Show(ctx context.Context, message db.ID) (MessageDetails, error) {
	s := MessageDetails{ID: message}
	var err error
	if s.Deliveries, err = queue.ReadDeliveries(ctx, q.DB, message); err != nil {
		return s, err
	}
	if len(s.Deliveries) == 0 {
		return s, fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	var states []queue.State
	for _, d := range s.Deliveries {
		states = append(states, d.State)
	}
	s.Status = queue.MessageState(states)
	if err := q.DB.One(ctx, accountQuery.With(message), &s.Account); err != nil {
		return s, err
	}
	mails, err := q.LoadViews(ctx, []db.ID{message})
	if err != nil {
		return s, err
	}
	s.View = mails[message]
	s.Attempts, err = queue.ReadAttempts(ctx, q.DB, message)
	return s, err
}
