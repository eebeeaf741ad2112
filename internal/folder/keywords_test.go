// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// A view that nobody has open is dropped before its keywords take much memory.
func TestKeywordsOfIdleView(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 1)
		v := h.view(Inbox)
		before := v.shared.memoryBytes()
		v.shared.keywords.ID(strings.Repeat("w", 10_000))
		if grown := v.shared.memoryBytes() - before; grown < 10_000 {
			t.Errorf("the view weighs %d bytes more", grown)
		}
	})
}

// Messages with more different keywords than a node can hold keep them, and take no more memory.
func TestKeywordsUncounted(t *testing.T) {
	each(t, func(h *fixture) {
		v := h.view(Inbox)
		table := v.shared.keywords
		for size := 1 << 16; size > 0; size /= 2 { // no space is left, not even for a small set
			for n := 0; table.ID(fmt.Sprintf("%0*d", size, n)) != snapshot.OverflowKeywords; n++ {
			}
		}
		_, uids, err := h.Append(h.ctx(), h.box, Inbox, h.upload(mail("one", "Hello."), 0, "late"))
		h.must(err)
		h.must(v.shared.refresh(h.ctx(), true))
		h.sync(v, true)
		if table.MemoryBytes() > 32<<20 {
			t.Errorf("%d bytes of keywords", table.MemoryBytes())
		}
		for _, c := range []FlagUpdate{{Op: RemoveFlags, Keywords: []string{"late"}}, {Op: AddFlags, Keywords: []string{"new"}}} {
			if _, _, err := v.UpdateFlags(h.ctx(), uids, c); !fault.Is(err, fault.RateLimited) {
				t.Errorf("got %v", err)
			}
		}
		changed, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		h.must(v.FillKeywords(h.ctx(), changed))
		told := func(what string, c FlagChange) { h.expect(what, fmt.Sprint(c.Keywords), "[late]") }
		told("STORE", changed[0])
		_, more, err := h.Append(h.ctx(), h.box, Inbox, h.upload(mail("two", "Hello."), 0))
		h.must(err)
		h.sync(v, true)
		for _, want := range []FetchFields{0, FetchDates, FetchContent} {
			h.must(v.Fetch(h.ctx(), append(uids, more...), want, func(r *MessageRow) error {
				if r.UID == uids[0] {
					told("FETCH", r.FlagChange)
				} else if r.Keywords != nil {
					t.Errorf("the other message has %v", r.Keywords)
				}
				return nil
			}))
		}
		v.shared.mu.Lock()
		if v.shared.isSavable() {
			t.Error("the view may be stored without the keywords")
		}
		v.shared.mu.Unlock()
		other, err := h.newFolders(h.db, nil, Options{}).Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		defer other.Close()
		h.expect("with a table of its own", other.show(), "1:1S[late] 2:2")
		_, _, err = other.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Keywords: []string{"then"}})
		h.must(err)
		h.must(v.shared.refresh(h.ctx(), true))
		c := h.sync(v, true)
		h.must(v.FillKeywords(h.ctx(), c.Flags))
		h.expect("Sync", fmt.Sprint(c.Flags[0].Keywords), "[late then]")
		_, _, err = other.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: RemoveFlags, Keywords: []string{"then"}})
		h.must(err)
		changed, _, err = v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Flagged})
		h.must(err)
		if !changed[0].ChangedByOthers {
			t.Error("STORE does not say that others changed the keywords")
		}
		_, _, err = v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: ReplaceFlags})
		h.must(err)
		h.expect("replaced", v.show(), "1:1 2:2")
	})
}
