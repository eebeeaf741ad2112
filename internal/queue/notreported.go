// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// ReasonNotReported is the reason in the delivery_status of a delivery whose result could not be
// reported to the sender by mail.
const ReasonNotReported = "not_reported"

// An outcome that meets the new sequence is renumbered (reloadSequence), as with unsubscribedQuery.
var notReportedQuery = db.SQL(`UPDATE delivery SET sequence = sequence + 1 WHERE message = $1 AND n = $2
	RETURNING recipient, state, attempts, sequence, code, enhanced, reply, remote_host`)

// FailNotices deletes notices that can't be reported. For each of their deliveries it records a
// delivery_status event with the current state and ReasonNotReported.
func (q *Queue) FailNotices(ctx context.Context, message db.ID, list []Notice) error {
	about, err := q.o.Describe(ctx, message)
	gone := fault.Is(err, fault.NotFound)
	if err != nil && !gone {
		return err
	}
	err = q.o.DB.Tx(ctx, func(tx *db.Tx) error {
		told := map[int]bool{}
		for i := range list {
			deleted, err := tx.Exec(ctx, deleteNoticeQuery.With(list[i].ID))
			if err != nil {
				return err
			}
			if n := list[i].N; deleted > 0 && !gone && !told[n] {
				told[n] = true
				if err := q.recordNotReported(ctx, tx, about, message, n); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil {
		q.o.Events.WakeSequencer()
	}
	return err
}

func (q *Queue) recordNotReported(ctx context.Context, tx *db.Tx, about MessageInfo, message db.ID, n int) error {
	s := StatusChange{MessageInfo: about, ID: message, Reason: ReasonNotReported}
	err := tx.One(ctx, notReportedQuery.With(message, n), &s.Recipient, (*string)(&s.Status), &s.Attempts, &s.Sequence,
		&s.Code, &s.Enhanced, &s.Reply, &s.Remote)
	if err != nil {
		return db.IfNoRow(err, nil)
	}
	s.Sequence--
	events := s.Events(nil)
	for i := range events { // the state did not change
		events[i].Status = ""
	}
	return recordEvents(ctx, tx, q.o.Events, events)
}
