// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// walLimits bound the write-ahead log, by sizes in pages of 4 KiB.
type walLimits struct {
	passive int // once so many wait for it, they are copied back into the database
	// exclusive is from when on the writer stands still for the last of them, as
	// only a WAL that is copied whole begins anew. It is well above copy:
	// every commit that comes meanwhile waits for a flush of the database.
	exclusive int
	// restart is from when on the writer is held up until the readers have let
	// go of the WAL: where they follow each other without a gap, the next
	// commit would never find it free to begin anew. A file that had to grow
	// further is cut back to this when it does.
	restart         int
	warn            int           // is told to the operator
	restartInterval time.Duration // how often the writer is held up at most
}

func defaultWALLimits() walLimits {
	return walLimits{passive: 16 << 20 / 4096, exclusive: 48 << 20 / 4096, restart: 96 << 20 / 4096, warn: 256 << 20 / 4096, restartInterval: 3 * time.Second}
}

const (
	// restartTimeout bounds how long the writer is held up at a time.
	restartTimeout = 250 * time.Millisecond
	// checkpointInterval is how often the WAL is looked at while there are commits.
	checkpointInterval = 200 * time.Millisecond
	// While more than few pages wait, they are copied without holding the
	// writer up, maxPasses times at most: it writes more meanwhile.
	fewPages, maxPasses = 128, 4
)

// walState is the state of the write-ahead log.
type walState struct {
	pages   int  // in it
	copied  int  // of them, into the database
	blocked bool // by readers, which were waited for in vain
}

// checkpointer copies the WAL back in the background, so that no commit waits
// for it, and from time to time has the writer stand still for the few pages
// that came meanwhile: only when all are copied does the next commit begin the
// WAL anew.
type checkpointer struct {
	*sqliteEngine
	conn        *sql.DB
	again       bool      // look again without a further commit
	warned      bool      // said once until it is over
	lastRestart time.Time // when the writer was last made to wait for readers
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
		k.log.Warn("copying the write-ahead log back failed", "error", k.checkFsync(err))
	}
	k.again = err != nil || w.pages-w.copied >= k.walLimits.passive
	switch over := w.pages >= k.walLimits.warn; {
	case over && w.blocked && !k.warned: // a single commit may be as large
		k.log.Warn("the write-ahead log is over its limit: something holds a read transaction open", "pages", w.pages)
	case err == nil && !over && k.warned:
		k.log.Info("the write-ahead log is within its limit again", "pages", w.pages)
	default:
		return
	}
	k.warned = !k.warned
}

// checkpointIfGrown looks at the WAL and copies it back if it has grown.
func (k *checkpointer) checkpointIfGrown(ctx context.Context) (walState, error) {
	w, err := k.checkpoint(ctx, "NOOP")
	if err != nil || w.pages-w.copied < k.walLimits.passive && w.pages < k.walLimits.exclusive {
		return w, err
	}
	needed := false // by a reader: waiting for the writer alone would not help
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

// errWALSizeUnknown: a commit was just changing the index of the WAL, or another
// process is copying it back.
var errWALSizeUnknown = errors.New("the size of the write-ahead log could not be told")

// checkpoint is the pragma: NOOP only tells, PASSIVE copies what no reader
// still needs in the WAL, RESTART also waits for the readers.
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
