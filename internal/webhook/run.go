// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// pollInterval is how often a node looks for webhooks that other nodes released.
	pollInterval = 5 * time.Second
	// claimBatch is the maximum of webhooks claimed at once.
	claimBatch = 100
	// purgeEvery is how often a node looks for remains of deleted webhooks. purgePause is the pause
	// between two chunks: there may be a million rows, and other webhooks wait.
	purgeEvery, purgePause = time.Minute, 20 * time.Millisecond
)

var (
	nextDueQuery = db.SQL(`SELECT due_at FROM webhook_dispatch WHERE lease IS NULL AND due_at IS NOT NULL ORDER BY due_at LIMIT 1`)
	claimQuery   = db.SQL(`WITH due AS MATERIALIZED (SELECT webhook FROM webhook_dispatch
			WHERE lease IS NULL AND due_at IS NOT NULL AND due_at <= $2
				AND EXISTS (SELECT 1 FROM lease WHERE id = $1 AND expires_at > {now})
			ORDER BY due_at LIMIT $3 {skip_locked})
		UPDATE webhook_dispatch SET lease = $1 WHERE webhook IN (SELECT webhook FROM due) AND lease IS NULL
		RETURNING webhook, generation, failing_since, level, paused_until, resumes`)
	releaseLeaseQuery = db.SQL(`UPDATE webhook_dispatch SET lease = NULL, due_at = CASE WHEN paused_until > $2 THEN paused_until ELSE $2 END
		WHERE lease IS NOT NULL AND lease = $1`)
	releaseOneQuery = db.SQL(`UPDATE webhook_dispatch SET lease = NULL, due_at = $3 WHERE webhook = $1 AND lease = $2`)
	leasedQuery     = db.SQL(`SELECT webhook FROM webhook_dispatch WHERE lease IS NOT NULL AND lease = $1 AND webhook > $2 ORDER BY webhook LIMIT $3`)
	nextLeaseQuery  = db.SQL(`SELECT lease FROM webhook_dispatch WHERE lease IS NOT NULL AND lease > $1 AND lease < $2 ORDER BY lease LIMIT 1`)
)

// Run delivers events until ctx ends: it claims webhooks with due deliveries, also those of expired
// leases, and runs a dispatcher for each. Then running attempts may finish for
// Options.DrainTimeout, their outcomes are written, and the webhooks are released. The node's lease
// must be maintained (lease.Node.MaintainLease) until Run has returned.
func (h *Service) Run(ctx context.Context) error {
	sub := h.o.Hub.Subscribe(notify.Key{Kind: notify.Webhook})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, h.poll, func(err error) {
		h.o.Log.Error("looking for webhooks with something due failed", "error", err)
	})
	return h.o.Node.Drain(lease.Drain{
		Work: "webhook deliveries", Timeout: h.o.DrainTimeout,
		Wait: func() {
			h.dispatcherWG.Wait()
			h.writeWG.Wait()
		},
		CancelAttempts: h.cancelAttempts, CancelWrites: h.cancelWrites, Release: h.releaseLease,
	})
}

// poll takes over expired leases, purges deleted webhooks and claims due ones. It returns when to
// poll again.
func (h *Service) poll(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	if now.Sub(h.polledAt) >= pollInterval {
		h.polledAt = now
		if err := h.takeOver(ctx); err != nil {
			return pollInterval, err
		}
	}
	if now.Sub(h.purgedAt) < purgeEvery {
		return h.claim(ctx)
	}
	more, err := h.purge(ctx)
	if !more || err != nil {
		h.purgedAt = now
	}
	if err != nil {
		return pollInterval, err
	}
	wait, err := h.claim(ctx)
	if more {
		wait = min(wait, purgePause)
	}
	return wait, err
}

// takeOver releases the webhooks of expired leases, and those with this node's lease that have no
// dispatcher.
func (h *Service) takeOver(ctx context.Context) error {
	if err := h.o.Node.TakeOver(ctx, nextLeaseQuery, h.releaseLease); err != nil {
		return err
	}
	leaseID, _ := h.o.Node.Lease()
	return lease.ReleaseOrphans(ctx, h.o.DB, func(above db.ID) db.Statement {
		return leasedQuery.With(leaseID, above, lease.BatchRows)
	}, db.ScanID, func(id db.ID) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.dispatchers[id] != nil
	}, func(id db.ID) db.Statement { return releaseOneQuery.With(id, leaseID, db.Micros(h.o.Now())) })
}

func (h *Service) releaseLease(ctx context.Context, leaseID db.ID) error {
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, releaseLeaseQuery.With(leaseID, db.Micros(h.o.Now())))
		if n > 0 {
			tx.AfterCommit(func() { h.o.Hub.Wake(notify.Key{Kind: notify.Webhook}) })
		}
		return err
	})
}

// atCapacity reports whether the node has reached its maximum of webhooks.
func (h *Service) atCapacity() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.dispatchers) >= h.o.MaxWebhooks
}

// claim claims webhooks with due deliveries, and returns when to poll again.
func (h *Service) claim(ctx context.Context) (time.Duration, error) {
	for {
		var due time.Time
		if err := h.o.DB.One(ctx, nextDueQuery.With(), db.TimeScanner(&due)); err != nil {
			return pollInterval, db.IfNoRow(err, nil)
		}
		now := h.o.Now()
		if wait := due.Sub(now); wait > 0 {
			return min(wait, pollInterval), nil
		}
		h.mu.Lock()
		capacity := min(h.o.MaxWebhooks-len(h.dispatchers), claimBatch)
		h.mu.Unlock()
		leaseID, able := h.o.Node.Lease()
		if capacity <= 0 || !able {
			return pollInterval, nil
		}
		batchers, err := h.claimDue(ctx, leaseID, now, capacity)
		if err != nil {
			return pollInterval, err
		}
		for _, l := range batchers {
			h.startDispatcher(ctx, l)
		}
		if len(batchers) < capacity {
			return 10 * time.Millisecond, nil // another node was faster, or more are due by now
		}
	}
}

func (h *Service) claimDue(ctx context.Context, leaseID db.ID, now time.Time, capacity int) (batchers []*dispatcher, err error) {
	err = h.o.DB.Write(ctx, 0, &db.Mutation{Guard: func(b *db.Batch) {
		batchers = batchers[:0]
		b.Queue(claimQuery.With(leaseID, db.Micros(now), capacity)).Each(func(r db.Row) error {
			var id db.ID
			var generation int64
			c := circuitBreaker{limit: 1}
			err := r.Scan(&id, &generation, db.TimeScanner(&c.failingSince), &c.level, db.TimeScanner(&c.pausedUntil), &c.resumes)
			batchers = append(batchers, h.newDispatcher(id, leaseID, generation, c))
			return err
		})
	}})
	if err != nil { // if it was committed after all, reconcile finds them
		return nil, err
	}
	return batchers, nil
}

func (h *Service) startDispatcher(ctx context.Context, l *dispatcher) {
	h.mu.Lock()
	h.dispatchers[l.id] = l
	h.mu.Unlock()
	h.dispatcherWG.Go(func() {
		l.run(ctx)
		h.mu.Lock()
		crowded := len(h.dispatchers) >= h.o.MaxWebhooks
		if h.dispatchers[l.id] == l {
			delete(h.dispatchers, l.id)
		}
		h.mu.Unlock()
		if crowded {
			h.o.Hub.Receive([]notify.Key{{Kind: notify.Webhook}}) // another webhook may be claimed
		}
	})
}
