// SPDX-License-Identifier: Apache-2.0

// Package retention deletes what has been kept for long enough. Each room
// deletes what is its own, a little at a time; here is when, and how fast: one
// node does it, and leaves the writer to others most of the time. Nothing is
// remembered of how far it came: what is left is found again after a restart.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

// Task is a kind of thing that is deleted after a while.
type Task struct {
	Name string // for logs
	// Keep is how long such things are kept; 0: for ever.
	Keep time.Duration
	// Prune deletes, in one commit, some of those that came to their end
	// before a time: about limit rows, and 0 only if there are none left.
	Prune func(ctx context.Context, before time.Time, limit int) (n int, err error)
}

// Keeper carries out tasks.
type Keeper struct {
	DB    *db.DB
	Node  *db.Node
	Tasks []Task
	// Load is the share of time, 0 to 1, in which others want the writer.
	Load func() float64
	Now  func() time.Time
	Log  *slog.Logger

	limit int       // how many rows are deleted in one commit now
	held  time.Time // when the duty was last renewed
}

const (
	// soon is how long after its start a node begins, and every how often it
	// looks again.
	soon  = time.Minute
	every = time.Hour
	// A commit that took longer than slow is followed by one of half the rows,
	// and one that took less than quick by one of twice as many.
	quick, slow         = 20 * time.Millisecond, 80 * time.Millisecond
	leastRows, mostRows = 10, 500
	// renew is how often the duty is renewed. That two nodes delete the same for
	// a moment does no harm.
	renew                = time.Second
	restIdle, restLoaded = 3, 30 // how many times as long as a commit took is rested after it
)

// Run deletes what is due now and then until ctx ends. Every node runs it; the
// duty "retention" lets one at a time work.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if _, err := k.Round(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("deleting what was kept for long enough failed", "error", err)
		}
		timer.Reset(every)
	}
}

var errNotMine = errors.New("another node does it")

// Round deletes all that is due, and returns how many rows of which task, as
// far as it came. While another node has the duty it does nothing.
func (k *Keeper) Round(ctx context.Context) (map[string]int, error) {
	total := map[string]int{}
	var failed []error
	for _, task := range k.Tasks {
		if task.Keep <= 0 {
			continue
		}
		n, err := k.carryOut(ctx, task)
		if n > 0 {
			total[task.Name] = n
			k.Log.Info("deleted what was kept for long enough", "what", task.Name, "count", n)
		}
		switch {
		case ctx.Err() != nil:
			return total, ctx.Err()
		case errors.Is(err, errNotMine):
			return total, nil
		case err != nil: // the others are not to suffer from it
			failed = append(failed, fmt.Errorf("%s: %w", task.Name, err))
		}
	}
	return total, errors.Join(failed...)
}

func (k *Keeper) carryOut(ctx context.Context, task Task) (total int, err error) {
	before := k.Now().Add(-task.Keep)
	for {
		if err := k.hold(ctx); err != nil {
			return total, err
		}
		k.limit = min(max(k.limit, leastRows), mostRows)
		begin := time.Now()
		n, err := task.Prune(ctx, before, k.limit)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
		took := time.Since(begin)
		switch {
		case took > slow:
			k.limit /= 2
		case took < quick:
			k.limit *= 2
		}
		if err := k.rest(ctx, took); err != nil {
			return total, err
		}
	}
}

// hold takes or keeps the duty.
func (k *Keeper) hold(ctx context.Context) error {
	if time.Since(k.held) < renew {
		return nil
	}
	begin, mine := time.Now(), false
	err := k.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		mine, err = k.Node.Duty(ctx, tx, "retention")
		return err
	})
	if err == nil && !mine {
		err = errNotMine
	}
	if err == nil {
		k.held = begin
	}
	return err
}

// rest leaves the writer to others: the longer a commit took, which includes
// its wait for them, and the more they want it, the longer.
func (k *Keeper) rest(ctx context.Context, took time.Duration) error {
	load := 0.0
	if k.Load != nil {
		load = min(max(k.Load(), 0), 1)
	}
	return signal.Sleep(ctx, time.Duration(float64(took)*(restIdle+(restLoaded-restIdle)*load)))
}
