// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// The view of a large folder is stored occasionally, so that the first session after a start, or on
// another node, reads a few bytes for each message instead of its row. From there it is brought up
// to date like any outdated view: by the change log and the new UIDs.

var (
	savedViewQuery        = db.SQL(`SELECT version, format, changed_modseq, next_uid, keyword_sets FROM folder_view WHERE folder = $1`)
	savedViewVersionQuery = db.SQL(`SELECT version FROM folder_view WHERE folder = $1`)
	savedViewPartsQuery   = db.SQL(`SELECT part, data FROM folder_view_part WHERE folder = $1 ORDER BY part`)

	lockFolderQuery = db.SQL(`SELECT id FROM folder WHERE id = $1 {for_update}`)
	insertViewQuery = db.SQL(`INSERT INTO folder_view (folder, version, format, changed_modseq, next_uid, keyword_sets) VALUES ($1, 1, $2, $3, $4, $5)
		ON CONFLICT (folder) DO NOTHING`)
	updateViewQuery = db.SQL(`UPDATE folder_view SET version = version + 1, format = $3, changed_modseq = $4, next_uid = $5, keyword_sets = $6
		WHERE folder = $1 AND version = $2`)
	insertPartQuery = db.SQL(`INSERT INTO folder_view_part (folder, part, data) VALUES ($1, $2, $3)
		ON CONFLICT (folder, part) DO UPDATE SET data = excluded.data`)
	deletePartQuery  = db.SQL(`DELETE FROM folder_view_part WHERE folder = $1 AND part = $2`)
	deletePartsQuery = db.SQL(`DELETE FROM folder_view_part WHERE folder = $1`)
	deleteViewQuery  = db.SQL(`DELETE FROM folder_view WHERE folder = $1`)
)

const (
	// savedViewFormat is the format of the parts; parts in other formats are ignored.
	savedViewFormat = 1
	// minSavedMessages is the minimum number of messages of a stored view.
	minSavedMessages = 5_000
	// A stored view is renewed after this many changes or arrivals: reading them takes about as
	// long as reading the view.
	maxUnsavedChanges  = 200
	maxUnsavedArrivals = 2_000
	// shutdownStaleDivisor divides these limits when the node stops, since the first session
	// afterwards has to read the changes.
	shutdownStaleDivisor = 20
)

// savedView is what a node knows about the stored view of a folder.
type savedView struct {
	version      uint64 // 0 if there is none
	snap         *snapshot.Snapshot
	changeModSeq uint64
	nextUID      uint32
}

// isStale reports whether the view should be stored again. sooner divides the usual limits.
func (k *savedView) isStale(snap *snapshot.Snapshot, changed uint64, next uint32, sooner int) bool {
	if k.version == 0 || changed < k.changeModSeq || next < k.nextUID {
		return snap.Len() >= minSavedMessages
	}
	return changed-k.changeModSeq >= maxUnsavedChanges/uint64(sooner) || next-k.nextUID >= maxUnsavedArrivals/uint32(sooner)
}

// needsSave reports whether the view should be stored before it is dropped.
func (sh *sharedView) needsSave() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.isSavable() && sh.saved.isStale(sh.snap, sh.changeModSeq, sh.nextUID, 1)
}

// isSavable reports whether the view is complete; sh.mu must be held.
func (sh *sharedView) isSavable() bool { return sh.loaded && !sh.keywords.IsFull() }

// loadSaved loads the stored view, if there is one that the log can bring up to date.
func (sh *sharedView) loadSaved(ctx context.Context, row Folder) (found bool, err error) {
	d := sh.store.DB
	var k savedView
	var format uint64
	var words string
	err = d.One(ctx, savedViewQuery.With(sh.id), &k.version, &format, &k.changeModSeq, &k.nextUID, &words)
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sh.mu.Lock()
	sh.saved = k // without a snapshot, so that all of it will be written
	sh.mu.Unlock()
	if format != savedViewFormat || k.changeModSeq > row.changeModSeq || k.nextUID > row.UIDNext || k.changeModSeq < row.logLayer ||
		row.ModSeq-k.changeModSeq > logRetention-logReloadMargin || !sh.keywords.Decode(words) {
		return false, nil
	}
	k.snap = &snapshot.Snapshot{}
	err = d.Each(ctx, savedViewPartsQuery.With(sh.id), func(r db.Row) error {
		var part uint64
		var data []byte
		if err := r.Scan(&part, &data); err != nil {
			return err
		}
		return k.snap.AddPart(part, data)
	})
	if err != nil {
		return false, err
	}
	// Another node may have written between the two reads.
	var version uint64
	if err := d.One(ctx, savedViewVersionQuery.With(sh.id), &version); err != nil || version != k.version {
		return false, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.saved = k
	sh.snap, sh.nextUID, sh.changeModSeq, sh.loaded = k.snap, k.nextUID, k.changeModSeq, true
	return true, nil
}

// save stores the view if it is stale, and reports whether it did.
func (sh *sharedView) save(ctx context.Context, sooner int) (bool, error) {
	sh.saveMu.Lock()
	defer sh.saveMu.Unlock()
	sh.mu.Lock()
	old, now := sh.saved, savedView{sh.saved.version + 1, sh.snap, sh.changeModSeq, sh.nextUID}
	box, due := sh.row.Mailbox, sh.isSavable() && old.isStale(sh.snap, sh.changeModSeq, sh.nextUID, sooner)
	sh.mu.Unlock()
	if !due {
		return false, nil
	}
	words := sh.keywords.Encode(now.snap)
	var before map[uint32]snapshot.Part
	if old.snap != nil {
		before = old.snap.Parts()
	}
	err := sh.store.DB.Write(ctx, box, &db.Mutation{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(box))
			b.Queue(lockFolderQuery.With(sh.id)).One(new(int64)).OrFail(noFolderError())
			if old.version == 0 {
				b.Queue(insertViewQuery.With(sh.id, savedViewFormat, int64(now.changeModSeq), now.nextUID, words)).OrFail(errStale)
			} else {
				b.Queue(updateViewQuery.With(sh.id, int64(old.version), savedViewFormat, int64(now.changeModSeq), now.nextUID, words)).OrFail(errStale)
			}
		},
		Apply: func(b *db.Batch) {
			if old.snap == nil {
				b.Queue(deletePartsQuery.With(sh.id))
			}
			parts := now.snap.Parts()
			for part, chunks := range parts {
				if !chunks.Same(before[part]) {
					b.Queue(insertPartQuery.With(sh.id, part, chunks.Encode()))
				}
			}
			for part := range before {
				if _, there := parts[part]; !there {
					b.Queue(deletePartQuery.With(sh.id, part))
				}
			}
		},
	})
	if errors.Is(err, errStale) { // another node has stored it
		now = savedView{}
		err = sh.store.DB.One(ctx, savedViewQuery.With(sh.id), &now.version, new(int64), &now.changeModSeq, &now.nextUID, new(string))
		if errors.Is(err, db.ErrNoRow) {
			err = nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("storing the view of folder %s: %w", sh.id, err)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.saved = now
	return true, nil
}
