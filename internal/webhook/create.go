// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// newEventsSQL are the events that were numbered since the mark. The limit is twice
// what is numbered at a time, so that what was numbered without us, by an older
// release, is caught up with. They are read once, not for each webhook.
const newEventsSQL = `WITH e AS MATERIALIZED (SELECT id, account, kind, domain, mailbox FROM event
		WHERE position IS NOT NULL AND position > (SELECT position FROM webhook_mark WHERE id = 1)
			AND EXISTS (SELECT 1 FROM webhook WHERE status = 'enabled')
		ORDER BY position LIMIT 1000)
	`

// subscriptionSQL says which webhooks w get an event e. Ids and kinds stand in the columns
// between blanks.
const subscriptionSQL = `w.account = e.account AND (w.kinds = ' all ' OR w.kinds LIKE '% ' || e.kind || ' %')
		AND (w.domains = '' AND w.mailboxes = ''
			OR e.domain > 0 AND w.domains LIKE '% ' || e.domain || ' %'
			OR e.mailbox > 0 AND w.mailboxes LIKE '% ' || e.mailbox || ' %')`

var (
	createDeliveriesQuery = db.SQL(newEventsSQL + `INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, trouble, body, created_at, updated_at, content)
		SELECT w.id, e.id, e.kind, 'pending', 0, 0, $1, 0, '', '', $1, $1, w.content
		FROM e CROSS JOIN webhook AS w WHERE w.status = 'enabled' AND ` + subscriptionSQL + `
		ON CONFLICT (webhook, id) DO NOTHING`)
	// A webhook that rests is not disturbed. On PostgreSQL a webhook may be changed
	// between the two statements: what counts is the deliveries that were made.
	wakeAllDispatchQuery = db.SQL(newEventsSQL + `UPDATE webhook_lane SET arrivals = arrivals + 1,
			due_at = CASE WHEN due_at IS NULL OR due_at > $1 THEN CASE WHEN rest_until > $1 THEN rest_until ELSE $1 END ELSE due_at END
		WHERE webhook IN (SELECT w.id FROM e CROSS JOIN webhook AS w CROSS JOIN webhook_delivery AS d
			WHERE w.account = e.account AND w.status = 'enabled' AND d.webhook = w.id AND d.id = e.id)
		RETURNING webhook`)
	advanceMarkQuery = db.SQL(`UPDATE webhook_mark SET position = COALESCE((SELECT MAX(position) FROM (SELECT position FROM event
			WHERE position IS NOT NULL AND position > (SELECT position FROM webhook_mark WHERE id = 1)
			ORDER BY position LIMIT 1000) AS e), position) WHERE id = 1`)
)

// CreateDeliveries makes the deliveries of the events that have just been numbered, in
// the sequencer's transaction: exactly one for each event and webhook.
func (h *Service) CreateDeliveries(b *db.Batch) {
	now := db.Micros(h.o.Now())
	h.mu.Lock()
	h.pendingWakes = h.pendingWakes[:0] // the job may run again
	h.mu.Unlock()
	b.Queue(createDeliveriesQuery.With(now))
	b.Queue(wakeAllDispatchQuery.With(now)).Each(func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pendingWakes = append(h.pendingWakes, id)
		return err
	})
	b.Queue(advanceMarkQuery.With())
}

// WakeDeliveries wakes whoever works for the webhooks that got deliveries, once the
// sequencer's transaction is committed.
func (h *Service) WakeDeliveries() {
	h.mu.Lock()
	arrived := append([]db.ID(nil), h.pendingWakes...)
	h.pendingWakes = h.pendingWakes[:0]
	h.mu.Unlock()
	if len(arrived) == 0 {
		return
	}
	for _, id := range arrived {
		h.o.Hub.Wake(notify.Key{Kind: notify.Webhook, ID: int64(id)})
	}
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook})
}
