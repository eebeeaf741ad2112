// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"math"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// pendingFor is how long a delivery that waits is kept at least, whatever the
// operator keeps events for: longer than the schedule, and than a webhook may
// fail before it is disabled.
const pendingFor = 8 * 24 * time.Hour

// purgeChunk is how many deliveries of a deleted webhook are removed at a time.
const purgeChunk = 500

var (
	// Webhooks of all states, the deleted ones with them.
	hooksFrom  = db.SQL(`SELECT id FROM webhook WHERE id > $1 ORDER BY id LIMIT 100`)
	pruneChunk = db.SQL(`DELETE FROM webhook_delivery WHERE webhook = $1 AND id IN (SELECT id FROM webhook_delivery
		WHERE webhook = $1 AND id < $2 AND (state <> 'pending' OR id < $3) ORDER BY id LIMIT $4) RETURNING id`)
	pruneTries = db.SQL(`DELETE FROM webhook_attempt WHERE webhook = $1 AND id <= $2 AND NOT EXISTS (SELECT 1 FROM webhook_delivery AS d
		WHERE d.webhook = webhook_attempt.webhook AND d.id = webhook_attempt.id)`)
	deletedHooks = db.SQL(`SELECT id FROM webhook WHERE status = 'deleted' AND id > $1 ORDER BY id LIMIT 100`)
	dropLane     = db.SQL(`DELETE FROM webhook_lane WHERE webhook = $1`)
	dropHook     = db.SQL(`DELETE FROM webhook WHERE id = $1 AND status = 'deleted'`)
)

// Prune deletes deliveries of events from before a time, with their attempts,
// at most limit of them in one transaction, and returns how many. It leaves
// alone what waits and is not eight days old. Call it until it returns 0; then
// nothing is left to prune.
func (h *Hooks) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	waits := before
	if least := h.o.Now().Add(-pendingFor); least.Before(waits) {
		waits = least
	}
	return h.pruneEach(ctx, hooksFrom, func(hook db.ID) (int, error) {
		return h.pruneHook(ctx, hook, db.FirstID(before), db.FirstID(waits), limit)
	})
}

// pruneEach calls prune for one webhook after the other until one had something.
func (h *Hooks) pruneEach(ctx context.Context, q *db.Query, prune func(db.ID) (int, error)) (int, error) {
	for last := db.ID(0); ; {
		hooks, err := db.All(ctx, h.o.DB, q.With(last), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
		if err != nil || len(hooks) == 0 {
			return 0, err
		}
		for _, id := range hooks {
			if n, err := prune(id); n > 0 || err != nil {
				return n, err
			}
		}
		last = hooks[len(hooks)-1]
	}
}

func (h *Hooks) pruneHook(ctx context.Context, hook, before, waits db.ID, limit int) (int, error) {
	n := 0
	err := h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n = 0
		last := db.ID(0)
		err := tx.Each(ctx, pruneChunk.With(hook, before, waits, limit), func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			n, last = n+1, max(last, id)
			return err
		})
		if err == nil && n > 0 {
			_, err = tx.Exec(ctx, pruneTries.With(hook, last))
		}
		return err
	})
	return n, err
}

// purge removes what is left of deleted webhooks, some of it at a time.
func (h *Hooks) purge(ctx context.Context) error {
	const all = db.ID(math.MaxInt64)
	for {
		n, err := h.pruneEach(ctx, deletedHooks, func(hook db.ID) (int, error) {
			if n, err := h.pruneHook(ctx, hook, all, all, purgeChunk); n > 0 || err != nil {
				return n, err
			}
			return 0, h.o.DB.Tx(ctx, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, dropLane.With(hook)); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, dropHook.With(hook))
				return err
			})
		})
		if n == 0 || err != nil {
			return err
		}
	}
}
