// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// lookEvery is how often a node looks for what other nodes left.
	lookEvery = 5 * time.Second
	// claimed is how many webhooks a node takes at a time.
	claimed = 100
	// purgeEvery is how often what is left of deleted webhooks is looked for, and
	// purgePause the rest between two pieces of it: it may be a million rows, and
	// other webhooks wait.
	purgeEvery, purgePause = time.Minute, 20 * time.Millisecond
	// endGrace is how long, after the drain, the last outcomes may take.
	endGrace = 5 * time.Second
)

var (
	laneDue = db.SQL(`SELECT due_at FROM webhook_lane WHERE tenure IS NULL AND due_at IS NOT NULL ORDER BY due_at LIMIT 1`)
	claim   = db.SQL(`WITH due AS MATERIALIZED (SELECT webhook FROM webhook_lane
			WHERE tenure IS NULL AND due_at IS NOT NULL AND due_at <= $2
				AND EXISTS (SELECT 1 FROM tenure WHERE id = $1 AND expires_at > {now})
			ORDER BY due_at LIMIT $3 {skip_locked})
		UPDATE webhook_lane SET tenure = $1 WHERE webhook IN (SELECT webhook FROM due) AND tenure IS NULL
		RETURNING webhook, failing_since, level, rest_until`)
	releaseLanes = db.SQL(`UPDATE webhook_lane SET tenure = NULL, due_at = CASE WHEN rest_until > $2 THEN rest_until ELSE $2 END
		WHERE tenure IS NOT NULL AND tenure = $1`)
	releaseLane = db.SQL(`UPDATE webhook_lane SET tenure = NULL, due_at = $3 WHERE webhook = $1 AND tenure = $2`)
	inHand      = db.SQL(`SELECT webhook FROM webhook_lane WHERE tenure IS NOT NULL AND tenure = $1`)
)

// Run carries deliveries until ctx ends: it takes webhooks for which something
// is due, also those of ended nodes, and works for each. Then attempts under way
// may finish for Options.Drain, their outcomes are written, and other nodes can
// go on. The node's lease must be kept (db.Node.Keep) until Run has returned.
func (h *Hooks) Run(ctx context.Context) error {
	defer h.quit()
	defer h.stop()
	sub := h.o.Hub.Subscribe(signal.Key{Kind: signal.Webhook})
	defer sub.Close()
	signal.Repeat(ctx, sub.C, h.look, func(err error) {
		h.o.Log.Error("looking for webhooks with something due failed", "error", err)
	})
	return h.drain()
}

// drain ends the work in order.
func (h *Hooks) drain() error {
	done := make(chan struct{})
	go func() {
		h.working.Wait()
		h.writing.Wait()
		close(done)
	}()
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{{h.o.Drain, h.stop}, {endGrace, h.quit}, {endGrace, func() {}}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			tenure, _ := h.o.Node.Tenure()
			ctx, cancel := context.WithTimeout(context.Background(), endGrace)
			defer cancel()
			return h.release(ctx, tenure)
		case <-timer.C:
			step.then()
		}
	}
	h.o.Log.Error("webhook deliveries did not end in time; they will be tried again")
	return nil
}

// look takes over, takes webhooks in hand, and says when to look again.
func (h *Hooks) look(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	if now.Sub(h.looked) >= lookEvery {
		h.looked = now
		if err := h.takeOver(ctx); err != nil {
			return lookEvery, err
		}
	}
	if now.Sub(h.purged) < purgeEvery {
		return h.claim(ctx)
	}
	more, err := h.purge(ctx)
	if !more || err != nil {
		h.purged = now
	}
	if err != nil {
		return lookEvery, err
	}
	wait, err := h.claim(ctx)
	if more {
		wait = min(wait, purgePause)
	}
	return wait, err
}

// takeOver releases what ended nodes had in hand.
func (h *Hooks) takeOver(ctx context.Context) error {
	ended, err := h.o.DB.Ended(ctx)
	if err != nil {
		return err
	}
	mine, _ := h.o.Node.Tenure()
	for _, id := range ended {
		if id == mine {
			continue // the node is about to begin another
		}
		if err := h.release(ctx, id); err != nil {
			return err
		}
	}
	return h.reconcile(ctx, mine)
}

// reconcile releases webhooks that carry this node's tenure and that it does not
// know of, after a commit whose outcome was unknown.
func (h *Hooks) reconcile(ctx context.Context, tenure db.ID) error {
	held, err := db.All(ctx, h.o.DB, inHand.With(tenure), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	if err != nil {
		return err
	}
	for _, id := range held {
		h.mu.Lock()
		known := h.lanes[id] != nil
		h.mu.Unlock()
		if known {
			continue
		}
		if _, err := h.o.DB.Exec(ctx, releaseLane.With(id, tenure, db.Micros(h.o.Now()))); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hooks) release(ctx context.Context, tenure db.ID) error {
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, releaseLanes.With(tenure, db.Micros(h.o.Now())))
		if n > 0 {
			tx.AfterCommit(func() { h.o.Hub.Wake(signal.Key{Kind: signal.Webhook}) })
		}
		return err
	})
}

// crowded reports whether the node has as many webhooks in hand as it may.
func (h *Hooks) crowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lanes) >= h.o.Lanes
}

// claim takes webhooks for which something is due, and says when to look again.
func (h *Hooks) claim(ctx context.Context) (time.Duration, error) {
	for {
		var due int64
		err := h.o.DB.One(ctx, laneDue.With(), &due)
		if errors.Is(err, db.ErrNoRow) {
			return lookEvery, nil
		}
		if err != nil {
			return lookEvery, err
		}
		now := h.o.Now()
		if wait := db.Time(due).Sub(now); wait > 0 {
			return min(wait, lookEvery), nil
		}
		h.mu.Lock()
		room := min(h.o.Lanes-len(h.lanes), claimed)
		h.mu.Unlock()
		tenure, able := h.o.Node.Tenure()
		if room <= 0 || !able {
			return lookEvery, nil
		}
		lanes, err := h.take(ctx, tenure, now, room)
		if err != nil {
			return lookEvery, err
		}
		for _, l := range lanes {
			h.begin(ctx, l)
		}
		if len(lanes) < room {
			return 10 * time.Millisecond, nil // another node was quicker, or more are due by now
		}
	}
}

func (h *Hooks) take(ctx context.Context, tenure db.ID, now time.Time, room int) (lanes []*lane, err error) {
	err = h.o.DB.Write(ctx, 0, &db.Job{Guard: func(b *db.Batch) {
		lanes = lanes[:0]
		b.Queue(claim.With(tenure, db.Micros(now), room)).Each(func(r db.Row) error {
			var id db.ID
			var since, rest int64
			c := circuit{limit: 1}
			err := r.Scan(&id, &since, &c.level, &rest)
			c.since, c.rest = db.Time(since), db.Time(rest)
			lanes = append(lanes, h.newLane(id, tenure, c))
			return err
		})
	}})
	if err != nil { // should it be committed all the same, reconcile finds them
		return nil, err
	}
	return lanes, nil
}

func (h *Hooks) begin(ctx context.Context, l *lane) {
	h.mu.Lock()
	h.lanes[l.id] = l
	h.mu.Unlock()
	h.working.Go(func() {
		l.run(ctx)
		h.mu.Lock()
		crowded := len(h.lanes) >= h.o.Lanes
		if h.lanes[l.id] == l {
			delete(h.lanes, l.id)
		}
		h.mu.Unlock()
		if crowded {
			h.o.Hub.Receive([]signal.Key{{Kind: signal.Webhook}}) // another one may come
		}
	})
}
