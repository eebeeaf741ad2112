// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	answered    = db.SQL(`INSERT INTO vacation_reply (mailbox, sender, round, at) VALUES (1, 'bob@example.com', 1, $1)`)
	answerAgain = db.SQL(`UPDATE vacation_reply SET at = $1 WHERE mailbox = 1 AND sender = 'bob@example.com'`)
	answers     = db.SQL(`SELECT COUNT(*) FROM vacation_reply`)
)

// A sender who gets a new reply at the moment when the old record is pruned gets no second one.
func TestPruneAnswersSparesTheRenewed(t *testing.T) {
	each(t, func(h *fixture) {
		ctx := t.Context()
		if _, err := h.db.Exec(ctx, answered.With(db.Micros(h.now.Add(-mailbox.VacationReplyRetention-time.Second)))); err != nil {
			t.Fatal(err)
		}
		pruned := make(chan error, 1)
		err := h.db.Tx(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, answerAgain.With(db.Micros(h.now))); err != nil {
				return err
			}
			go func() {
				_, err := h.PruneVacationReplies(ctx, h.now.Add(-mailbox.VacationReplyRetention), 10)
				pruned <- err
			}()
			return dbtest.AwaitBlocked(ctx, h.db, tx, "DELETE%")
		})
		n := 0
		if err := errors.Join(err, <-pruned, h.db.One(ctx, answers.With(), &n)); err != nil || n != 1 {
			t.Errorf("%d answers are remembered: %v", n, err)
		}
	})
}
