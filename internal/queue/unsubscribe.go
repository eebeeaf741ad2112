// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
)

// While a node has the delivery in hand its outcome meets a sequence that it
// does not expect, and is numbered anew (resequence).
var unsubscribedQuery = db.SQL(`UPDATE delivery SET sequence = sequence + 1 WHERE message = $1 AND n = 0 AND account = $2
	RETURNING recipient, state, attempts, sequence`)

// RecordUnsubscribe puts the recipient of a link on the list of those who
// unsubscribed, and fires delivery_status with the delivery's state and the
// reason unsubscribed; that there is no delivery any more does no harm. It
// reports whether that changed anything: for who is on that list already
// nothing happens.
func (q *Queue) RecordUnsubscribe(ctx context.Context, k suppression.UnsubscribeLink) (bool, error) {
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
		if listed { // else it is the simulator's
			n, err := tx.Exec(ctx, entry)
			if err != nil || n == 0 {
				return err
			}
		}
		done = true
		s := statusData{MessageInfo: about, ID: k.Message, Recipient: k.Address, Status: Delivered, Sequence: 1, Reason: suppression.ReasonUnsubscribe.EventReason()}
		err := tx.One(ctx, unsubscribedQuery.With(k.Message, k.Account), &s.Recipient, (*string)(&s.Status), &s.Attempts, &s.Sequence)
		if err != nil && !errors.Is(err, db.ErrNoRow) {
			return err
		}
		s.Sequence--
		events := s.events(nil)
		for i := range events { // no delivery came into a state
			events[i].Status = stat.StatusUnsubscribed
		}
		return q.recordEvents(ctx, tx, events)
	})
	return done && err == nil, err
}
