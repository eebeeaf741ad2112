// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

var (
	spoilPart  = db.SQL(`UPDATE folder_view_part SET data = $2 WHERE folder = $1 AND part = 0`)
	countViews = db.SQL(`SELECT (SELECT COUNT(*) FROM folder_view), (SELECT COUNT(*) FROM folder_view_part)`)
)

// cold opens INBOX on a newly started node. It reports whether the view was loaded from storage,
// and returns its messages.
func (h *fixture) cold() (fromStored bool, all []snapshot.Entry) {
	h.Helper()
	s := h.newFolders(h.db, nil, Options{})
	v, err := s.Open(h.ctx(), h.box, Inbox, true)
	h.must(err)
	defer v.Close()
	for _, e := range v.snap.Between(0, v.snap.Len()) {
		all = append(all, e)
	}
	return v.shared.saved.snap != nil, all
}

// TestStoredView checks that a view loaded from storage equals one that reads all messages, after
// any changes.
func TestStoredView(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, minSavedMessages+500)
		v := h.view(Inbox)
		r := rand.New(rand.NewPCG(1, 1))
		change := func(n int) {
			h.Helper()
			for range n {
				uids := numbers(1+r.Uint32N(minSavedMessages), minSavedMessages+1+r.Uint32N(400))
				spared := Deleted // usually, so that the folder stays large
				if r.IntN(20) == 0 {
					spared = 0
				}
				_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{
					Op: ReplaceFlags, Flags: Flags(r.IntN(int(AllFlags)+1)) &^ spared, Keywords: [][]string{nil, {"work"}, {"work", "play"}}[r.IntN(3)],
				})
				h.must(err)
			}
			_, err := v.Expunge(h.ctx(), nil)
			h.must(err)
			h.fill(Inbox, 1+r.IntN(5))
			h.sync(v, true)
		}
		check := func(what string, stored bool) {
			h.Helper()
			got, all := h.cold()
			var want []snapshot.Entry
			for _, e := range v.snap.Between(0, v.snap.Len()) {
				want = append(want, e)
			}
			if got != stored {
				t.Errorf("%s: began with the stored view: %v", what, got)
			}
			same := slices.EqualFunc(all, want, func(a, b snapshot.Entry) bool {
				return a.UID == b.UID && a.Flags == b.Flags && a.Size == b.Size && a.ModSeq == b.ModSeq
			})
			if !same {
				t.Errorf("%s: %d messages instead of %d, or other ones", what, len(all), len(want))
			}
		}
		store := func(s *Folders, sooner int, want bool) {
			h.Helper()
			s.mu.Lock()
			sh := s.open[v.shared.id]
			s.mu.Unlock()
			did, err := sh.save(h.ctx(), sooner)
			h.must(err)
			if did != want {
				t.Errorf("stored: %v", did)
			}
		}
		change(50)
		check("not stored yet", false)
		store(h.Folders, 1, true)
		store(h.Folders, 1, false)
		check("stored", true)
		change(30)
		check("changed since", true)
		store(h.Folders, 1, false)
		store(h.Folders, shutdownStaleDivisor, true)
		store(h.Folders, shutdownStaleDivisor, false)
		check("stored at an end", true)
		change(maxUnsavedChanges + 10)
		check("changed much since", true)
		store(h.Folders, 1, true)
		check("stored again", true)

		// Two nodes store the view without knowing of each other.
		other := h.newFolders(h.db, nil, Options{PollInterval: -1})
		b, err := other.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer b.Close()
		change(maxUnsavedChanges + 10)
		_, err = b.Sync(h.ctx(), true)
		h.must(err)
		store(h.Folders, 1, true)
		store(other, 1, true) // learns that another node stores it too
		change(maxUnsavedChanges + 10)
		_, err = b.Sync(h.ctx(), true)
		h.must(err)
		store(other, 1, true)
		check("stored by another", true)
		store(h.Folders, 1, true) // learns it too
		change(maxUnsavedChanges + 10)
		store(h.Folders, 1, true) // all of it, as it does not know the other's parts
		check("stored by both", true)

		h.must(h.db.Write(h.ctx(), 0, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(spoilPart.With(v.shared.id, []byte{1, 2, 3})) }}))
		check("spoilt", false)
		h.must(h.PurgeMailbox(h.ctx(), h.box))
		var views, parts int
		h.must(h.db.One(h.ctx(), countViews.With(), &views, &parts))
		if views+parts != 0 {
			t.Errorf("%d views and %d parts are left of a deleted folder", views, parts)
		}
	})
}
