// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// newEventsSQL selects the events that were numbered since the mark, at most twice the sequencer's
// batch size. They are read once, not once per webhook.
const newEventsSQL = `WITH e AS MATERIALIZED (SELECT id, account, kind, domain, mailbox FROM event
		WHERE position IS NOT NULL AND position > (SELECT position FROM webhook_position WHERE id = 1)
			AND EXISTS (SELECT 1 FROM webhook WHERE status = 'enabled')
		ORDER BY position LIMIT 1000)
	`

// subscriptionSQL is the condition that webhook w gets event e. The columns hold ids and kinds
// separated by blanks.
const subscriptionSQL = `w.account = e.account AND (w.kinds = ' all ' OR w.kinds LIKE '% ' || e.kind || ' %')
		AND (w.domains = '' AND w.mailboxes = ''
			OR e.domain > 0 AND w.domains LIKE '% ' || e.domain || ' %'
			OR e.mailbox > 0 AND w.mailboxes LIKE '% ' || e.mailbox || ' %')`

var (
	createDeliveriesQuery = db.SQL(newEventsSQL + `INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at, content)
		SELECT w.id, e.id, e.kind, 'pending', 0, 0, $1, 0, '', '', $1, $1, w.content
		FROM e CROSS JOIN webhook AS w WHERE w.status = 'enabled' AND ` + subscriptionSQL + `
		ON CONFLICT (webhook, id) DO NOTHING`)
	// A paused webhook stays paused. On PostgreSQL a webhook may change between the two statements,
	// so the created deliveries decide.
	wakeAllDispatchQuery = db.SQL(newEventsSQL + `UPDATE webhook_dispatch SET arrivals = arrivals + 1,
			due_at = CASE WHEN due_at IS NULL OR due_at > $1 THEN CASE WHEN paused_until > $1 THEN paused_until ELSE $1 END ELSE due_at END
		WHERE webhook IN (SELECT w.id FROM e CROSS JOIN webhook AS w CROSS JOIN webhook_delivery AS d
			WHERE w.account = e.account AND w.status = 'enabled' AND d.webhook = w.id AND d.id = e.id)
		RETURNING webhook`)
	advanceMarkQuery = db.SQL(`UPDATE webhook_position SET position = COALESCE((SELECT MAX(position) FROM (SELECT position FROM event
			WHERE position IS NOT NULL AND position > (SELECT position FROM webhook_position WHERE id = 1)
			ORDER BY position LIMIT 1000) AS e), position) WHERE id = 1`)
)

// DeliveryCreator creates the deliveries of new events. It is separate from Service because the
// event log needs it, and Service needs the event log.
type DeliveryCreator struct {
	hub *notify.Hub
	now func() time.Time

	mu           sync.Mutex
	pendingWakes []db.ID // webhooks that got deliveries in the sequencer's current batch
}

// NewDeliveryCreator returns a Creator. Its methods are for event.Log.
func NewDeliveryCreator(hub *notify.Hub, now func() time.Time) *DeliveryCreator {
	return &DeliveryCreator{hub: hub, now: now}
}

// CreateDeliveries creates the deliveries of the events that were just numbered, in the sequencer's
// transaction: exactly one for each event and webhook.
func (c *DeliveryCreator) CreateDeliveries(b *db.Batch) {
	now := db.Micros(c.now())
	c.mu.Lock()
	c.pendingWakes = c.pendingWakes[:0] // the mutation may run again
	c.mu.Unlock()
	b.Queue(createDeliveriesQuery.With(now))
	b.Queue(wakeAllDispatchQuery.With(now)).Each(func(r db.Row) error {
		id, err := db.ScanID(r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pendingWakes = append(c.pendingWakes, id)
		return err
	})
	b.Queue(advanceMarkQuery.With())
}

// WakeDeliveries wakes the dispatchers of the webhooks that got deliveries, after the commit of the
// sequencer's transaction.
func (c *DeliveryCreator) WakeDeliveries() {
	c.mu.Lock()
	arrived := c.pendingWakes
	c.pendingWakes = nil
	c.mu.Unlock()
	if len(arrived) == 0 {
		return
	}
	for _, id := range arrived {
		c.hub.Wake(notify.Key{Kind: notify.Webhook, ID: int64(id)})
	}
	c.hub.Wake(notify.Key{Kind: notify.Webhook})
}
