// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// walLimits are the limits of the write-ahead log. Sizes are in pages of 4 KiB.
type walLimits struct {
	passive int // number of uncopied pages that starts a copy back into the database
	// exclusive is the size from which the writer is paused for copying the last
	// pages, as SQLite only restarts a WAL that is copied completely. It is well
	// above passive: every commit meanwhile waits for a flush of the database.
	exclusive int
	// restart is the size from which the writer is paused until no reader uses
	// the WAL: while readers overlap without a gap, no commit could restart
	// the WAL. A file that has grown further is truncated to this size at the
	// restart.
	restart         int
	warn            int           // size that is logged as a warning
	restartInterval time.Duration // minimum time between two pauses for readers
}

func defaultWALLimits() walLimits {
	return walLimits{passive: 16 << 20 / 4096, exclusive: 48 << 20 / 4096, restart: 96 << 20 / 4096, warn: 256 << 20 / 4096, restartInterval: 3 * time.Second}
}

const (
	// restartTimeout bounds each pause of the writer.
	restartTimeout = 250 * time.Millisecond
	// checkpointInterval is how often the WAL is checked while there are commits.
	checkpointInterval = 200 * time.Millisecond
	// While more than fewPages pages are uncopied, they are copied without
	// pausing the writer, in maxPasses passes at most, as it writes more
	// meanwhile.
	fewPages, maxPasses = 128, 4
)

// walState is the state of the write-ahead log.
type walState struct {
	pages   int  // in the log
	copied  int  // pages that are copied into the database
	blocked bool // whether readers still used it after the wait
}

// checkpointer copies the WAL back in the background, so that no commit waits for it. From time
// to time it pauses the writer to copy the few pages that were added meanwhile: the next commit
// restarts the WAL only when all pages are copied.
type checkpointer struct {
	*sqliteEngine
	conn        *sql.DB
	again       bool      // whether to poll again without a further commit
	warned      bool      // whether the warning is logged, until it is over
	lastRestart time.Time // when the writer last waited for readers
}

// runCheckpoints runs until the database is being closed.
func (e *sqliteEngine) runCheckpoints(dsn string) {
	defer close(e.checkpointsDone)
	own, err := sql.Open("sqlite", dsn)
	if err != nil {
		e.log.Error("no checkpoints will be made", "error", err)
		return
	}
	defer own.Close() //nolint:errcheck // nothing is written through it
	own.SetMaxOpenConns(1)
	k := &checkpointer{sqliteEngine: e, conn: own}
	tick := time.NewTicker(checkpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-e.closing.Done():
			return
		case <-tick.C:
		}
		select {
		case <-e.dirty:
			k.poll(e.closing)
		default:
			if k.again {
				k.poll(e.closing)
			}
		}
	}
}

func (k *checkpointer) poll(ctx context.Context) {
	w, err := k.checkpointIfGrown(ctx)
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errWALSizeUnknown) {
		k.again = true
		return
	}
	if err != nil {
		k.log.Warn("copying the write-ahead log back failed", "error", k.exitIfFsyncFailed(err))
	}
	k.again = err != nil || w.pages-w.copied >= k.walLimits.passive
	switch over := w.pages >= k.walLimits.warn; {
	case over && w.blocked && !k.warned: // without readers it may be a single large commit
		k.log.Warn("the write-ahead log is over its limit: something holds a read transaction open", "pages", w.pages)
	case err == nil && !over && k.warned:
		k.log.Info("the write-ahead log is within its limit again", "pages", w.pages)
	default:
		return
	}
	k.warned = !k.warned
}

// checkpointIfGrown copies the WAL back if it has grown.
func (k *checkpointer) checkpointIfGrown(ctx context.Context) (walState, error) {
	w, err := k.checkpoint(ctx, "NOOP")
	if err != nil || w.pages-w.copied < k.walLimits.passive && w.pages < k.walLimits.exclusive {
		return w, err
	}
	needed := false // whether a reader needs pages: pausing the writer would not help
	for pass := 0; pass < maxPasses && w.pages-w.copied > fewPages && !needed; pass++ {
		copied, err := k.checkpoint(ctx, "PASSIVE")
		if err != nil {
			return copied, err
		}
		needed = copied.copied < copied.pages
		if w, err = k.checkpoint(ctx, "NOOP"); err != nil || w.pages < k.walLimits.exclusive {
			return w, err
		}
	}
	mode := "PASSIVE"
	if w.pages >= k.walLimits.restart && time.Since(k.lastRestart) > k.walLimits.restartInterval {
		mode, k.lastRestart = "RESTART", time.Now()
	} else if needed {
		return w, nil
	}
	if err := k.lockWriter(ctx, nil); err != nil {
		return w, err
	}
	defer k.unlockWriter()
	return k.checkpoint(ctx, mode)
}

// errWALSizeUnknown says that a commit was just changing the index of the WAL, or that another
// process is copying it back.
var errWALSizeUnknown = errors.New("the size of the write-ahead log could not be told")

// checkpoint runs PRAGMA wal_checkpoint. NOOP only returns the state, PASSIVE copies the pages
// that no reader needs in the WAL, RESTART also waits for the readers.
func (k *checkpointer) checkpoint(ctx context.Context, mode string) (walState, error) {
	var w walState
	var busy int
	err := k.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &w.pages, &w.copied)
	w.blocked = mode == "RESTART" && busy != 0
	if err == nil && w.pages < 0 {
		err = errWALSizeUnknown
	}
	return w, err
}
