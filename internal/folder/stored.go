// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// The view of a large folder is stored now and then, so that the first session
// after a start, or on another node, reads a few bytes for each message instead
// of its row. It is brought up to date from there like a view that nobody has
// looked at for a while: by the change log and the new UIDs.

var (
	findView    = db.SQL(`SELECT version, format, changed, next, words FROM folder_view WHERE folder = $1`)
	viewVersion = db.SQL(`SELECT version FROM folder_view WHERE folder = $1`)
	viewParts   = db.SQL(`SELECT part, data FROM folder_view_part WHERE folder = $1 ORDER BY part`)

	keepsFolder = db.SQL(`SELECT id FROM folder WHERE id = $1 {for_update}`)
	insertView  = db.SQL(`INSERT INTO folder_view (folder, version, format, changed, next, words) VALUES ($1, 1, $2, $3, $4, $5)
		ON CONFLICT (folder) DO NOTHING`)
	updateView = db.SQL(`UPDATE folder_view SET version = version + 1, format = $3, changed = $4, next = $5, words = $6
		WHERE folder = $1 AND version = $2`)
	insertPart = db.SQL(`INSERT INTO folder_view_part (folder, part, data) VALUES ($1, $2, $3)
		ON CONFLICT (folder, part) DO UPDATE SET data = excluded.data`)
	deletePart  = db.SQL(`DELETE FROM folder_view_part WHERE folder = $1 AND part = $2`)
	deleteParts = db.SQL(`DELETE FROM folder_view_part WHERE folder = $1`)
	deleteView  = db.SQL(`DELETE FROM folder_view WHERE folder = $1`)
)

const (
	// viewFormat is that of the parts; what has another is not read.
	viewFormat = 1
	// partBits is how many bits of a chunk's key are within its part.
	partBits = 14 - chunkBits
	// storeFrom is from how many messages on a view is stored.
	storeFrom = 5_000
	// A stored view is renewed once so many changes, or arrivals, came since: it
	// takes about as long to read them as the view.
	staleChanges  = 200
	staleArrivals = 2_000
	// soon is how many times sooner that is when the node ends, since the first
	// session after that will have to read them.
	soon = 20
)

// storedView is what a node knows of the stored view of a folder.
type storedView struct {
	version uint64 // 0 if there is none
	snap    *snapshot
	changed uint64
	next    uint32
}

// stale reports whether the view should be stored again, sooner times sooner than
// at other times.
func (k *storedView) stale(snap *snapshot, changed uint64, next uint32, sooner int) bool {
	if k.version == 0 || changed < k.changed || next < k.next {
		return snap.n >= storeFrom
	}
	return changed-k.changed >= staleChanges/uint64(sooner) || next-k.next >= staleArrivals/uint32(sooner)
}

// unsaved reports whether the view should be stored before it is forgotten.
func (sh *shared) unsaved() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.storable() && sh.kept.stale(sh.snap, sh.changed, sh.next, 1)
}

// storable reports whether the view is all that there is; sh.mu is held.
func (sh *shared) storable() bool { return sh.loaded && !sh.words.isFull() }

// loadStored begins with the stored view, if there is one that the log can
// bring up to date.
func (sh *shared) loadStored(ctx context.Context, row Folder) (found bool, err error) {
	d := sh.store.DB
	var k storedView
	var format uint64
	var words string
	err = d.One(ctx, findView.With(sh.id), &k.version, &format, &k.changed, &k.next, &words)
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sh.mu.Lock()
	sh.kept = k // without a snapshot: all of it will be written
	sh.mu.Unlock()
	if format != viewFormat || k.changed > row.changed || k.next > row.UIDNext || k.changed < row.logFloor ||
		row.ModSeq-k.changed > logKeep-logMargin || !sh.words.take(words) {
		return false, nil
	}
	k.snap = &snapshot{}
	err = d.Each(ctx, viewParts.With(sh.id), func(r db.Row) error {
		var part uint64
		var data []byte
		if err := r.Scan(&part, &data); err != nil {
			return err
		}
		return k.snap.addPart(part, data)
	})
	if err != nil {
		return false, err
	}
	// Another node may have written between the two readings.
	var version uint64
	if err := d.One(ctx, viewVersion.With(sh.id), &version); err != nil || version != k.version {
		return false, err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.kept = k
	sh.snap, sh.next, sh.changed, sh.loaded = k.snap, k.next, k.changed, true
	return true, nil
}

// addPart adds the chunks of a part, which come after those that are there. The
// snapshot keeps data.
func (s *snapshot) addPart(part uint64, data []byte) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		last := len(s.slots) - 1
		if n <= 0 || key>>partBits != part || last >= 0 && key <= uint64(s.slots[last].key) || key > 1<<(32-chunkBits)-1 {
			return errBadChunk
		}
		c, rest, err := readChunk(data[n:])
		if err != nil {
			return err
		}
		s.add(uint32(key), c)
		data = rest
	}
	return nil
}

// parts groups the slots of a snapshot by part.
func (s *snapshot) parts() map[uint32][]slot {
	parts := map[uint32][]slot{}
	for i := 0; i < len(s.slots); {
		part, from := s.slots[i].key>>partBits, i
		for i < len(s.slots) && s.slots[i].key>>partBits == part {
			i++
		}
		parts[part] = s.slots[from:i]
	}
	return parts
}

func sameChunks(a, b []slot) bool {
	return slices.EqualFunc(a, b, func(a, b slot) bool { return a.chunk == b.chunk })
}

// storeView stores the view if it is stale, and returns whether it did.
func (sh *shared) storeView(ctx context.Context, sooner int) (bool, error) {
	sh.saving.Lock()
	defer sh.saving.Unlock()
	sh.mu.Lock()
	old, now := sh.kept, storedView{sh.kept.version + 1, sh.snap, sh.changed, sh.next}
	box, due := sh.row.Mailbox, sh.storable() && old.stale(sh.snap, sh.changed, sh.next, sooner)
	sh.mu.Unlock()
	if !due {
		return false, nil
	}
	words := sh.words.give(now.snap)
	before := map[uint32][]slot{}
	if old.snap != nil {
		before = old.snap.parts()
	}
	err := sh.store.DB.Write(ctx, box, &db.Job{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(box))
			b.Queue(keepsFolder.With(sh.id)).One(new(int64)).Else(noFolder())
			if old.version == 0 {
				b.Queue(insertView.With(sh.id, viewFormat, int64(now.changed), now.next, words)).Else(errStale)
			} else {
				b.Queue(updateView.With(sh.id, int64(old.version), viewFormat, int64(now.changed), now.next, words)).Else(errStale)
			}
		},
		Apply: func(b *db.Batch) {
			if old.snap == nil {
				b.Queue(deleteParts.With(sh.id))
			}
			parts := now.snap.parts()
			for part, slots := range parts {
				if !sameChunks(before[part], slots) {
					b.Queue(insertPart.With(sh.id, part, partData(slots)))
				}
			}
			for part := range before {
				if _, there := parts[part]; !there {
					b.Queue(deletePart.With(sh.id, part))
				}
			}
		},
	})
	if errors.Is(err, errStale) { // another node has stored it
		now = storedView{}
		err = sh.store.DB.One(ctx, findView.With(sh.id), &now.version, new(int64), &now.changed, &now.next, new(string))
		if errors.Is(err, db.ErrNoRow) {
			err = nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("storing the view of folder %s: %w", sh.id, err)
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.kept = now
	return true, nil
}

func partData(slots []slot) []byte {
	var data []byte
	for _, s := range slots {
		data = s.appendTo(binary.AppendUvarint(data, uint64(s.key)))
	}
	return data
}

// give returns the sets of keywords that a snapshot uses, in the places of
// their numbers.
func (t *wordTable) give(snap *snapshot) string {
	used := map[uint32]bool{}
	for _, s := range snap.slots {
		if s.words.width == 0 && s.words.step == 0 {
			used[uint32(s.words.base)] = true
			continue
		}
		for i := range s.len() {
			used[uint32(s.words.at(i))] = true
		}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	lines := make([]string, 0, len(used))
	for id, text := range t.texts {
		if !used[uint32(id)] {
			text = ""
		}
		lines = append(lines, text)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// take makes the sets of keywords have the numbers that give gave them, and
// reports whether it could: a table in use has numbers of its own.
func (t *wordTable) take(lines string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sets) > 1 || len(lines) > maxTable+maxWords {
		return false
	}
	for i, text := range strings.Split(lines, "\n") {
		switch {
		case i == 0: // the empty set
		case text == "": // a set that is not used any more
			t.sets, t.texts = append(t.sets, nil), append(t.texts, "")
		default:
			t.idLocked(text)
		}
	}
	return true
}
