// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	spoilPart  = db.SQL(`UPDATE folder_view_part SET data = $2 WHERE folder = $1 AND part = 0`)
	countViews = db.SQL(`SELECT (SELECT COUNT(*) FROM folder_view), (SELECT COUNT(*) FROM folder_view_part)`)
)

// cold opens INBOX on a newly started node. It reports whether the view was loaded from storage,
// and returns its messages.
func (h *fixture) cold() (fromStored bool, all []entry) {
	h.Helper()
	s := h.newStore(h.db, nil, Options{})
	v, err := s.Open(h.ctx(), h.box, Inbox, true)
	h.must(err)
	defer v.Close()
	for _, e := range v.snap.between(0, v.snap.count) {
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
			var want []entry
			for _, e := range v.snap.between(0, v.snap.count) {
				want = append(want, e)
			}
			if got != stored {
				t.Errorf("%s: began with the stored view: %v", what, got)
			}
			same := slices.EqualFunc(all, want, func(a, b entry) bool {
				return a.uid == b.uid && a.flags == b.flags && a.size == b.size && a.modseq == b.modseq
			})
			if !same {
				t.Errorf("%s: %d messages instead of %d, or other ones", what, len(all), len(want))
			}
		}
		store := func(s *Store, sooner int, want bool) {
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
		store(h.Store, 1, true)
		store(h.Store, 1, false)
		check("stored", true)
		change(30)
		check("changed since", true)
		store(h.Store, 1, false)
		store(h.Store, shutdownStaleDivisor, true)
		store(h.Store, shutdownStaleDivisor, false)
		check("stored at an end", true)
		change(maxUnsavedChanges + 10)
		check("changed much since", true)
		store(h.Store, 1, true)
		check("stored again", true)

		// Two nodes store the view without knowing of each other.
		other := h.newStore(h.db, nil, Options{PollInterval: -1})
		b, err := other.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer b.Close()
		change(maxUnsavedChanges + 10)
		_, err = b.Sync(h.ctx(), true)
		h.must(err)
		store(h.Store, 1, true)
		store(other, 1, true) // learns that another node stores it too
		change(maxUnsavedChanges + 10)
		_, err = b.Sync(h.ctx(), true)
		h.must(err)
		store(other, 1, true)
		check("stored by another", true)
		store(h.Store, 1, true) // learns it too
		change(maxUnsavedChanges + 10)
		store(h.Store, 1, true) // all of it, as it does not know the other's parts
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

func FuzzReadChunk(f *testing.F) {
	var list []entry
	for i := range uint32(40) {
		list = append(list, entry{uid: 3*i + 1, size: i * 1000, flags: Flags(i % 32), modseq: uint64(i) * uint64(i), keywords: i / 30})
	}
	f.Add(newChunk(list).appendBinary(nil))
	f.Add(newChunk(list[:1]).appendBinary(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := decodeChunk(data)
		if err != nil {
			return
		}
		s := slot{0, 0, c}
		for i := range c.len() {
			if at, found := c.searchUID(0, s.uid(i)); !found || at != i {
				t.Fatalf("%d is at %d, %v", i, at, found)
			}
		}
	})
}

func TestChunk(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		var list []entry
		for low := range uint32(chunkMask + 1) {
			if r.IntN(3) > 0 || r.IntN(50) == 0 && len(list) == 0 {
				list = append(list, entry{
					uid: 7<<chunkBits | low, size: r.Uint32() >> r.IntN(33), flags: Flags(r.IntN(int(AllFlags)+1) >> r.IntN(6)),
					modseq: r.Uint64() >> (1 + r.IntN(63)), keywords: r.Uint32() >> (16 + r.IntN(17)),
				})
			}
			if r.IntN(300) == 0 {
				break
			}
		}
		if len(list) == 0 {
			continue
		}
		c, rest, err := decodeChunk(append(newChunk(list).appendBinary(nil), 9))
		if err != nil || len(rest) != 1 {
			t.Fatal(err, rest)
		}
		s := slot{7, 0, c}
		for i := range list {
			if s.entry(i) != list[i] {
				t.Fatalf("%d: %+v instead of %+v", i, s.entry(i), list[i])
			}
			if at, found := c.searchUID(min(i, 5), list[i].uid&chunkMask); !found || at != i {
				t.Fatalf("%d is found at %d, %v", i, at, found)
			}
		}
		replaced(t, r, s, list)
	}
}

// replaced changes some messages of a chunk repeatedly.
func replaced(t *testing.T, r *rand.Rand, s slot, list []entry) {
	t.Helper()
	for range 5 {
		want := slices.Clone(list)
		var put []entry
		for i := range want {
			if e := &want[i]; r.IntN(10) == 0 {
				e.flags = Flags(r.IntN(int(AllFlags) + 1))
				e.modseq += r.Uint64() >> (1 + r.IntN(63)) / 2
				if r.IntN(2) == 0 {
					e.keywords = r.Uint32() >> r.IntN(33)
				}
				put = append(put, *e)
			}
		}
		c := s.withReplaced(put)
		packed := newChunk(want)
		if c.maxModSeq < packed.maxModSeq || c.anyFlags != packed.anyFlags || c.allFlags != packed.allFlags || c.len() != packed.len() {
			t.Fatalf("newest %d, some %b, every %b, %d messages instead of %d, %b, %b, %d",
				c.maxModSeq, c.anyFlags, c.allFlags, c.len(), packed.maxModSeq, packed.anyFlags, packed.allFlags, packed.len())
		}
		now := slot{s.key, 0, c}
		for i := range want {
			if now.entry(i) != want[i] || s.entry(i) != list[i] {
				t.Fatalf("%d: %+v instead of %+v, and %+v that was %+v", i, now.entry(i), want[i], s.entry(i), list[i])
			}
		}
		s, list = now, want
	}
	if len(list) <= chunkMask {
		missing := list[0].uid
		for i := 0; i < len(list) && list[i].uid == missing; i++ {
			missing++
		}
		if missing>>chunkBits == s.key && s.withReplaced([]entry{list[0], {uid: missing}}) != nil {
			t.Fatal("a message that is not there was replaced")
		}
	}
}
