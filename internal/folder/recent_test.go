// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// If sessions start while messages arrive and are reported to others, each message is recent to one
// session.
func TestRecentToOne(t *testing.T) {
	each(t, func(h *fixture) {
		const rounds = 60
		var mu sync.Mutex
		recent := map[uint32]int{}
		claim := func(v *View) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range v.recent {
				for uid := r.Lo; uid <= r.Hi; uid++ {
					recent[uid]++
				}
			}
			v.Close()
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range rounds {
					_, _, err := h.Append(h.ctx(), h.box, Inbox, h.upload("x", 0))
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				for range rounds {
					v, err := h.Open(h.ctx(), h.box, Inbox, false)
					if err != nil {
						t.Error(err)
						return
					}
					for range 2 {
						if _, err := v.Sync(h.ctx(), true); err != nil {
							t.Error(err)
						}
					}
					claim(v)
				}
			})
		}
		all.Wait()
		last, err := h.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		claim(last)
		for uid := uint32(1); uid <= 3*rounds; uid++ {
			if recent[uid] != 1 {
				t.Errorf("message %d was recent to %d sessions", uid, recent[uid])
			}
		}
	})
}

// A folder with new mail opens even if nothing can be written.
func TestRecentNotNoted(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 3)
		if h.db.Engine() == db.SQLite {
			dbtest.Exec(h, h.db, db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON folder BEGIN SELECT RAISE(ABORT, 'full'); END").With())
		} else {
			dbtest.Exec(h, h.db, db.SQL("CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''53100''; END'").With(),
				db.SQL("CREATE TRIGGER no_room BEFORE UPDATE ON folder EXECUTE FUNCTION no_room()").With())
		}
		v := h.view(Inbox)
		if n := v.Recent(); v.Len() != 3 || n != 3 {
			t.Errorf("of %d messages %d are recent", v.Len(), n)
		}
		if n := h.view(Inbox).Recent(); n != 0 {
			t.Errorf("to a second session %d are", n)
		}
	})
}
