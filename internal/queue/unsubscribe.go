// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
)

// While a node has leased the delivery, its outcome meets an unexpected sequence and is renumbered
// (reloadSequence).
var unsubscribedQuery = db.SQL(`UPDATE delivery SET sequence = sequence + 1 WHERE message = $1 AND n = 0 AND account = $2
	RETURNING recipient, sequence`)

// UnsubscribeMethod is the way in which a recipient unsubscribed.
type UnsubscribeMethod string

// The ways to unsubscribe that the service offers.
const (
	UnsubscribeByLink  UnsubscribeMethod = "link"
	UnsubscribeByEmail UnsubscribeMethod = "email"
)

// RecordUnsubscribe adds the recipient of a link to the list of unsubscribed addresses, and records
// an unsubscribe event. The delivery keeps its state; it may have been deleted. RecordUnsubscribe
// reports whether anything changed: not if the recipient is already on that list.
func (q *Queue) RecordUnsubscribe(ctx context.Context, k suppression.UnsubscribeLink, method UnsubscribeMethod) (bool, error) {
	about, err := q.o.Describe(ctx, k.Message)
	if fault.Is(err, fault.NotFound) {
		about, err = MessageInfo{Account: k.Account}, nil
	}
	if err != nil {
		return false, err
	}
	entry, listed := q.o.Suppressions.AddStatement(suppression.Entry{
		Account: k.Account, Address: k.Address, Reason: suppression.ReasonUnsubscribe, Message: k.Message,
	})
	done := false
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		done = false
		if listed { // otherwise it is a simulator address
			n, err := tx.Exec(ctx, entry)
			if err != nil || n == 0 {
				return err
			}
		}
		done = true
		s := StatusChange{MessageInfo: about, ID: k.Message, Recipient: k.Address, Sequence: 1}
		err := tx.One(ctx, unsubscribedQuery.With(k.Message, k.Account), &s.Recipient, &s.Sequence)
		if err := db.IfNoRow(err, nil); err != nil {
			return err
		}
		e := s.newEvent(event.Unsubscribe, UnsubscribeEvent{EventFields: s.eventFields(s.Sequence), Method: method})
		return q.o.Events.Record(ctx, tx, e)
	})
	return done && err == nil, err
}
