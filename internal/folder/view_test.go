// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

func TestTwoSessions(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 5)
		a, b := h.view(Inbox), h.view(Inbox)
		h.expect("a", a.show(), "1:1 2:2 3:3 4:4 5:5")
		if a.Recent() != 5 || b.Recent() != 0 {
			t.Errorf("recent to a %d, to b %d", a.Recent(), b.Recent())
		}

		changed, failed, err := a.UpdateFlags(h.ctx(), numbers(2, 4), FlagUpdate{Op: AddFlags, Flags: Seen | Deleted, Keywords: []string{"work"}})
		h.must(err)
		if len(changed) != 2 || len(failed) != 0 || changed[1].Seq != 4 || changed[1].Flags != Seen|Deleted|Recent {
			t.Errorf("changed %+v, failed %v", changed, failed)
		}
		if c := h.sync(a, false); len(c.Flags) > 0 {
			t.Errorf("a is told of its own change: %+v", c.Flags)
		}
		if c := h.sync(b, false); len(c.Flags) != 2 || c.Flags[0].UID != 2 || c.Flags[0].Keywords[0] != "work" {
			t.Errorf("b is told %+v", c.Flags)
		}

		uids, err := a.Expunge(h.ctx(), nil)
		h.must(err)
		h.expect("expunged", fmt.Sprint(uids), "[2 4]")
		h.deliver("new")
		c := h.sync(b, false)
		if len(c.Expunged) > 0 || !c.HasNewMessages || c.Exists != 6 || c.Recent != 1 {
			t.Errorf("without expunges b is told %+v", c)
		}
		h.expect("b", b.show(), "1:1 2:2SD[work] 3:3 4:4SD[work] 5:5 6:6")
		c = h.sync(b, true)
		if fmt.Sprint(c.Expunged) != "[4 2]" || c.HasNewMessages || c.Exists != 4 {
			t.Errorf("with expunges b is told %+v", c)
		}
		h.expect("b", b.show(), "1:1 2:3 3:5 4:6")
		if c := h.sync(a, true); c.Exists != 4 || c.Recent != 3 {
			t.Errorf("a is told %+v", c)
		}
		h.checkCounts()
	})
}

// A session whose own silent change meets a change that it was not told of must still be told,
// including what it stored. It knows the result even if the message is expunged before the next
// sync.
func TestStoreOverUnseenChange(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 2)
		a, b := h.view(Inbox), h.view(Inbox)
		_, _, err := a.UpdateFlags(h.ctx(), numbers(1, 2), FlagUpdate{Op: AddFlags, Flags: Flagged})
		h.must(err)
		changed, _, err := b.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		if changed[0].Flags != Seen|Flagged || !changed[0].ChangedByOthers {
			t.Errorf("changed %+v", changed)
		}
		c := h.sync(b, false)
		if len(c.Flags) != 1 || c.Flags[0].UID != 2 || c.Flags[0].Flags != Flagged {
			t.Errorf("b is told %+v", c.Flags)
		}
		changed, _, err = b.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: ReplaceFlags, Flags: Draft})
		h.must(err)
		if c := h.sync(b, false); len(c.Flags) != 0 || changed[0].Flags != Draft || changed[0].ChangedByOthers {
			t.Errorf("b stored %+v and is told %+v", changed, c.Flags)
		}
		_, _, err = a.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Flags: Deleted, Keywords: []string{"word"}})
		h.must(err)
		changed, _, err = b.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Flags: Answered})
		h.must(err)
		_, err = a.Expunge(h.ctx(), nil)
		h.must(err)
		h.sync(b, false)
		h.must(b.Fetch(h.ctx(), numbers(1), 0, func(r *MessageRow) error {
			if r.Flags != changed[0].Flags || r.ModSeq != changed[0].ModSeq || len(r.Keywords) != 1 {
				t.Errorf("b was told %+v, and fetches %+v", changed[0], r.FlagChange)
			}
			return nil
		}))
	})
}

var moveChange = db.SQL(`UPDATE folder_change SET modseq = $3 WHERE folder = $1 AND modseq = $2`)

// A message that is expunged after the log is read and before its flags are read is gone. With its
// old flags the view would show an outdated state.
func TestExpungedWhileRead(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		h.fill(Inbox, 3)
		here := h.view(Inbox)
		there, err := h.newFolders(d, node, Options{}).Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer there.Close()
		_, _, err = there.UpdateFlags(h.ctx(), numbers(1, 2), FlagUpdate{Op: AddFlags, Flags: Flagged | Deleted})
		h.must(err)
		_, err = there.Expunge(h.ctx(), numbers(2))
		h.must(err)
		row, err := readFolder(h.ctx(), d, folderByIDQuery.With(here.row.ID))
		h.must(err)
		expunged := int64(row.changeModSeq)
		row.changeModSeq-- // the log ends there too
		dbtest.Exec(t, d, moveChange.With(row.ID, expunged, 0))
		here.shared.refreshMu.Lock()
		err = here.shared.applyChanges(h.ctx(), row)
		here.shared.refreshMu.Unlock()
		h.must(err)
		if c := h.sync(here, true); fmt.Sprint(c.Vanished) != "[2]" || len(c.Flags) != 1 || c.Flags[0].UID != 1 {
			t.Errorf("told %+v", c)
		}
		dbtest.Exec(t, d, moveChange.With(row.ID, 0, expunged))
		h.must(here.shared.refresh(h.ctx(), true))
		if c := h.sync(here, true); len(c.Vanished)+len(c.Flags) > 0 || here.shared.changeModSeq != uint64(expunged) {
			t.Errorf("told %+v once more", c)
		}
	})
}

// A client that knows a mod-sequence has been told of all changes up to it, even while another node
// continues: it resumes from there (RFC 7162 §3.2.5).
func TestNothingTooEarly(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		h.fill(Inbox, 1)
		h.Folders = h.newFolders(d, node, Options{PollInterval: -1})
		here := h.view(Inbox)
		other := h.newFolders(d, node, Options{PollInterval: -1})
		there, err := other.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer there.Close()
		news := make([]Upload, 200)
		for i := range news {
			news[i] = h.upload(mail(fmt.Sprint(i), "Hello."), 0)
		}
		done := make(chan error, 1)
		go func() {
			done <- func() error {
				for i, u := range news {
					_, uids, err := other.Append(h.ctx(), h.box, Inbox, u)
					for _, uid := range append(numbers(1), uids...) {
						if err == nil {
							_, err = there.Sync(h.ctx(), true)
						}
						if err == nil {
							_, _, err = there.UpdateFlags(h.ctx(), numbers(uid), FlagUpdate{Op: []FlagOp{AddFlags, RemoveFlags}[i%2], Flags: Flagged})
						}
					}
					if err != nil {
						return err
					}
				}
				return nil
			}()
		}()
		for early, going := 0, true; going && early == 0; {
			select {
			case err := <-done:
				h.must(err)
				going = false
			default:
			}
			h.sync(here, true)
			for _, e := range here.snap.Between(0, here.snap.Len()) {
				if e.ModSeq > here.row.ModSeq {
					early++
					t.Errorf("UID %d is known at mod-sequence %d, and the folder up to %d", e.UID, e.ModSeq, here.row.ModSeq)
				}
			}
		}
	})
}

// Expunge removes messages that another node has marked, even if this node has not been notified
// yet.
func TestExpungeUnheard(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		uids := h.fill(Inbox, 3)
		h.Folders = h.newFolders(d, node, Options{PollInterval: time.Hour})
		here := h.view(Inbox)
		there, err := h.newFolders(d, node, Options{}).Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer there.Close()
		for n, v := range []*View{here, there} {
			_, _, err = v.UpdateFlags(h.ctx(), uids[n:n+1], FlagUpdate{Op: AddFlags, Flags: Deleted})
			h.must(err)
			h.sync(here, false)
		}
		gone, err := here.Expunge(h.ctx(), nil)
		h.must(err)
		h.expect("expunged", fmt.Sprint(gone), "[1 2]")
	})
}

// After its own change a node knows the folder's row without reading it, and wakes all others. It
// does not count changes that it does not know yet.
func TestOwnChange(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		uids := h.fill(Inbox, 3)
		other := h.Folders
		h.Folders = h.newFolders(d, node, Options{PollInterval: time.Hour})
		v, second := h.view(Inbox), h.view(Inbox)
		known := func(what string) {
			h.sync(v, true)
			if got, want := v.shared.row, h.status(Inbox); got != want {
				t.Errorf("after %s the node takes the row for\n%+v; it is\n%+v", what, got, want)
			}
			select {
			case <-v.shared.sub.C:
				t.Errorf("after %s the node is to read what it knows", what)
			default:
			}
			<-second.Changed()
		}
		h.sync(v, true)
		h.sync(second, true)
		for _, change := range []FlagUpdate{{Op: AddFlags, Flags: Seen | Deleted}, {Op: RemoveFlags, Flags: Seen}} {
			_, _, err := v.UpdateFlags(h.ctx(), uids[:2], change)
			h.must(err)
			known("STORE")
		}
		_, err := v.Expunge(h.ctx(), uids[:1])
		h.must(err)
		known("EXPUNGE")

		u := h.upload(mail("unheard", ""), 0)
		filed, err := other.Deliver(h.ctx(), Delivery{Mailbox: h.box, Blob: u.Blob, Metadata: u.Metadata})
		h.must(err)
		_, _, err = v.UpdateFlags(h.ctx(), uids[2:], FlagUpdate{Op: AddFlags, Flags: Flagged})
		h.must(err)
		if c := h.sync(v, true); c.HasNewMessages || v.Folder().ModSeq >= filed.ModSeq {
			t.Errorf("told %+v and mod-sequence %d; %d has arrived unheard", c, v.Folder().ModSeq, filed.ModSeq)
		}
		h.wakeFolder(v.shared.id)
		if c := h.sync(v, true); !c.HasNewMessages {
			t.Errorf("told %+v of what has arrived", c)
		}
		known("what was unheard")
	})
}

// Messages that Fetch missed keep their numbers, even while the node does not know that they are
// gone.
func TestMissedByFetch(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		uids := h.fill(Inbox, 2)
		h.Folders = h.newFolders(d, node, Options{PollInterval: time.Hour})
		here := h.view(Inbox)
		there, err := h.newFolders(d, node, Options{}).Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer there.Close()
		_, _, err = there.UpdateFlags(h.ctx(), uids[:1], FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = there.Expunge(h.ctx(), nil)
		h.must(err)
		found := 0
		h.must(here.Fetch(h.ctx(), uids, FetchEnvelope, func(*MessageRow) error { found++; return nil }))
		if c := h.sync(here, false); found != 1 || !c.ExpungePending || c.Exists != 2 {
			t.Errorf("found %v, told %+v", found, c)
		}
		if c := h.sync(here, false); c.ExpungePending {
			t.Errorf("told %+v once more", c)
		}
	})
}

func TestUnchangedSince(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 3)
		v := h.view(Inbox)
		first, _, err := v.UpdateFlags(h.ctx(), numbers(2), FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		since := v.snap.At(0).ModSeq
		changed, failed, err := v.UpdateFlags(h.ctx(), numbers(1, 2, 3),
			FlagUpdate{Op: AddFlags, Flags: Flagged, HasUnchangedSince: true, UnchangedSince: since})
		h.must(err)
		if len(changed) != 2 || fmt.Sprint(failed) != "[2]" || changed[0].ModSeq <= first[0].ModSeq {
			t.Errorf("changed %+v, failed %v", changed, failed)
		}
		h.expect("after", v.show(), "1:1F 2:2S 3:3F")
		// Messages that don't change keep their mod-sequence.
		same, _, err := v.UpdateFlags(h.ctx(), numbers(1, 2, 3), FlagUpdate{Op: RemoveFlags, Flags: Draft})
		h.must(err)
		if len(same) != 3 || same[0].ModSeq != changed[0].ModSeq {
			t.Errorf("changed %+v", same)
		}
		if got := v.ChangedSince(numbers(1, 2, 3), first[0].ModSeq); fmt.Sprint(got) != "[1 3]" {
			t.Errorf("changed since %d: %v", first[0].ModSeq, got)
		}
	})
}

func TestKeywords(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 3)
		v := h.view(Inbox)
		store := func(op FlagOp, uids []uint32, words ...string) {
			t.Helper()
			_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: op, Keywords: words})
			h.must(err)
		}
		store(AddFlags, numbers(1, 2), "Work", "$Forwarded")
		store(AddFlags, numbers(2, 3), "WORK", "home")
		store(RemoveFlags, numbers(1), "work")
		h.expect("after", v.show(), "1:1[$Forwarded] 2:2[$Forwarded Work home] 3:3[Work home]")
		h.expect("all", fmt.Sprint(v.Keywords()), "[$Forwarded Work home]")
		store(ReplaceFlags, numbers(2, 3), "home")
		h.expect("after", v.show(), "1:1[$Forwarded] 2:2[home] 3:3[home]")
		for _, bad := range []string{"", "two words", `\Seen`, "a\x00", "ü", "x]"} {
			if _, _, err := v.UpdateFlags(h.ctx(), numbers(1), FlagUpdate{Op: AddFlags, Keywords: []string{bad}}); !fault.Is(err, fault.Invalid) {
				t.Errorf("keyword %q: %v", bad, err)
			}
		}
		// Another store reads the same from the rows.
		other := h.newFolders(h.db, nil, Options{})
		w, err := other.Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		defer w.Close()
		h.expect("read", w.show(), v.show())
	})
}

func TestRecent(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 2)
		examined, err := h.Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		if n := examined.Recent(); n != 2 {
			t.Errorf("EXAMINE shows %d recent", n)
		}
		if n := h.recent(Inbox); n != 2 {
			t.Errorf("STATUS shows %d recent", n)
		}
		a, err := h.Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		if n := a.Recent(); n != 2 {
			t.Errorf("SELECT shows %d recent", n)
		}
		h.deliver("new")
		if c := h.sync(examined, true); c.Recent != 3 {
			t.Errorf("EXAMINE shows %d recent", c.Recent)
		}
		if c := h.sync(a, true); c.Recent != 3 {
			t.Errorf("the session is told of %d recent", c.Recent)
		}
		a.Close()
		examined.Close()
		b := h.view(Inbox)
		if n, f := b.Recent(), h.status(Inbox); n != 0 || h.recent(Inbox) != 0 || f.recentFrom != 4 {
			t.Errorf("the next session finds %d recent, STATUS %+v", n, f)
		}
		b.Close()
		h.deliver("later")
		if n := h.recent(Inbox); n != 1 {
			t.Errorf("STATUS shows %d recent of those that came since", n)
		}
	})
}

func TestResolve(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 9)
		v := h.view(Inbox)
		_, _, err := v.UpdateFlags(h.ctx(), numbers(2, 3, 9), FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), numbers(2, 3, 4))
		h.must(err)
		h.sync(v, true) // 1 4 5 6 7 8 9
		for _, c := range []struct {
			set   []Range
			byUID bool
			want  string
		}{
			{[]Range{{Lo: 1, Hi: Star}}, false, "[1 4 5 6 7 8 9]"},
			{[]Range{{Lo: 3, Hi: 2}, {Lo: 2, Hi: 2}}, false, "[4 5]"},
			{[]Range{{Lo: 6, Hi: 20}}, false, "[8 9]"},
			{[]Range{{Lo: 8, Hi: 20}}, false, "[]"},
			{[]Range{{Lo: Star, Hi: Star}}, false, "[9]"},
			{[]Range{{Lo: 1, Hi: 4}}, true, "[1 4]"},
			{[]Range{{Lo: 2, Hi: 3}}, true, "[]"},
			{[]Range{{Lo: 100, Hi: Star}}, true, "[9]"},
			{[]Range{{Lo: 8, Hi: Star}, {Lo: 1, Hi: 5}}, true, "[1 4 5 8 9]"},
		} {
			if got := fmt.Sprint(v.Resolve(c.set, c.byUID)); got != c.want {
				t.Errorf("%v by UID %v: %s, want %s", c.set, c.byUID, got, c.want)
			}
		}
		if v.UID(2) != 4 || v.UID(8) != 0 || v.UID(0) != 0 || v.Seq(4) != 2 || v.Seq(2) != 0 || v.FirstUnseen() != 1 {
			t.Error("sequence numbers and UIDs do not match")
		}
	})
}

func TestWaitWakes(t *testing.T) {
	each(t, func(h *fixture) {
		v := h.view(Inbox)
		h.sync(v, true)
		h.deliver("new")
		<-v.Changed()
		if c := h.sync(v, true); c.Exists != 1 {
			t.Errorf("told %+v", c)
		}
		h.delete(h.Folders, "Archive")
		w := h.view("Junk")
		h.delete(h.Folders, "Junk")
		<-w.Changed()
		if _, err := w.Sync(h.ctx(), true); !fault.Is(err, fault.NotFound) {
			t.Errorf("a deleted folder gives %v", err)
		}
	})
}

var lastChange = db.SQL(`SELECT uids FROM folder_change ORDER BY modseq DESC LIMIT 1`)

// A change of scattered messages takes little space in the log, and other nodes still learn of it.
func TestScatteredChange(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 2*maxLogRanges+600)
		v := h.view(Inbox)
		other, err := h.newFolders(h.db, nil, Options{}).Open(h.ctx(), h.box, Inbox, false)
		h.must(err)
		defer other.Close()
		var some []uint32
		for i := 0; i < len(uids); i += 2 {
			some = append(some, uids[i])
		}
		_, _, err = v.UpdateFlags(h.ctx(), some, FlagUpdate{Op: AddFlags, Flags: Flagged})
		h.must(err)
		var text string
		h.must(h.db.One(h.ctx(), lastChange.With(), &text))
		if n := len(strings.Split(text, ",")); n > maxLogRanges {
			t.Errorf("the log has %d ranges", n)
		}
		_, _, err = v.UpdateFlags(h.ctx(), uids[:5], FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), nil)
		h.must(err)
		h.must(other.shared.refresh(h.ctx(), true))
		h.must(func() error { _, err := other.Sync(h.ctx(), true); return err }())
		h.sync(v, true)
		h.expect("the other node's view", other.show(), v.show())
	})
}

func TestCoarse(t *testing.T) {
	ranges := []Range{{Lo: 1, Hi: 2}, {Lo: 4, Hi: 4}, {Lo: 20, Hi: 30}, {Lo: 33, Hi: 34}, {Lo: 1 << 20, Hi: 1 << 21}, {Lo: math.MaxUint32, Hi: math.MaxUint32}}
	for most, want := range []string{
		1: "1:4294967295", 2: "1:2097152,4294967295", 3: "1:34,1048576:2097152,4294967295",
		4: "1:4,20:34,1048576:2097152,4294967295", 6: "1:2,4,20:30,33:34,1048576:2097152,4294967295",
	} {
		if want == "" {
			continue
		}
		if got := snapshot.FormatRanges(snapshot.CoarsenRanges(ranges, most)); got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
}
