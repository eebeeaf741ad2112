// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var rescheduleQuery = db.SQL(`UPDATE delivery SET due_at = $2, expires_at = $3, updated_at = $4,
		delay_report_at = CASE WHEN delay_report_at > 0 THEN $2 + (delay_report_at - due_at) ELSE 0 END
	WHERE message = $1 AND state = 'scheduled' AND (lease IS NULL OR lease = 0)`)

// Reschedule moves the deliveries of a message that are still scheduled. also, if not nil, runs in
// the same transaction. Reschedule returns a fault.Conflict if there are none.
func (q *Queue) Reschedule(ctx context.Context, message db.ID, due, expires time.Time, also func(*db.Tx) error) error {
	err := q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, rescheduleQuery.With(message, db.Micros(due), db.Micros(expires), db.Micros(q.o.Now())))
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "not_scheduled", "Nothing of this message is still scheduled.")
		}
		if err == nil && also != nil {
			err = also(tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeAt(due)
	return nil
}
