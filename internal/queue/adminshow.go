// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// MessageDetails is a message with all its deliveries, final ones included.
type MessageDetails struct {
	ID         db.ID
	Account    db.ID
	View       MessageView // zero if the message was deleted
	Status     State
	Deliveries []DeliveryStatus
	Attempts   []Attempt // sorted by delivery and time
}

var accountQuery = db.SQL(`SELECT account FROM delivery WHERE message = $1 LIMIT 1`)

// Show returns a message of any account. It returns a fault.NotFound if there is none.
func (o *Admin) Show(ctx context.Context, message db.ID) (MessageDetails, error) {
	s := MessageDetails{ID: message}
	rows, err := db.All(ctx, o.DB, deliveriesQuery.With(message), scanDeliveryRow)
	if err != nil {
		return s, err
	}
	if len(rows) == 0 {
		return s, fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	var states []State
	for _, r := range rows {
		if r.lease > 0 && !r.State.Final() && r.State != Scheduled {
			r.State = Sending
		}
		s.Deliveries = append(s.Deliveries, r.DeliveryStatus)
		states = append(states, r.State)
	}
	s.Status = MessageState(states)
	if err := o.DB.One(ctx, accountQuery.With(message), &s.Account); err != nil {
		return s, err
	}
	mails, err := o.LoadViews(ctx, []db.ID{message})
	if err != nil {
		return s, err
	}
	s.View = mails[message]
	s.Attempts, err = readAttempts(ctx, o.DB, message)
	return s, err
}
