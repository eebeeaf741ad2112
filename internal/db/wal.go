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
	copy int // once so many wait for it, they are copied back into the database
	// anew is from when on the writer stands still for the last of them, as
	// only a WAL that is copied whole begins anew. It is well above copy:
	// every commit that comes meanwhile waits for a flush of the database.
	anew int
	// hold is from when on the writer is held up until the readers have let
	// go of the WAL: where they follow each other without a gap, the next
	// commit would never find it free to begin anew. A file that had to grow
	// further is cut back to this when it does.
	hold  int
	alarm int           // is told to the operator
	every time.Duration // how often the writer is held up at most
}

func defaultWAL() walLimits {
	return walLimits{copy: 16 << 20 / 4096, anew: 48 << 20 / 4096, hold: 96 << 20 / 4096, alarm: 256 << 20 / 4096, every: 3 * time.Second}
}

const (
	// holdFor bounds how long the writer is held up at a time.
	holdFor = 250 * time.Millisecond
	// checkpointEvery is how often the WAL is looked at while there are commits.
	checkpointEvery = 200 * time.Millisecond
	// While more than few pages wait, they are copied without holding the
	// writer up, maxPasses times at most: it writes more meanwhile.
	few, maxPasses = 128, 4
)

// wal is the state of the write-ahead log.
type wal struct {
	pages  int  // in it
	copied int  // of them, into the database
	held   bool // by readers, which were waited for in vain
}

// walKeeper copies the WAL back in the background, so that no commit waits
// for it, and from time to time has the writer stand still for the few pages
// that came meanwhile: only when all are copied does the next commit begin the
// WAL anew.
type walKeeper struct {
	*sqliteEngine
	own        *sql.DB
	unfinished bool      // look again without a further commit
	alarmed    bool      // said once until it is over
	heldUp     time.Time // when the writer was last made to wait for readers
}

// checkpoints runs until the database is being closed.
func (e *sqliteEngine) checkpoints(dsn string) {
	defer close(e.ended)
	own, err := sql.Open("sqlite", dsn)
	if err != nil {
		e.log.Error("no checkpoints will be made", "error", err)
		return
	}
	defer own.Close() //nolint:errcheck // nothing is written through it
	own.SetMaxOpenConns(1)
	k := &walKeeper{sqliteEngine: e, own: own}
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.closing.Done():
			return
		case <-tick.C:
		}
		select {
		case <-e.dirty:
			k.look(e.closing)
		default:
			if k.unfinished {
				k.look(e.closing)
			}
		}
	}
}

func (k *walKeeper) look(ctx context.Context) {
	w, err := k.tend(ctx)
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errUntold) {
		k.unfinished = true
		return
	}
	if err != nil {
		k.log.Warn("copying the write-ahead log back failed", "error", k.check(err))
	}
	k.unfinished = err != nil || w.pages-w.copied >= k.limits.copy
	switch over := w.pages >= k.limits.alarm; {
	case over && w.held && !k.alarmed: // a single commit may be as large
		k.log.Warn("the write-ahead log is over its limit: something holds a read transaction open", "pages", w.pages)
	case err == nil && !over && k.alarmed:
		k.log.Info("the write-ahead log is within its limit again", "pages", w.pages)
	default:
		return
	}
	k.alarmed = !k.alarmed
}

// tend looks at the WAL and copies it back if it has grown.
func (k *walKeeper) tend(ctx context.Context) (wal, error) {
	w, err := k.checkpoint(ctx, "NOOP")
	if err != nil || w.pages-w.copied < k.limits.copy && w.pages < k.limits.anew {
		return w, err
	}
	needed := false // by a reader: waiting for the writer alone would not help
	for pass := 0; pass < maxPasses && w.pages-w.copied > few && !needed; pass++ {
		copied, err := k.checkpoint(ctx, "PASSIVE")
		if err != nil {
			return copied, err
		}
		needed = copied.copied < copied.pages
		if w, err = k.checkpoint(ctx, "NOOP"); err != nil || w.pages < k.limits.anew {
			return w, err
		}
	}
	mode := "PASSIVE"
	if w.pages >= k.limits.hold && time.Since(k.heldUp) > k.limits.every {
		mode, k.heldUp = "RESTART", time.Now()
	} else if needed {
		return w, nil
	}
	if err := k.takeTurn(ctx, nil); err != nil {
		return w, err
	}
	defer k.passTurn()
	return k.checkpoint(ctx, mode)
}

// errUntold: a commit was just changing the index of the WAL, or another
// process is copying it back.
var errUntold = errors.New("the size of the write-ahead log could not be told")

// checkpoint is the pragma: NOOP only tells, PASSIVE copies what no reader
// still needs in the WAL, RESTART also waits for the readers.
func (k *walKeeper) checkpoint(ctx context.Context, mode string) (wal, error) {
	var w wal
	var busy int
	err := k.own.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &w.pages, &w.copied)
	w.held = mode == "RESTART" && busy != 0
	if err == nil && w.pages < 0 {
		err = errUntold
	}
	return w, err
}
