// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// purgeChunk is how many deliveries of a deleted webhook are removed at once.
	purgeChunk = 500
	// purgeAfter is how long the row of a deleted webhook stays: a test or an older transaction may
	// still add a delivery to it.
	purgeAfter = time.Hour
)

var (
	// Webhooks of all states, including deleted ones.
	agedWebhookQuery = db.SQL(`SELECT id FROM webhook
		WHERE id > 0 AND EXISTS (SELECT 1 FROM webhook_delivery AS d WHERE d.webhook = webhook.id AND d.id < $1) ORDER BY id LIMIT 1`)
	pruneDeliveriesQuery = db.SQL(`DELETE FROM webhook_delivery WHERE (webhook, id) IN (SELECT webhook, id FROM webhook_delivery
		WHERE webhook = $1 AND id < $2 ORDER BY id LIMIT $3) RETURNING id`)
	pruneAttemptsQuery  = db.SQL(`DELETE FROM webhook_attempt WHERE webhook = $1 AND id <= $2`)
	deletedWebhookQuery = db.SQL(`SELECT id FROM webhook
		WHERE status = 'deleted' AND (status_at < $1 OR EXISTS (SELECT 1 FROM webhook_delivery AS d WHERE d.webhook = webhook.id)) ORDER BY id LIMIT 1`)
	purgeDispatchQuery = db.SQL(`DELETE FROM webhook_dispatch WHERE webhook = $1`)
	purgeWebhookQuery  = db.SQL(`DELETE FROM webhook WHERE id = $1 AND status = 'deleted' AND status_at < $2`)
)

// Prune deletes deliveries of events from before a time, with their attempts, and returns their
// number: at most limit deliveries of one webhook in one transaction. It also deletes waiting ones,
// since their events are deleted too. Call it until it returns 0.
func (h *Service) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	var hook db.ID
	if err := h.o.DB.One(ctx, agedWebhookQuery.With(db.MinIDAt(before)), &hook); err != nil {
		return 0, db.IfNoRow(err, nil)
	}
	return h.pruneHook(ctx, hook, db.MinIDAt(before), limit)
}

func (h *Service) pruneHook(ctx context.Context, hook, before db.ID, limit int) (int, error) {
	n := 0
	err := h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		pruned, err := db.All(ctx, tx, pruneDeliveriesQuery.With(hook, before, limit), db.ScanID)
		if n = len(pruned); n == 0 || err != nil {
			return err
		}
		return tx.Run(ctx, pruneAttemptsQuery.With(hook, slices.Max(pruned)))
	})
	return n, err
}

// purge removes some of the rows of deleted webhooks, and reports whether there may be more.
func (h *Service) purge(ctx context.Context) (more bool, err error) {
	var hook db.ID
	over := db.Micros(h.o.Now().Add(-purgeAfter))
	if err := h.o.DB.One(ctx, deletedWebhookQuery.With(over), &hook); err != nil {
		return false, db.IfNoRow(err, nil)
	}
	if n, err := h.pruneHook(ctx, hook, math.MaxInt64, purgeChunk); n > 0 || err != nil {
		return true, err
	}
	return true, h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, purgeWebhookQuery.With(hook, over))
		if err == nil && n > 0 {
			_, err = tx.Exec(ctx, purgeDispatchQuery.With(hook))
		}
		return err
	})
}
