// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// A signal of another node may get lost; Run notices all the same.
func TestRunNoticesLostSignals(t *testing.T) {
	each(t, func(h *house) {
		ctx, end := context.WithCancel(h.ctx())
		ended := make(chan error)
		s := h.newStore(h.db, nil, Options{Poll: time.Millisecond})
		go func() { ended <- s.Run(ctx) }()
		if h.db.Engine() == db.Postgres { // with SQLite there is one node
			v, err := s.Open(h.ctx(), h.box, Inbox, false)
			h.must(err)
			defer v.Close()
			h.deliver("new") // by a store whose signals don't reach s
			<-v.Wait()
			if c := h.sync(v, true); c.Exists != 1 {
				t.Errorf("told %+v", c)
			}
		}
		end()
		h.must(<-ended)
	})
}

// Views that no session has stay while there is room, so that coming back
// reads nothing but the row.
func TestIdleViews(t *testing.T) {
	each(t, func(h *house) {
		h.fill(Inbox, 10)
		h.fill("Sent", 10)
		s := h.newStore(h.db, nil, Options{Keep: 4_000})
		visit := func(name string) *shared {
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
		s.forgetIdle(s.Now().Add(time.Hour))
		if len(s.open) != 0 || len(s.idle) != 0 {
			t.Error("idle views were kept for too long")
		}
	})
}
