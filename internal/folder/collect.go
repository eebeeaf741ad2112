// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/signal"
)

// A message's bytes are deleted once no folder shows it. That no copy can be
// made of what is being deleted follows from how rows come to be:
//
//   - The first row of a message is inserted together with the message.
//   - Every further row is inserted by a copy or move, which reads a row that
//     is there, and holds the lock of that row's folder from before reading it
//     until its own commit (transfer.guard: the conditional update or SELECT …
//     FOR UPDATE of the source; a folder that is gone declines it).
//   - A row is deleted only under the lock of its folder too (takeFolder), or
//     after the folder itself was, which waits for that lock.
//
// So between two commits there is no moment at which a message has no
// committed row and yet one in the making: while a copy is uncommitted, its
// source row is committed and can't go. Therefore one statement that deletes
// the message where no row names it, on READ COMMITTED as well, never deletes
// what a copy then shows. On SQLite writers follow each other anyway.
//
// Grace is for readers: a FETCH that has read the row may still be reading the
// bytes.

var (
	dueExpunged = db.SQL(`SELECT message, at FROM expunged WHERE at < $1 ORDER BY at LIMIT $2`)
	// deleteUnshown deletes a message unless a folder shows it.
	deleteUnshown = db.SQL(`DELETE FROM message WHERE id = $1
		AND NOT EXISTS (SELECT 1 FROM folder_message WHERE message = $1) RETURNING blob`)
	// If it was expunged once more meanwhile, its time begins anew.
	deleteExpunged = db.SQL(`DELETE FROM expunged WHERE message = $1 AND at = $2`)

	// nextDropped finds one of which something is left, or that can be forgotten.
	nextDropped = db.SQL(`SELECT folder, mailbox FROM dropped d WHERE folder > $1 AND (uidvalidity < $2
		OR COALESCE((SELECT 1 FROM dropped later WHERE later.mailbox = d.mailbox AND later.uidvalidity > d.uidvalidity LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_message m WHERE m.folder = d.folder LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_change c WHERE c.folder = d.folder LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_view v WHERE v.folder = d.folder), 0) = 1) ORDER BY folder LIMIT 1`)
	deleteChanges = db.SQL(`DELETE FROM folder_change WHERE folder = $1`)
	// As long as some node's clock has not passed the highest UIDVALIDITY that a mailbox
	// has had, a new folder could get it again. It may be years ahead (RenewAll).
	deleteDropped = db.SQL(`DELETE FROM dropped WHERE folder = $1 AND (uidvalidity < $2
		OR EXISTS (SELECT 1 FROM dropped later WHERE later.mailbox = $3 AND later.uidvalidity > dropped.uidvalidity))`)
	modSeqOf = db.SQL(`SELECT modseq FROM folder WHERE id = $1`)

	deleteSubscriptions = db.SQL(`DELETE FROM subscription WHERE mailbox = $1`)
)

// Sizes of what is deleted in one commit, so that no one waits long for it.
const (
	collectChunk = 100   // messages with their bytes
	dropChunk    = 1_000 // rows of a deleted folder
)

// How often Run collects, and how long an idle view is kept.
const (
	collectEvery = time.Minute
	keepIdle     = 10 * time.Minute
	storeAtEnd   = 5 * time.Second
)

// Run deletes what nothing shows any more, stores the views of large folders,
// forgets idle ones and looks whether signals of other nodes got lost, until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	collect := time.NewTicker(collectEvery)
	defer collect.Stop()
	poll := time.NewTicker(max(s.Poll, time.Second))
	defer poll.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			// What comes next begins with what this node knew.
			last, end := context.WithTimeout(context.WithoutCancel(ctx), storeAtEnd)
			defer end()
			if err := s.storeViews(last, soon); err != nil && !errors.Is(err, db.ErrClosed) {
				s.Log.Warn("storing the views of large folders at the end failed", "error", err)
			}
			return nil
		case <-collect.C:
			err = s.storeViews(ctx, 1)
			s.forgetIdle(s.Now().Add(-keepIdle))
			_, collected := s.Collect(ctx)
			err = errors.Join(err, collected)
		case <-poll.C:
			if s.DB.Engine() == db.Postgres {
				err = s.poll(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Error("tending the folders failed", "error", err)
		}
	}
}

// poll wakes the sessions of open folders that changed unnoticed.
func (s *Store) poll(ctx context.Context) error {
	s.mu.Lock()
	open := make([]*shared, 0, len(s.open))
	for _, sh := range s.open {
		if sh.refs > 0 {
			open = append(open, sh)
		}
	}
	s.mu.Unlock()
	for _, sh := range open {
		var modseq uint64
		row, err := one(ctx, s.DB, modSeqOf.With(sh.id), func(r db.Row) (uint64, error) {
			err := r.Scan(&modseq)
			return modseq, err
		})
		sh.mu.Lock()
		known := sh.row.ModSeq
		sh.mu.Unlock()
		if err == nil && row == known {
			continue
		}
		s.Hub.Receive([]signal.Key{{Kind: signal.Folder, ID: int64(sh.id)}})
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Collect deletes messages that left their last folder longer than Grace ago,
// and returns how many; and what is left of deleted folders.
func (s *Store) Collect(ctx context.Context) (deleted int, err error) {
	if err := s.emptyDropped(ctx); err != nil {
		return 0, err
	}
	for {
		due, n, err := s.collectSome(ctx)
		deleted += n
		if err != nil || due < collectChunk {
			return deleted, err
		}
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
	}
}

type expunged struct {
	message db.ID
	at      int64
	blob    db.ID // found when the message was deleted
}

func (s *Store) collectSome(ctx context.Context) (due, deleted int, err error) {
	before := db.Micros(s.Now().Add(-s.Grace))
	found, err := db.All(ctx, s.DB, dueExpunged.With(before, collectChunk), func(r db.Row) (e expunged, err error) {
		err = r.Scan(&e.message, &e.at)
		return e, err
	})
	if err != nil || len(found) == 0 {
		return 0, 0, err
	}
	err = s.DB.Write(ctx, 0, &db.Job{
		Guard: func(b *db.Batch) {
			for i := range found {
				e := &found[i]
				e.blob = 0
				b.Queue(deleteUnshown.With(e.message)).Each(func(r db.Row) error { return r.Scan(&e.blob) })
			}
		},
		Apply: func(b *db.Batch) {
			for _, e := range found {
				if e.blob != 0 {
					b.Queue(blob.Remove(e.blob))
				}
				b.Queue(deleteExpunged.With(e.message, e.at))
			}
		},
	})
	if err != nil {
		return 0, 0, err
	}
	for _, e := range found {
		if e.blob != 0 {
			deleted++
		}
	}
	return len(found), deleted, nil
}

// emptyDropped takes the messages out of deleted folders, which nobody can
// change or copy from any more.
func (s *Store) emptyDropped(ctx context.Context) error {
	type dropped struct{ folder, mailbox db.ID }
	passed := s.Now().Add(-2 * db.MostApart).Unix() // by all clocks
	for last := db.ID(0); ; {
		found, err := db.All(ctx, s.DB, nextDropped.With(last, passed), func(r db.Row) (d dropped, err error) {
			err = r.Scan(&d.folder, &d.mailbox)
			return d, err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		d := found[0]
		last = d.folder
		if err := s.emptyFolder(ctx, d.folder, d.mailbox); err != nil {
			return err
		}
		err = s.DB.Write(ctx, d.mailbox, &db.Job{Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(d.mailbox))
			b.Queue(deleteChanges.With(d.folder))
			b.Queue(deleteView.With(d.folder))
			b.Queue(deleteParts.With(d.folder))
			b.Queue(deleteDropped.With(d.folder, passed, d.mailbox))
		}})
		if err != nil {
			return err
		}
	}
}

func (s *Store) emptyFolder(ctx context.Context, folder, box db.ID) error {
	for from := int64(1); ; {
		n, hi := 0, int64(0)
		err := s.DB.Each(ctx, messagesFrom.With(folder, from, dropChunk), func(r db.Row) error {
			n++
			return r.Scan(&hi, new(int64), new(string), new(int64), new(int64))
		})
		if err != nil || n == 0 {
			return err
		}
		err = s.DB.Write(ctx, box, &db.Job{Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(box))
			b.Queue(noteExpunged.With(from, hi, folder, db.Micros(s.Now())))
			b.Queue(takeOut.With(from, hi, folder))
		}})
		if err != nil {
			return err
		}
		from = hi + 1
	}
}

// Empty deletes all folders, subscriptions and mail of a mailbox, for good; the
// bytes go with the next Collect after Grace. It may be called again after it
// failed.
func (s *Store) Empty(ctx context.Context, mailbox db.ID) error {
	err := s.changeTree(ctx, mailbox, func(t *tree) error {
		for _, f := range t.folders {
			if err := t.drop(ctx, f.ID); err != nil {
				return err
			}
		}
		_, err := t.tx.Exec(ctx, deleteSubscriptions.With(mailbox))
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.emptyDropped(ctx)
}
