// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// A message's bytes are deleted once no folder shows it. A copy of a message that is being deleted
// is impossible because of how rows are created and deleted:
//
//   - The first row of a message is inserted together with the message.
//   - A copy or move inserts every further row. It reads an existing row, and holds the lock of
//     that row's folder from before the read until its own commit (copyOperation.guard: the
//     conditional update or SELECT … FOR UPDATE of the source; a deleted folder declines it).
//   - A row too is deleted only under the lock of its folder (updateFolderIfCurrentQuery), or after
//     the folder itself was deleted, which waits for that lock.
//
// So at no moment between two commits does a message have no committed row while an uncommitted
// copy creates one: as long as a copy is uncommitted, its source row is committed and can't be
// deleted. Therefore one statement that deletes a message that no row names, even on READ
// COMMITTED, never deletes a message that a copy then shows. On SQLite writers are serialized
// anyway.
//
// ExpungeGrace is for readers: a FETCH that has read the row may still be reading the bytes.

var (
	dueExpungedQuery = db.SQL(`SELECT message, at FROM expunged_message WHERE at < $1 ORDER BY at LIMIT $2`)
	// deleteUnreferencedMessageQuery deletes a message unless a folder shows it.
	deleteUnreferencedMessageQuery = db.SQL(`DELETE FROM message WHERE id = $1
		AND NOT EXISTS (SELECT 1 FROM folder_message WHERE message = $1) RETURNING blob`)
	// If the message was expunged once more meanwhile, its grace period starts again.
	deleteExpungedQuery = db.SQL(`DELETE FROM expunged_message WHERE message = $1 AND at = $2`)

	// nextDroppedFolderQuery finds a dropped folder that still has messages, or whose record can be
	// deleted.
	nextDroppedFolderQuery = db.SQL(`SELECT folder, mailbox FROM deleted_folder d WHERE folder > $1 AND (uidvalidity < $2
		OR COALESCE((SELECT 1 FROM deleted_folder later WHERE later.mailbox = d.mailbox AND later.uidvalidity > d.uidvalidity LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_message m WHERE m.folder = d.folder LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_change c WHERE c.folder = d.folder LIMIT 1), 0) = 1
		OR COALESCE((SELECT 1 FROM folder_view v WHERE v.folder = d.folder), 0) = 1) ORDER BY folder LIMIT 1`)
	deleteChangesQuery = db.SQL(`DELETE FROM folder_change WHERE folder = $1`)
	// As long as a node's clock has not passed the highest UIDVALIDITY that a mailbox has had, a
	// new folder could get it again. It may be years ahead (RenewUIDValidity).
	deleteDroppedQuery = db.SQL(`DELETE FROM deleted_folder WHERE folder = $1 AND (uidvalidity < $2
		OR EXISTS (SELECT 1 FROM deleted_folder later WHERE later.mailbox = $3 AND later.uidvalidity > deleted_folder.uidvalidity))`)

	deleteSubscriptionsQuery = db.SQL(`DELETE FROM subscription WHERE mailbox = $1`)
)

// Number of rows deleted in one commit, so that other writers need not wait long.
const (
	collectBatchSize = 100   // messages with their bytes
	purgeBatchSize   = 1_000 // rows of a deleted folder
)

// Intervals of Run, and how long an idle view stays in memory.
const (
	collectInterval     = time.Minute
	idleViewTTL         = 10 * time.Minute
	shutdownSaveTimeout = 5 * time.Second
)

// Run works until ctx ends: it deletes unreferenced messages, stores the views of large folders,
// drops idle views and checks whether signals of other nodes got lost.
func (s *Folders) Run(ctx context.Context) error {
	collect := time.NewTicker(collectInterval)
	defer collect.Stop()
	var poll <-chan time.Time
	if s.DB.Engine() == db.Postgres && s.PollInterval > 0 {
		ticker := time.NewTicker(s.PollInterval)
		defer ticker.Stop()
		poll = ticker.C
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			// Save the views, so that the next start can use them.
			last, end := context.WithTimeout(context.WithoutCancel(ctx), shutdownSaveTimeout)
			defer end()
			if err := s.saveViews(last, shutdownStaleDivisor); err != nil && !errors.Is(err, db.ErrClosed) {
				s.Log.Warn("storing the views of large folders at the end failed", "error", err)
			}
			return nil
		case <-collect.C:
			err = s.saveViews(ctx, 1)
			s.evictExpired(s.Now().Add(-idleViewTTL))
			_, collected := s.CollectGarbage(ctx)
			err = errors.Join(err, collected)
		case <-poll:
			err = s.pollOpenFolders(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Error("tending the folders failed", "error", err)
		}
	}
}

// CollectGarbage deletes messages that left their last folder longer than ExpungeGrace ago, and
// returns their number. It also deletes what is left of deleted folders.
func (s *Folders) CollectGarbage(ctx context.Context) (deleted int, err error) {
	if err := s.purgeDeletedFolders(ctx); err != nil {
		return 0, err
	}
	for {
		due, n, err := s.collectBatch(ctx)
		deleted += n
		if err != nil || due < collectBatchSize {
			return deleted, err
		}
		if err := ctx.Err(); err != nil {
			return deleted, err
		}
	}
}

type expungedRow struct {
	message db.ID
	at      int64
	blob    db.ID // known once the message is deleted
}

func (s *Folders) collectBatch(ctx context.Context) (due, deleted int, err error) {
	before := db.Micros(s.Now().Add(-s.ExpungeGrace))
	found, err := db.All(ctx, s.DB, dueExpungedQuery.With(before, collectBatchSize), func(r db.Row) (e expungedRow, err error) {
		err = r.Scan(&e.message, &e.at)
		return e, err
	})
	if err != nil || len(found) == 0 {
		return 0, 0, err
	}
	err = s.DB.Write(ctx, 0, &db.Mutation{
		Guard: func(b *db.Batch) {
			for i := range found {
				e := &found[i]
				e.blob = 0
				b.Queue(deleteUnreferencedMessageQuery.With(e.message)).Each(func(r db.Row) error { return r.Scan(&e.blob) })
			}
		},
		Apply: func(b *db.Batch) {
			for _, e := range found {
				if e.blob != 0 {
					b.Queue(blob.DeleteStatement(e.blob))
				}
				b.Queue(deleteExpungedQuery.With(e.message, e.at))
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

// purgeDeletedFolders removes the messages of deleted folders, which nobody can change or copy any
// more.
func (s *Folders) purgeDeletedFolders(ctx context.Context) error {
	type dropped struct{ folder, mailbox db.ID }
	passed := s.Now().Add(-2 * lease.MaxClockSkew).Unix() // in the past on all nodes' clocks
	for last := db.ID(0); ; {
		found, err := db.All(ctx, s.DB, nextDroppedFolderQuery.With(last, passed), func(r db.Row) (d dropped, err error) {
			err = r.Scan(&d.folder, &d.mailbox)
			return d, err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		d := found[0]
		last = d.folder
		if err := s.purgeFolder(ctx, d.folder, d.mailbox); err != nil {
			return err
		}
		err = s.DB.Write(ctx, d.mailbox, &db.Mutation{Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(d.mailbox))
			b.Queue(deleteChangesQuery.With(d.folder))
			b.Queue(deleteViewQuery.With(d.folder))
			b.Queue(deletePartsQuery.With(d.folder))
			b.Queue(deleteDroppedQuery.With(d.folder, passed, d.mailbox))
		}})
		if err != nil {
			return err
		}
	}
}

func (s *Folders) purgeFolder(ctx context.Context, folder, box db.ID) error {
	for from := int64(1); ; {
		n, hi := 0, int64(0)
		err := s.DB.Each(ctx, messagesFromQuery.With(folder, from, purgeBatchSize), func(r db.Row) error {
			n++
			return r.Scan(&hi, new(int64), new(string), new(int64), new(int64))
		})
		if err != nil || n == 0 {
			return err
		}
		err = s.DB.Write(ctx, box, &db.Mutation{Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(box))
			b.Queue(recordExpungedQuery.With(from, hi, folder, db.Micros(s.Now())))
			b.Queue(deleteRowsQuery.With(from, hi, folder))
		}})
		if err != nil {
			return err
		}
		from = hi + 1
	}
}

// PurgeMailbox deletes all folders, subscriptions and mail of a mailbox permanently. CollectGarbage
// deletes the bytes after ExpungeGrace. PurgeMailbox may be called again after an error.
func (s *Folders) PurgeMailbox(ctx context.Context, mailbox db.ID) error {
	err := s.updateTree(ctx, mailbox, func(t *folderTree) error {
		for _, f := range t.folders {
			if err := t.drop(ctx, f.ID); err != nil {
				return err
			}
		}
		_, err := t.tx.Exec(ctx, deleteSubscriptionsQuery.With(mailbox))
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.purgeDeletedFolders(ctx)
}
