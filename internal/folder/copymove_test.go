// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

func TestDeliver(t *testing.T) {
	each(t, func(h *fixture) {
		other := h.newMailbox(1 << 30)
		u := h.upload(mail("one", strings.Repeat("x", 100_000)), 0)
		subscribe := func(b *db.Batch) { b.Queue(insertSubscriptionQuery.With(other, "also")) }
		filed, err := h.DeliverAll(h.ctx(), []Delivery{
			{Mailbox: other, SpecialUse: Junk, Blob: u.Blob, Metadata: u.Metadata, Jobs: []*db.Mutation{{Apply: subscribe}}},
			{Mailbox: h.box, Blob: u.Blob, Metadata: u.Metadata, Flags: Seen, Keywords: []string{"b", "a", "B"},
				NewEvent: func(f MessageRef) event.RecordParams {
					return event.RecordParams{Account: 1, Kind: event.InboundEmail, Data: map[string]any{"uid": f.UID}}
				}},
			{Mailbox: h.box, SpecialUse: Sent, Blob: u.Blob, Metadata: u.Metadata},
		})
		h.must(err)
		if filed[0].UID != 1 || filed[1].Folder != h.status(Inbox).ID || filed[2].Folder != h.status("Sent").ID {
			t.Errorf("filed %+v", filed)
		}
		h.expect("INBOX", h.view(Inbox).show(), "1:1S[a b]")
		var data string
		h.must(h.db.One(h.ctx(), readEvents.With(), &data))
		h.expect("event", data, `{"uid":1}`)
		names, err := h.Subscriptions(h.ctx(), other)
		h.must(err)
		if !slices.Contains(names, "also") {
			t.Errorf("subscribed to %v", names)
		}
		for _, f := range filed {
			r, err := h.OpenMessage(h.ctx(), f.Message)
			h.must(err)
			if r.Size() != u.Blob.Size {
				t.Errorf("%d bytes", r.Size())
			}
			h.must(r.Close())
		}
		h.checkCounts()

		// If one recipient has no folders, nobody gets the message.
		_, err = h.DeliverAll(h.ctx(), []Delivery{
			{Mailbox: h.box, Blob: u.Blob, Metadata: u.Metadata},
			{Mailbox: 77, Blob: u.Blob, Metadata: u.Metadata},
		})
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("a recipient without folders: %v", err)
		}
		_, err = h.Deliver(h.ctx(), Delivery{Mailbox: h.box, Blob: h.upload(mail("two", ""), 0).Blob,
			NewEvent: func(MessageRef) event.RecordParams { return event.RecordParams{Kind: event.Bounce, Data: func() {}} }})
		if err == nil {
			t.Error("an event that can't be written was")
		}
		h.checkCounts()
		if f := h.status(Inbox); f.Messages != 1 || f.UIDNext != 2 {
			t.Errorf("INBOX is %+v", f)
		}
		// Without the special folder, it goes to INBOX.
		h.delete(h.Folders, "Junk")
		f, err := h.Deliver(h.ctx(), Delivery{Mailbox: h.box, SpecialUse: Junk, Blob: h.upload(mail("three", ""), 0).Blob})
		h.must(err)
		if f.Folder != h.status(Inbox).ID {
			t.Error("Junk went elsewhere than to INBOX")
		}
	})
}

func TestAppendAndQuota(t *testing.T) {
	each(t, func(h *fixture) {
		dbtest.Exec(h, h.db, setQuota.With(h.box, 3*mailbox.CountedSize(int64(len(mail("1", "Hello."))))))
		uids := h.fill("Drafts", 2)
		full := func(err error) {
			t.Helper()
			if !fault.Is(err, fault.OverQuota) {
				t.Errorf("over quota: %v", err)
			}
			h.checkCounts()
		}
		_, _, err := h.Append(h.ctx(), h.box, "Drafts", h.upload(mail("3", "Hello."), 0), h.upload(mail("4", "Hello."), 0))
		full(err)
		v := h.view("Drafts")
		_, err = v.Copy(h.ctx(), uids, "Archive")
		full(err)
		c, err := v.Copy(h.ctx(), uids[:1], "archive")
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("copied to no folder: %+v, %v", c, err)
		}
		c, err = v.Copy(h.ctx(), uids[:1], "Archive")
		h.must(err)
		_, err = v.Move(h.ctx(), uids, "Trash")
		h.must(err)
		full(func() error { _, _, err := h.Append(h.ctx(), h.box, Inbox, h.upload("x\r\n\r\n", 0)); return err }())
		h.deliver("overrun") // a message that RCPT accepted is filed
		h.checkCounts()
		if _, _, err := h.Append(h.ctx(), h.box, "None", h.upload("x", 0)); !fault.Is(err, fault.NotFound) {
			t.Errorf("appended to no folder: %v", err)
		}
		if c.UIDValidity != h.status("Archive").UIDValidity {
			t.Errorf("copied %+v", c)
		}
	})
}

func TestCopyAndMove(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 40)
		h.fill("Archive", 3)
		v, dst := h.view(Inbox), h.view("Archive")
		_, _, err := v.UpdateFlags(h.ctx(), numbers(2, 3), FlagUpdate{Op: AddFlags, Flags: Seen, Keywords: []string{"k"}})
		h.must(err)
		// Runs and single messages, some already expunged.
		set := numbers(1, 2, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 36, 37, 39, 99)
		c, err := v.Copy(h.ctx(), set, "Archive")
		h.must(err)
		if !equal(c.SrcUIDs, set[:22]) || c.DstUIDs[0] != 4 || c.DstUIDs[21] != 25 || c.UIDValidity != dst.Folder().UIDValidity {
			t.Errorf("copied %+v", c)
		}
		if got := h.sync(dst, true); got.Exists != 25 || got.Recent != 25 {
			t.Errorf("the destination shows %+v", got)
		}
		h.expect("copies", h.subjects(dst, numbers(4, 5, 6, 7, 24, 25)), "40 39S[k] 38S[k] 36 4 2")

		c, err = v.Move(h.ctx(), numbers(1, 2, 40), "Archive")
		h.must(err)
		if !equal(c.DstUIDs, numbers(26, 27, 28)) {
			t.Errorf("moved %+v", c)
		}
		if got := h.sync(v, true); fmt.Sprint(got.Expunged) != "[40 2 1]" || got.Exists != 37 {
			t.Errorf("the source shows %+v", got)
		}
		h.sync(dst, true)
		h.expect("moved", h.subjects(dst, numbers(26, 27, 28)), "40 39S[k] 1")
		h.checkCounts()

		// Within one folder, the messages get new UIDs.
		c, err = v.Move(h.ctx(), numbers(3, 4), Inbox)
		h.must(err)
		h.expect("moved within", fmt.Sprint(c.SrcUIDs, c.DstUIDs), "[3 4] [41 42]")
		c, err = v.Copy(h.ctx(), numbers(5), Inbox)
		h.must(err)
		h.expect("copied within", fmt.Sprint(c.SrcUIDs, c.DstUIDs), "[5] [43]")
		if got := h.sync(v, true); fmt.Sprint(got.Vanished) != "[3 4]" || got.Exists != 38 {
			t.Errorf("the folder shows %+v", got)
		}
		h.checkCounts()
	})
}

// subjects returns the subjects of messages.
func (h *fixture) subjects(v *View, uids []uint32) string {
	h.Helper()
	var all []string
	h.must(v.Fetch(h.ctx(), uids, FetchEnvelope, func(r *MessageRow) error {
		s := message.EnvelopeText(r.Envelope, message.EnvelopeSubject)
		if r.Flags&Seen != 0 {
			s += "S"
		}
		if len(r.Keywords) > 0 {
			s += fmt.Sprint(r.Keywords)
		}
		all = append(all, s)
		return nil
	}))
	return strings.Join(all, " ")
}

func TestFetch(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 1_100)
		v := h.view(Inbox)
		sparse := []uint32{}
		for i := 0; i < len(uids); i += 3 {
			sparse = append(sparse, uids[i])
		}
		for _, set := range [][]uint32{uids, sparse, nil, uids[7:8], {5_000}} {
			for want := range FetchThread {
				var got []uint32
				h.must(v.Fetch(h.ctx(), set, want, func(r *MessageRow) error {
					got = append(got, r.UID)
					switch {
					case r.Seq != v.Seq(r.UID), r.Size == 0,
						want != 0 && (r.Message == 0 || r.Date.IsZero() || r.SavedAt.IsZero()),
						(want&FetchEnvelope != 0) != (r.Envelope != nil), (want&FetchStructure != 0) != (r.Structure != nil),
						want&(FetchBlobID|FetchContent) != 0 && r.BlobID == 0, (want&FetchContent != 0) != (r.Content != nil):
						t.Fatalf("wanted %b, got %+v", want, r)
					}
					return nil
				}))
				if len(set) > 1 && !equal(got, set) {
					t.Errorf("wanted %b of %d, got %d", want, len(set), len(got))
				}
			}
		}
		stop := errors.New("stop")
		for _, at := range []uint32{1, 2, 16, 17, 100, 1_000, 1_001, 1_100} {
			for _, want := range []FetchFields{0, FetchDates, FetchContent} {
				seq := uint32(0)
				err := v.Fetch(h.ctx(), uids, want, func(r *MessageRow) error {
					if seq = r.Seq; seq == at {
						return stop
					}
					return nil
				})
				if !errors.Is(err, stop) || seq != at {
					t.Errorf("wanted %b, the reader's error at %d became %v, at %d", want, at, err, seq)
				}
				// The view can be used at once.
				h.deliver("afterwards")
				h.sync(v, false)
			}
		}
		// No lock is held while f runs: it may write.
		n := 0
		h.must(v.Fetch(h.ctx(), uids[:3], FetchEnvelope, func(*MessageRow) error {
			n++
			_, err := v.Expunge(h.ctx(), nil)
			h.deliver("meanwhile")
			return err
		}))
		// Another session expunges messages that this one still numbers.
		other := h.view(Inbox)
		_, _, err := other.UpdateFlags(h.ctx(), numbers(2), FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = other.Expunge(h.ctx(), nil)
		h.must(err)
		h.expect("rows", h.subjects(v, numbers(1, 2, 3)), "1100 1098")
		flags := 0
		h.must(v.Fetch(h.ctx(), numbers(1, 2, 3), 0, func(*MessageRow) error { flags++; return nil }))
		if n != 3 || flags != 3 {
			t.Errorf("%d rows, %d flags", n, flags)
		}
	})
}

func TestVanishedSince(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 20)
		v := h.view(Inbox)
		expunge := func(uids ...uint32) uint64 {
			_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Deleted})
			h.must(err)
			_, err = v.Expunge(h.ctx(), nil)
			h.must(err)
			h.sync(v, true)
			return v.Folder().ModSeq
		}
		expunge(1, 2)
		since := expunge(4)
		expunge(6, 7, 8, 20)
		check := func(modseq uint64, known []Range, want string) {
			t.Helper()
			got, err := v.VanishedSince(h.ctx(), modseq, known)
			h.must(err)
			h.expect("vanished", snapshot.FormatRanges(got), want)
		}
		check(since, nil, "6:8,20")
		check(since, []Range{{Lo: 7, Hi: 30}, {Lo: 1, Hi: 3}}, "7:8,20")
		check(1, nil, "1:2,4,6:8,20")
		check(v.Folder().ModSeq, nil, "")
		h.must(h.db.Write(h.ctx(), h.box, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(raiseLogLayerQuery.With(v.shared.id, int64(since+1))) }}))
		check(since, nil, "1:2,4,6:8,20")
		check(since, []Range{{Lo: 1, Hi: 5}}, "1:2,4")
		check(since, []Range{}, "")

		// Expunges by another session are not reported before their numbers vanish.
		before := v.Folder().ModSeq
		other := h.view(Inbox)
		_, _, err := other.UpdateFlags(h.ctx(), numbers(9), FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = other.Expunge(h.ctx(), nil)
		h.must(err)
		check(before, nil, "")
		h.sync(v, false)
		if got := v.Folder().ModSeq; got != before {
			t.Errorf("the session says that it has heard of %d at %d", got, before)
		}
		h.sync(v, true)
		check(before, nil, "9")
	})
}

// ChangedIn returns the same from the chunks as from every message.
func TestChangedIn(t *testing.T) {
	each(t, func(h *fixture) {
		const n = 3 * 1_024 // messages of three chunks
		h.fill(Inbox, n)
		v := h.view(Inbox)
		start := v.Folder().ModSeq
		var since []uint64
		for _, uids := range [][]uint32{numbers(5, 1023, 1024, 3000), numbers(5, 6), numbers(2100)} {
			since = append(since, v.Folder().ModSeq)
			_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Flagged << len(since)})
			h.must(err)
			h.sync(v, true)
		}
		for _, known := range [][]Range{nil, {{Lo: 1, Hi: 10}}, {{Lo: 6, Hi: 1023}, {Lo: 2000, Hi: 9999}}, {}} {
			for _, modseq := range append(since, start, 0, v.Folder().ModSeq) {
				want := v.ChangedSince(v.snap.UIDs(), modseq)
				if known != nil {
					want = slices.DeleteFunc(want, func(uid uint32) bool { return !snapshot.ContainsUID(known, uid) })
				}
				if got := v.ChangedIn(known, modseq); !equal(got, want) {
					t.Errorf("since %d in %v: %v, want %v", modseq, known, got, want)
				}
			}
		}
	})
}

// The example of RFC 7162 §3.2.5.2: only every third UID is there.
func TestMatched(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 30)
		v := h.view(Inbox)
		var gone []uint32
		for uid := range uint32(30) {
			if (uid+1)%3 != 0 {
				gone = append(gone, uid+1)
			}
		}
		_, _, err := v.UpdateFlags(h.ctx(), gone, FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), nil)
		h.must(err)
		h.sync(v, true)
		for _, x := range []struct {
			seqs, uids []Range
			want       uint32
		}{
			{nil, nil, 0},
			{[]Range{{Lo: 5, Hi: 5}, {Lo: 8, Hi: 10}}, []Range{{Lo: 15, Hi: 15}, {Lo: 24, Hi: 24}, {Lo: 27, Hi: 27}, {Lo: 30, Hi: 30}}, 30},
			{[]Range{{Lo: 5, Hi: 5}, {Lo: 8, Hi: 10}}, []Range{{Lo: 15, Hi: 15}, {Lo: 24, Hi: 26}}, 24},
			{[]Range{{Lo: 4, Hi: 4}, {Lo: 7, Hi: 7}}, []Range{{Lo: 12, Hi: 12}, {Lo: 24, Hi: 24}}, 12},
			{[]Range{{Lo: 4, Hi: 4}}, []Range{{Lo: 11, Hi: 11}}, 0},
			{[]Range{{Lo: 1, Hi: 1}, {Lo: 1 << 31, Hi: 1<<32 - 1}}, []Range{{Lo: 3, Hi: 3}, {Lo: 1 << 31, Hi: 1<<32 - 1}}, 3},
		} {
			if got := v.MatchedThroughUID(x.seqs, x.uids); got != x.want {
				t.Errorf("%v %v: %d, want %d", x.seqs, x.uids, got, x.want)
			}
		}
	})
}
