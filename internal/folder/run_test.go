// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

var storedUpTo = db.SQL(`SELECT v.changed_modseq, f.changed_modseq FROM folder_view v JOIN folder f ON f.id = v.folder WHERE v.folder = $1`)

// A signal of another node may get lost; Run still detects the change.
func TestRunNoticesLostSignals(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, end := context.WithCancel(h.ctx())
		ended := make(chan error)
		s := h.newFolders(h.db, nil, Options{PollInterval: time.Millisecond})
		go func() { ended <- s.Run(ctx) }()
		if h.db.Engine() == db.Postgres { // with SQLite there is one node
			v, err := s.Open(h.ctx(), h.box, Inbox, false)
			h.must(err)
			defer v.Close()
			h.deliver("new") // by a store whose signals don't reach s
			<-v.Changed()
			if c := h.sync(v, true); c.Exists != 1 {
				t.Errorf("told %+v", c)
			}
		}
		end()
		h.must(<-ended)
	})
}

// Open folders cost one statement for each poll on PostgreSQL, and sessions that have nothing to
// report cost none.
func TestPollIsBatched(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		views := []*View{h.view(Inbox)}
		for i := range 20 {
			name := fmt.Sprint(i)
			_, err := h.Create(h.ctx(), h.box, name)
			h.must(err)
			views = append(views, h.view(name))
		}
		h.clock.Add(3600)
		dbtest.Exec(t, d, hideFolders.With())
		for _, v := range views {
			h.sync(v, true)
		}
		dbtest.Exec(t, d, showFolders.With())
		if d.Engine() != db.Postgres {
			return
		}
		proxy := dbtest.StartProxy(t, url)
		h.DB, _ = leasetest.Open(t, proxy.URL)
		h.must(h.pollOpenFolders(h.ctx())) // a new connection has statements of its own
		before := proxy.Statements.Load()
		h.must(h.pollOpenFolders(h.ctx()))
		if n := proxy.Statements.Load() - before; n != 1 {
			t.Errorf("a poll of %d folders takes %d statements", len(views), n)
		}
	})
}

var (
	hideFolders = db.SQL(`ALTER TABLE folder RENAME TO hidden`)
	showFolders = db.SQL(`ALTER TABLE hidden RENAME TO folder`)
)

// Views without sessions stay while there is enough memory, so that opening the folder again reads
// only the row.
func TestIdleViews(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 10)
		h.fill("Sent", 10)
		s := h.newFolders(h.db, nil, Options{MaxIdleViewBytes: 4_000})
		visit := func(name string) *sharedView {
			v, err := s.Open(h.ctx(), h.box, name, true)
			h.must(err)
			defer v.Close()
			if v.Len() != 10 {
				t.Errorf("%s has %d messages", name, v.Len())
			}
			return v.shared
		}
		inbox := visit(Inbox)
		if visit(Inbox) != inbox {
			t.Error("an idle view was forgotten, though there is room")
		}
		visit("Sent")
		if len(s.open) != 1 || len(s.idle) != 1 || visit(Inbox) == inbox {
			t.Error("an idle view was kept, though there is no room")
		}
		s.evictExpired(s.Now().Add(time.Hour))
		if len(s.open) != 0 || len(s.idle) != 0 {
			t.Error("idle views were kept for too long")
		}
	})
}

// Run stores even small changes to large folders when it ends, so that the next start need not read
// them.
func TestRunStoresViewsAtItsEnd(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, minSavedMessages)
		s := h.newFolders(h.db, nil, Options{})
		v, err := s.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer v.Close()
		_, err = v.shared.save(h.ctx(), 1)
		h.must(err)
		for range maxUnsavedChanges / shutdownStaleDivisor {
			_, _, err = v.UpdateFlags(h.ctx(), numbers(1, 1), FlagUpdate{Op: AddFlags, Flags: Flagged})
			h.must(err)
			_, _, err = v.UpdateFlags(h.ctx(), numbers(1, 1), FlagUpdate{Op: RemoveFlags, Flags: Flagged})
			h.must(err)
		}
		ctx, end := context.WithCancel(h.ctx())
		end()
		h.must(s.Run(ctx))
		var stored, changed uint64
		h.must(h.db.One(h.ctx(), storedUpTo.With(v.shared.id), &stored, &changed))
		if stored != changed {
			t.Errorf("stored up to %d of %d", stored, changed)
		}
	})
}
