// SPDX-License-Identifier: Apache-2.0

// Package retention deletes data that is older than its retention time. Each package deletes its
// own data in small steps. This package decides when and how fast: one node works at a time, and
// leaves the database writer to others most of the time. It stores no progress: after a restart it
// finds the remaining data again.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
)

// Task deletes one kind of data after a retention time.
type Task struct {
	Name string // for logs
	// MaxAge is the retention time; 0: for ever.
	MaxAge time.Duration
	// Prune deletes, in one commit, about limit rows that expired before a time. It returns 0 only
	// if none are left.
	Prune func(ctx context.Context, before time.Time, limit int) (n int, err error)
}

// Pruner runs tasks.
type Pruner struct {
	DB    *db.DB
	Node  *lease.Node
	Tasks []Task
	// Load returns the share of time, 0 to 1, in which other callers want the writer.
	Load func() float64
	Now  func() time.Time
	Log  *slog.Logger

	rowLimit int       // current maximum of rows per commit
	leaderAt time.Time // when the leader job was last renewed
}

const (
	// startDelay is the wait after a node's start before its first run, interval the time between
	// runs.
	startDelay = time.Minute
	interval   = time.Hour
	// A commit slower than slowCommit halves the number of rows of the next one, and one faster
	// than fastCommit doubles it.
	fastCommit, slowCommit = 20 * time.Millisecond, 80 * time.Millisecond
	minRows, maxRows       = 10, 500
	// renewInterval is how often the leader job is renewed. It is harmless if two nodes delete the
	// same rows for a moment.
	renewInterval                      = time.Second
	idlePauseFactor, loadedPauseFactor = 3, 30 // pause after a commit, as a multiple of its duration
)

// Run deletes expired data every interval until ctx ends. Every node runs it; the leader job
// "retention" lets one work at a time.
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

// RunOnce deletes all expired data, and returns the number of deleted rows per task, also after an
// error. It does nothing while another node has the leader job.
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
		case errors.Is(err, lease.ErrNotLeader):
			return total, nil
		case err != nil: // an error of one task does not stop the others
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

// ensureLeader acquires or renews the leader job.
func (k *Pruner) ensureLeader(ctx context.Context) error {
	if time.Since(k.leaderAt) < renewInterval {
		return nil
	}
	begin := time.Now()
	err := k.Node.AcquireLeaderJob(ctx, "retention")
	if err == nil {
		k.leaderAt = begin
	}
	return err
}

// pause leaves the writer to other callers. The pause grows with the duration of the last commit,
// which includes its wait for them, and with the load.
func (k *Pruner) pause(ctx context.Context, took time.Duration) error {
	load := 0.0
	if k.Load != nil {
		load = min(max(k.Load(), 0), 1)
	}
	return notify.Sleep(ctx, time.Duration(float64(took)*(idlePauseFactor+(loadedPauseFactor-idlePauseFactor)*load)))
}
