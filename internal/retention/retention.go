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
	"github.com/mailstead/mailstead/internal/notify"
)

// Task is a kind of thing that is deleted after a while.
type Task struct {
	Name string // for logs
	// MaxAge is how long such things are kept; 0: for ever.
	MaxAge time.Duration
	// Prune deletes, in one commit, some of those that came to their end
	// before a time: about limit rows, and 0 only if there are none left.
	Prune func(ctx context.Context, before time.Time, limit int) (n int, err error)
}

// Pruner carries out tasks.
type Pruner struct {
	DB    *db.DB
	Node  *db.Node
	Tasks []Task
	// Load is the share of time, 0 to 1, in which others want the writer.
	Load func() float64
	Now  func() time.Time
	Log  *slog.Logger

	rowLimit int       // how many rows are deleted in one commit now
	leaderAt time.Time // when the duty was last renewed
}

const (
	// startDelay is how long after its start a node begins, and every how often it
	// looks again.
	startDelay = time.Minute
	interval   = time.Hour
	// A commit that took longer than slow is followed by one of half the rows,
	// and one that took less than quick by one of twice as many.
	fastCommit, slowCommit = 20 * time.Millisecond, 80 * time.Millisecond
	minRows, maxRows       = 10, 500
	// renewInterval is how often the duty is renewed. That two nodes delete the same for
	// a moment does no harm.
	renewInterval                      = time.Second
	idlePauseFactor, loadedPauseFactor = 3, 30 // how many times as long as a commit took is rested after it
)

// Run deletes what is due now and then until ctx ends. Every node runs it; the
// duty "retention" lets one at a time work.
func (k *Pruner) Run(ctx context.Context) error {
	timer := time.NewTimer(startDelay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if _, err := k.RunOnce(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("deleting what was kept for long enough failed", "error", err)
		}
		timer.Reset(interval)
	}
}

var errNotLeader = errors.New("another node does it")

// RunOnce deletes all that is due, and returns how many rows of which task, as
// far as it came. While another node has the duty it does nothing.
func (k *Pruner) RunOnce(ctx context.Context) (map[string]int, error) {
	total := map[string]int{}
	var failed []error
	for _, task := range k.Tasks {
		if task.MaxAge <= 0 {
			continue
		}
		n, err := k.runTask(ctx, task)
		if n > 0 {
			total[task.Name] = n
			k.Log.Info("deleted what was kept for long enough", "what", task.Name, "count", n)
		}
		switch {
		case ctx.Err() != nil:
			return total, ctx.Err()
		case errors.Is(err, errNotLeader):
			return total, nil
		case err != nil: // the others are not to suffer from it
			failed = append(failed, fmt.Errorf("%s: %w", task.Name, err))
		}
	}
	return total, errors.Join(failed...)
}

func (k *Pruner) runTask(ctx context.Context, task Task) (total int, err error) {
	before := k.Now().Add(-task.MaxAge)
	for {
		if err := k.ensureLeader(ctx); err != nil {
			return total, err
		}
		k.rowLimit = min(max(k.rowLimit, minRows), maxRows)
		begin := time.Now()
		n, err := task.Prune(ctx, before, k.rowLimit)
		total += n
		if err != nil || n == 0 {
			return total, err
		}
		took := time.Since(begin)
		switch {
		case took > slowCommit:
			k.rowLimit /= 2
		case took < fastCommit:
			k.rowLimit *= 2
		}
		if err := k.pause(ctx, took); err != nil {
			return total, err
		}
	}
}

// ensureLeader takes or keeps the duty.
func (k *Pruner) ensureLeader(ctx context.Context) error {
	if time.Since(k.leaderAt) < renewInterval {
		return nil
	}
	begin, mine := time.Now(), false
	err := k.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		mine, err = k.Node.AcquireLeaderJob(ctx, tx, "retention")
		return err
	})
	if err == nil && !mine {
		err = errNotLeader
	}
	if err == nil {
		k.leaderAt = begin
	}
	return err
}

// pause leaves the writer to others: the longer a commit took, which includes
// its wait for them, and the more they want it, the longer.
func (k *Pruner) pause(ctx context.Context, took time.Duration) error {
	load := 0.0
	if k.Load != nil {
		load = min(max(k.Load(), 0), 1)
	}
	return notify.Sleep(ctx, time.Duration(float64(took)*(idlePauseFactor+(loadedPauseFactor-idlePauseFactor)*load)))
}
