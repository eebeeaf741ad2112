// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Shown is a message with all its deliveries, final ones included.
type Shown struct {
	ID         db.ID
	Account    db.ID
	Letter     Letter // zero if the message is gone
	Status     State
	Deliveries []Record
	Attempts   []Attempt // by delivery and time
}

var accountOf = db.SQL(`SELECT account FROM delivery WHERE message = $1 LIMIT 1`)

// Show returns a message of any account, or fault.NotFound.
func (o *Operator) Show(ctx context.Context, message db.ID) (Shown, error) {
	s := Shown{ID: message}
	rows, err := db.All(ctx, o.DB, records.With(message), scanRecord)
	if err != nil {
		return s, err
	}
	if len(rows) == 0 {
		return s, fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	var states []State
	for _, r := range rows {
		if r.tenure > 0 && !r.State.Final() && r.State != Scheduled {
			r.State = Sending
		}
		s.Deliveries = append(s.Deliveries, r.Record)
		states = append(states, r.State)
	}
	s.Status = Status(states)
	if err := o.DB.One(ctx, accountOf.With(message), &s.Account); err != nil {
		return s, err
	}
	letters, err := o.Letters(ctx, []db.ID{message})
	if err != nil {
		return s, err
	}
	s.Letter = letters[message]
	s.Attempts, err = readAttempts(ctx, o.DB, message)
	return s, err
}
