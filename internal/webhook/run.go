// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// pollInterval is how often a node looks for what other nodes left.
	pollInterval = 5 * time.Second
	// claimBatch is how many webhooks a node takes at a time.
	claimBatch = 100
	// purgeEvery is how often what is left of deleted webhooks is looked for, and
	// purgePause the rest between two pieces of it: it may be a million rows, and
	// other webhooks wait.
	purgeEvery, purgePause = time.Minute, 20 * time.Millisecond
	// drainGrace is how long, after the drain, the last outcomes may take.
	drainGrace = 5 * time.Second
)

var (
	nextDueQuery = db.SQL(`SELECT due_at FROM webhook_lane WHERE tenure IS NULL AND due_at IS NOT NULL ORDER BY due_at LIMIT 1`)
	claimQuery   = db.SQL(`WITH due AS MATERIALIZED (SELECT webhook FROM webhook_lane
			WHERE tenure IS NULL AND due_at IS NOT NULL AND due_at <= $2
				AND EXISTS (SELECT 1 FROM tenure WHERE id = $1 AND expires_at > {now})
			ORDER BY due_at LIMIT $3 {skip_locked})
		UPDATE webhook_lane SET tenure = $1 WHERE webhook IN (SELECT webhook FROM due) AND tenure IS NULL
		RETURNING webhook, failing_since, level, rest_until`)
	releaseLeaseQuery = db.SQL(`UPDATE webhook_lane SET tenure = NULL, due_at = CASE WHEN rest_until > $2 THEN rest_until ELSE $2 END
		WHERE tenure IS NOT NULL AND tenure = $1`)
	releaseOneQuery = db.SQL(`UPDATE webhook_lane SET tenure = NULL, due_at = $3 WHERE webhook = $1 AND tenure = $2`)
	leasedQuery     = db.SQL(`SELECT webhook FROM webhook_lane WHERE tenure IS NOT NULL AND tenure = $1`)
)

// Run carries deliveries until ctx ends: it takes webhooks for which something
// is due, also those of ended nodes, and works for each. Then attempts under way
// may finish for Options.DrainTimeout, their outcomes are written, and other nodes can
// go on. The node's lease must be kept (db.Node.MaintainLease) until Run has returned.
func (h *Service) Run(ctx context.Context) error {
	defer h.cancelWrites()
	defer h.cancelAttempts()
	sub := h.o.Hub.Subscribe(notify.Key{Kind: notify.Webhook})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, h.poll, func(err error) {
		h.o.Log.Error("looking for webhooks with something due failed", "error", err)
	})
	return h.drain()
}

// drain ends the work in order.
func (h *Service) drain() error {
	done := make(chan struct{})
	go func() {
		h.dispatcherWG.Wait()
		h.writeWG.Wait()
		close(done)
	}()
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{{h.o.DrainTimeout, h.cancelAttempts}, {drainGrace, h.cancelWrites}, {drainGrace, func() {}}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			tenure, _ := h.o.Node.Lease()
			ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
			defer cancel()
			return h.releaseLease(ctx, tenure)
		case <-timer.C:
			step.then()
		}
	}
	h.o.Log.Error("webhook deliveries did not end in time; they will be tried again")
	return nil
}

// poll takes over, takes webhooks in hand, and says when to look again.
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

// adoptFlags releases what ended nodes had in hand.
func (h *Service) takeOver(ctx context.Context) error {
	ended, err := h.o.DB.ExpiredLeases(ctx)
	if err != nil {
		return err
	}
	mine, _ := h.o.Node.Lease()
	for _, id := range ended {
		if id == mine {
			continue // the node is about to begin another
		}
		if err := h.releaseLease(ctx, id); err != nil {
			return err
		}
	}
	return h.reconcile(ctx, mine)
}

// reconcile releases webhooks that carry this node's tenure and that it does not
// know of, after a commit whose outcome was unknown.
func (h *Service) reconcile(ctx context.Context, tenure db.ID) error {
	held, err := db.All(ctx, h.o.DB, leasedQuery.With(tenure), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		return err
	}
	for _, id := range held {
		h.mu.Lock()
		known := h.dispatchers[id] != nil
		h.mu.Unlock()
		if known {
			continue
		}
		if _, err := h.o.DB.Exec(ctx, releaseOneQuery.With(id, tenure, db.Micros(h.o.Now()))); err != nil {
			return err
		}
	}
	return nil
}

func (h *Service) releaseLease(ctx context.Context, tenure db.ID) error {
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, releaseLeaseQuery.With(tenure, db.Micros(h.o.Now())))
		if n > 0 {
			tx.AfterCommit(func() { h.o.Hub.Wake(notify.Key{Kind: notify.Webhook}) })
		}
		return err
	})
}

// atCapacity reports whether the node has as many webhooks in hand as it may.
func (h *Service) atCapacity() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.dispatchers) >= h.o.MaxWebhooks
}

// claim takes webhooks for which something is due, and says when to look again.
func (h *Service) claim(ctx context.Context) (time.Duration, error) {
	for {
		var due int64
		err := h.o.DB.One(ctx, nextDueQuery.With(), &due)
		if errors.Is(err, db.ErrNoRow) {
			return pollInterval, nil
		}
		if err != nil {
			return pollInterval, err
		}
		now := h.o.Now()
		if wait := db.Time(due).Sub(now); wait > 0 {
			return min(wait, pollInterval), nil
		}
		h.mu.Lock()
		room := min(h.o.MaxWebhooks-len(h.dispatchers), claimBatch)
		h.mu.Unlock()
		tenure, able := h.o.Node.Lease()
		if room <= 0 || !able {
			return pollInterval, nil
		}
		lanes, err := h.claimDue(ctx, tenure, now, room)
		if err != nil {
			return pollInterval, err
		}
		for _, l := range lanes {
			h.startDispatcher(ctx, l)
		}
		if len(lanes) < room {
			return 10 * time.Millisecond, nil // another node was quicker, or more are due by now
		}
	}
}

func (h *Service) claimDue(ctx context.Context, tenure db.ID, now time.Time, room int) (lanes []*dispatcher, err error) {
	err = h.o.DB.Write(ctx, 0, &db.Mutation{Guard: func(b *db.Batch) {
		lanes = lanes[:0]
		b.Queue(claimQuery.With(tenure, db.Micros(now), room)).Each(func(r db.Row) error {
			var id db.ID
			var since, rest int64
			c := circuit{limit: 1}
			err := r.Scan(&id, &since, &c.level, &rest)
			c.failingSince, c.pausedUntil = db.Time(since), db.Time(rest)
			lanes = append(lanes, h.newDispatcher(id, tenure, c))
			return err
		})
	}})
	if err != nil { // should it be committed all the same, reconcile finds them
		return nil, err
	}
	return lanes, nil
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
			h.o.Hub.Receive([]notify.Key{{Kind: notify.Webhook}}) // another one may come
		}
	})
}
