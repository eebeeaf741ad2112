// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var finishQuery = db.SQL(`UPDATE delivery SET state = $3, lease = NULL, hold = 0, sequence = sequence + 1,
		reply = CASE WHEN $4 = '' THEN reply ELSE $4 END, updated_at = $5
	WHERE message = $1 AND n = $2 AND state IN ('scheduled', 'queued', 'deferred')
	RETURNING ` + changedColumns)

var cancelledQuery = db.SQL(`SELECT 1 FROM delivery WHERE message = $1 AND state = 'cancelled' LIMIT 1`)

// Cancel ends the scheduled, queued and deferred deliveries of a message as cancelled, and returns
// their number: 0 if it was cancelled before. A running attempt keeps its outcome. Cancel returns a
// fault.Conflict if no delivery is or can be cancelled. An attempt on another node may have begun a moment before: the state is then
// cancelled, although the recipient may get the mail.
func (q *Queue) Cancel(ctx context.Context, message db.ID) (int, error) {
	n, err := q.finish(ctx, message, Cancelled, "")
	if err != nil || n > 0 {
		return n, err
	}
	cancelled, err := db.Exists(ctx, q.o.DB, cancelledQuery.With(message))
	if err == nil && !cancelled {
		err = fault.New(fault.Conflict, "not_cancellable", "Nothing of this message is left that can be cancelled.")
	}
	return 0, err
}

// Fail ends the open deliveries of a message as failed, and returns their number: an operator drops
// them, or their account is suspended. A running attempt keeps its outcome.
func (q *Queue) Fail(ctx context.Context, message db.ID, reason string) (int, error) {
	return q.finish(ctx, message, Failed, db.CleanText(reason, maxReply))
}

// finish ends the open deliveries that are not in an attempt.
func (q *Queue) finish(ctx context.Context, message db.ID, state State, reason string) (int, error) {
	return q.override(ctx, message, func(tx *db.Tx, about MessageInfo, n int) (bool, error) {
		s, err := changeState(ctx, tx, q.o.Events, about, finishQuery.With(message, n, string(state), reason, db.Micros(q.o.Now())), message, state)
		return s != nil, err
	})
}
