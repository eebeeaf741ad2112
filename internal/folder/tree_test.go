// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

func (h *fixture) names() string {
	h.Helper()
	folders, err := h.List(h.ctx(), h.box)
	h.must(err)
	var names []string
	for _, f := range folders {
		names = append(names, f.Name+f.SpecialUse)
	}
	return strings.Join(names, " ")
}

func TestTree(t *testing.T) {
	each(t, func(h *fixture) {
		const standard = `Archive\Archive Drafts\Drafts INBOX Junk\Junk Sent\Sent Trash\Trash`
		h.expect("provisioned", h.names(), standard)
		create := func(name string, want fault.Kind) {
			t.Helper()
			_, err := h.Create(h.ctx(), h.box, name)
			if want == 0 && err != nil || want != 0 && !fault.Is(err, want) {
				t.Errorf("creating %.20q: %v", name, err)
			}
		}
		create("a/b/c", 0)
		create("a/b", fault.Conflict)
		create("iNboX", fault.Conflict)
		create("inbox/x", 0)
		create("Cafe\u0301", 0)
		create("Caf\u00e9", fault.Conflict)
		for _, bad := range []string{"", "/", "a/", "/a", "a//b", "a\x00b", "a\nb", "a\xffb", strings.Repeat("x", 256), strings.Repeat("x/", 20) + "x"} {
			create(bad, fault.Invalid)
		}
		h.expect("created", h.names(), `Archive\Archive Café Drafts\Drafts INBOX INBOX/x Junk\Junk Sent\Sent Trash\Trash a a/b a/b/c`)

		h.delete(h.Folders, "a/b")
		for _, name := range []string{"INBOX", "inbox", "a/b"} {
			if _, err := h.Delete(h.ctx(), h.box, name); !fault.Is(err, fault.Invalid) {
				t.Errorf("deleting %s: %v", name, err)
			}
		}
		if _, err := h.Delete(h.ctx(), h.box, "none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("deleting none: %v", err)
		}
		rename := func(from, to string, want fault.Kind) {
			t.Helper()
			if err := h.Rename(h.ctx(), h.box, from, to); want == 0 && err != nil || want != 0 && !fault.Is(err, want) {
				t.Errorf("renaming %s to %.20s: %v", from, to, err)
			}
		}
		rename("a", "a/d", fault.Invalid)
		rename("none", "x", fault.NotFound)
		rename("a", "Junk", fault.Conflict)
		rename("a", strings.Repeat("x", 254), fault.Invalid)
		rename("a", "d/e", 0)
		rename("d/e/b", "f", 0) // has only children
		rename("Junk", "Spam", 0)
		h.expect("renamed", h.names(), `Archive\Archive Café Drafts\Drafts INBOX INBOX/x Sent\Sent Spam\Junk Trash\Trash d d/e f/c`)
		if _, err := h.CreateSpecial(h.ctx(), h.box, "Junk", Junk); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second Junk: %v", err)
		}
		h.delete(h.Folders, "Spam")
		if f, err := h.CreateSpecial(h.ctx(), h.box, "Junk", Junk); err != nil || f.SpecialUse != Junk {
			t.Errorf("a new Junk: %+v, %v", f, err)
		}
	})
}

func TestRenameInbox(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 4)
		v := h.view(Inbox)
		h.must(h.Rename(h.ctx(), h.box, "inbox", "old/mail"))
		if c := h.sync(v, true); c.Exists != 0 || len(c.Expunged) != 4 {
			t.Errorf("INBOX shows %+v", c)
		}
		h.expect("moved", h.subjects(h.view("old/mail"), numbers(1, 2, 3, 4)), "4 3 2 1")
		h.deliver("new")
		if c := h.sync(v, true); c.Exists != 1 {
			t.Errorf("INBOX shows %+v", c)
		}
		h.checkCounts()
	})
}

// Names may be reused, UIDVALIDITY never, not even when the clock stands still.
func TestUIDValidity(t *testing.T) {
	each(t, func(h *fixture) {
		seen := map[uint32]bool{}
		last := uint32(0)
		for i := range 10 {
			f, err := h.Create(h.ctx(), h.box, "x")
			h.must(err)
			if seen[f.UIDValidity] || f.UIDValidity <= last {
				t.Errorf("UIDVALIDITY %d after %d", f.UIDValidity, last)
			}
			seen[f.UIDValidity], last = true, f.UIDValidity
			if i%2 == 0 {
				h.must(h.Rename(h.ctx(), h.box, "x", fmt.Sprint("y", i)))
				h.delete(h.Folders, fmt.Sprint("y", i))
			} else {
				h.delete(h.Folders, "x")
			}
			_, err = h.CollectGarbage(h.ctx())
			h.must(err)
		}
	})
}

func TestSubscriptions(t *testing.T) {
	each(t, func(h *fixture) {
		list := func() string {
			names, err := h.Subscriptions(h.ctx(), h.box)
			h.must(err)
			return strings.Join(names, " ")
		}
		h.expect("provisioned", list(), "Archive Drafts INBOX Junk Sent Trash")
		for _, name := range []string{"none/x", "none/x", "inbox"} {
			h.must(h.Subscribe(h.ctx(), h.box, name))
		}
		for _, name := range []string{"Junk", "Junk", "Trash"} {
			h.must(h.Unsubscribe(h.ctx(), h.box, name))
		}
		h.expect("changed", list(), "Archive Drafts INBOX Sent none/x")
	})
}

func (h *fixture) stored() (messages, blobs, expunged int) {
	h.Helper()
	h.must(h.db.One(h.ctx(), countBlobs.With(), &messages, &blobs, &expunged))
	return messages, blobs, expunged
}

func TestCollect(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 150)
		v := h.view(Inbox)
		_, err := v.Copy(h.ctx(), uids[:10], "Archive")
		h.must(err)
		_, _, err = v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), nil)
		h.must(err)
		collect := func(deleted, messages, blobs, expunged int) {
			t.Helper()
			n, err := h.CollectGarbage(h.ctx())
			h.must(err)
			m, b, e := h.stored()
			if n != deleted || m != messages || b != blobs || e != expunged {
				t.Errorf("collected %d, left %d messages, %d blobs, %d expunged", n, m, b, e)
			}
		}
		collect(0, 150, 150, 150)
		h.clock.Add(3601)
		collect(140, 10, 10, 0)
		// The last folder that shows a message is deleted.
		h.delete(h.Folders, "Archive")
		h.checkCounts()
		collect(0, 10, 10, 10)
		h.clock.Add(3601)
		collect(10, 0, 0, 0)
		collect(0, 0, 0, 0)

		h.fill(Inbox, 3)
		h.must(h.PurgeMailbox(h.ctx(), h.box))
		h.must(h.PurgeMailbox(h.ctx(), h.box))
		h.expect("after Empty", h.names(), "")
		h.clock.Add(passed)
		collect(3, 0, 0, 0)
		h.expectDropped(0)
	})
}

var countDropped = db.SQL(`SELECT COUNT(*) FROM deleted_folder`)

func (h *fixture) expectDropped(want int) {
	h.Helper()
	n := 0
	h.must(h.db.One(h.ctx(), countDropped.With(), &n))
	if n != want {
		h.Errorf("%d deleted folders are left, want %d", n, want)
	}
}

// passed is the number of seconds after which all clocks have passed a time.
const passed = 2*24*60*60 + 60

// UIDVALIDITYs that are ahead of the clock, as after a restore for years, leave one row to
// remember, not one for each deleted folder.
func TestDroppedAheadOfTheClock(t *testing.T) {
	each(t, func(h *fixture) {
		for range 10 {
			_, err := h.Create(h.ctx(), h.box, "x")
			h.must(err)
			h.delete(h.Folders, "x")
		}
		_, err := h.CollectGarbage(h.ctx())
		h.must(err)
		h.expectDropped(1)
		err = h.db.One(h.ctx(), nextDroppedFolderQuery.With(0, h.Now().Unix()), new(db.ID), new(db.ID))
		if !errors.Is(err, db.ErrNoRow) {
			t.Errorf("there is still something to do about it, each minute: %v", err)
		}
		h.clock.Add(passed)
		_, err = h.CollectGarbage(h.ctx())
		h.must(err)
		h.expectDropped(0)
	})
}

// A folder that is deleted on one node and created again on another, whose clock is behind, gets a
// higher UIDVALIDITY.
func TestUIDValidityByOtherClocks(t *testing.T) {
	each(t, func(h *fixture) {
		h.clock.Store(3600)
		first, err := h.Create(h.ctx(), h.box, "x")
		h.must(err)
		h.delete(h.Folders, "x")
		h.clock.Add(60)
		_, err = h.CollectGarbage(h.ctx())
		h.must(err)
		h.clock.Store(0)
		second, err := h.Create(h.ctx(), h.box, "x")
		h.must(err)
		if second.UIDValidity <= first.UIDValidity {
			t.Errorf("UIDVALIDITY %d after %d", second.UIDValidity, first.UIDValidity)
		}
	})
}

func TestLogIsPruned(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 2)
		v := h.view(Inbox)
		dbtest.Exec(h, h.db, skipAhead.With(v.Folder().ID, logRetention*2-1))
		_, _, err := v.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		if f := h.status(Inbox); f.logLayer != logRetention || f.ModSeq != logRetention*2 {
			t.Errorf("the folder is %+v", f)
		}
		// An outdated view reloads all messages.
		other := h.newFolders(h.db, nil, Options{PollInterval: -1})
		w, err := other.Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		defer w.Close()
		w.shared.changeModSeq, w.shared.snap = 1, w.shared.snap.Apply(nil, numbers(1))
		_, _, err = v.UpdateFlags(h.ctx(), numbers(2), FlagUpdate{Op: AddFlags, Flags: Flagged})
		h.must(err)
		h.sync(w, true)
		h.expect("read anew", w.show(), "1:1S 2:2F")
	})
}

// The log is pruned even if a message arrives before each change, so that changes never have the
// mod-sequences at which it is pruned.
func TestLogIsPrunedBetweenArrivals(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 1)
		v := h.view(Inbox)
		dbtest.Exec(h, h.db, skipAhead.With(v.Folder().ID, logRetention*2-2))
		for _, flag := range []Flags{Seen, Flagged} {
			_, _, err := v.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Flags: flag})
			h.must(err)
			h.deliver("one")
		}
		if f := h.status(Inbox); f.logLayer != logRetention+1 || f.ModSeq != logRetention*2+2 {
			t.Errorf("the folder is %+v", f)
		}
	})
}

// Long entries push old ones out of the log sooner, so that moving scattered messages back and
// forth does not fill the disk.
func TestLongLogIsPruned(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 2_000)
		v := h.view(Inbox)
		behind, err := h.newFolders(h.db, nil, Options{PollInterval: -1}).Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		defer behind.Close()
		_, _, err = v.UpdateFlags(h.ctx(), uids[:1], FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		first := h.status(Inbox)
		dbtest.Exec(h, h.db, skipAhead.With(v.Folder().ID, logRetention))
		var some []uint32
		for i := 0; i < len(uids); i += 2 {
			some = append(some, uids[i])
		}
		_, err = v.Move(h.ctx(), some, Inbox)
		h.must(err)
		var text string
		h.must(h.db.One(h.ctx(), lastChange.With(), &text))
		f := h.status(Inbox)
		if f.ModSeq < logRetention+uint64(len(text))/logEntryBytes || f.logLayer < first.ModSeq {
			t.Errorf("an entry of %d bytes makes the folder %+v", len(text), f)
		}
		// A read that began before the pruning does not continue.
		if err := behind.shared.applyChanges(h.ctx(), first); !errors.Is(err, errLogPruned) {
			t.Errorf("the log without its beginning was read: %v", err)
		}
		_, err = behind.Sync(h.ctx(), true)
		h.must(err)
		h.sync(v, true)
		h.expect("the other node's view", behind.show(), v.show())
		gone, err := v.VanishedSince(h.ctx(), first.ModSeq, nil)
		h.must(err)
		if len(gone) != len(some) {
			t.Errorf("%d ranges are gone of %d", len(gone), len(some))
		}
	})
}

var skipAhead = db.SQL(`UPDATE folder SET modseq = $2 WHERE id = $1`)

// Concurrent clients can't exceed the limit of subscriptions.
func TestSubscriptionsAtOnce(t *testing.T) {
	each(t, func(h *fixture) {
		h.MaxFolders = 20 // so there may be 40 subscriptions
		var all sync.WaitGroup
		var made atomic.Int64
		for i := range 80 {
			all.Go(func() {
				switch err := h.Subscribe(h.ctx(), h.box, fmt.Sprintf("none/%d", i)); {
				case err == nil:
					made.Add(1)
				case !fault.Is(err, fault.RateLimited):
					h.Error(err)
				}
			})
		}
		all.Wait()
		names, err := h.Subscriptions(h.ctx(), h.box)
		h.must(err)
		if made.Load() != 34 || len(names) != 40 {
			h.Errorf("%d were made, there are %d", made.Load(), len(names))
		}
	})
}
