// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// eachPart sets the batch size to part. It calls then before each commit that removes messages, and
// at each read of the folder.
func (h *fixture) eachPart(part int, then func()) {
	h.BatchSize = part
	h.Now = func() time.Time {
		then()
		return time.Now()
	}
	h.Cleanup(func() { h.Now = time.Now }) // views are closed after it
}

// Commands that work in batches commit each batch, so that others can write in between.
func TestParts(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 5)
		v := h.view(Inbox)
		start := v.Folder().ModSeq
		var left []uint32
		note := func() { left = append(left, h.status(Inbox).Messages) }

		h.BatchSize = 2
		changed, _, err := v.UpdateFlags(h.ctx(), numbers(1, 2, 3, 4, 5), FlagUpdate{Op: AddFlags, Flags: Deleted, Keywords: []string{"x"}})
		h.must(err)
		for i, c := range changed {
			if want := start + 1 + uint64(i/2); c.Seq != uint32(i+1) || c.ModSeq != want || c.ChangedByOthers || c.Flags&Deleted == 0 {
				t.Errorf("STORE told %+v, want mod-sequence %d", c, want)
			}
		}
		if c := h.sync(v, true); len(changed) != 5 || len(c.Flags) > 0 {
			t.Errorf("STORE told of %d messages, NOOP of %d", len(changed), len(c.Flags))
		}

		h.eachPart(2, note)
		moved, err := v.MoveAll(h.ctx(), numbers(1, 2, 3, 4, 5), "Trash")
		h.must(err)
		h.expect("left at each part of MOVE", fmt.Sprint(slices.Compact(left)), "[5 3 1]")
		h.expect("moved", fmt.Sprint(moved.SrcUIDs, moved.DstUIDs), "[1 2 3 4 5] [1 2 3 4 5]")
		c := h.sync(v, true)
		h.expect("expunged", fmt.Sprint(c.Expunged), "[5 4 3 2 1]")

		trash := h.view("Trash")
		h.eachPart(2, func() { left = append(left, h.status("Trash").Messages) })
		for _, x := range []struct {
			only []uint32
			want string
		}{
			{numbers(2, 3, 4, 7), "[2 3 4] [5 3]"},
			{nil, "[1 5] [2]"},
		} {
			left = nil
			gone, err := trash.Expunge(h.ctx(), x.only)
			h.must(err)
			h.expect("EXPUNGE and what is left at each part", fmt.Sprint(gone, slices.Compact(left)), x.want)
		}
		h.checkCounts()
	})
}

// A MOVE that ends early has moved what it reports, and left the rest. Mail that arrives between
// its batches is not moved.
func TestInterruptedMove(t *testing.T) {
	each(t, func(h *fixture) {
		h.fill(Inbox, 7)
		v := h.view(Inbox)
		if _, err := v.MoveAll(h.ctx(), numbers(1, 2, 3, 4, 5, 6, 7, 8), "Trash"); !errors.Is(err, ErrExpunged) {
			t.Errorf("MOVE of eight: %v", err)
		}
		another := h.newFolders(h.db, nil, Options{})
		ctx, stop := context.WithCancel(h.ctx())
		parts := 0
		h.eachPart(2, func() {
			switch parts++; parts {
			case 2:
				_, _, err := another.Append(h.ctx(), h.box, "Trash", h.upload("x", 0))
				h.must(err)
			case 3:
				stop()
			}
		})
		moved, err := v.MoveAll(ctx, numbers(1, 2, 3, 4, 5, 6, 7), "Trash")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("MOVE that was ended: %v", err)
		}
		h.expect("moved", fmt.Sprint(moved.SrcUIDs, moved.DstUIDs, moved.DstRanges()), "[1 2 3 4] [1 2 4 5] [{1 2} {4 5}]")
		h.sync(v, true)
		h.expect("left", fmt.Sprint(v.snap.UIDs()), "[5 6 7]")
		h.expect("there", fmt.Sprint(h.view("Trash").snap.UIDs()), "[1 2 3 4 5]")

		// A message that is gone later prevents its batch, and ends the command.
		parts = 0
		h.eachPart(1, func() {
			if parts++; parts == 2 {
				h.Now = time.Now
				other, err := another.Open(h.ctx(), h.box, Inbox, false)
				h.must(err)
				defer other.Close()
				_, err = other.Move(h.ctx(), numbers(7), "Archive")
				h.must(err)
			}
		})
		moved, err = v.MoveAll(h.ctx(), numbers(5, 6, 7), "Trash")
		if !errors.Is(err, ErrExpunged) {
			t.Errorf("MOVE of what was moved away: %v", err)
		}
		h.expect("moved", fmt.Sprint(moved.SrcUIDs), "[5 6]")

		// So does another destination with the same name.
		_, err = h.Create(h.ctx(), h.box, "There")
		h.must(err)
		h.fill(Inbox, 3)
		h.sync(v, true)
		parts = 0
		h.eachPart(1, func() {
			if parts++; parts == 2 {
				h.Now = time.Now
				h.delete(another, "There")
				_, err := another.Create(h.ctx(), h.box, "There")
				h.must(err)
			}
		})
		moved, err = v.Move(h.ctx(), numbers(8, 9, 10), "There")
		h.expect("moved", fmt.Sprint(moved.SrcUIDs, fault.Is(err, fault.NotFound)), "[8] true")
		h.checkCounts()
	})
}

// A change takes the same space in the log for any number of batches.
func TestLogOfParts(t *testing.T) {
	each(t, func(h *fixture) {
		h.BatchSize = 100
		h.fill(Inbox, 3_000)
		v := h.view(Inbox)
		start := v.Folder().ModSeq
		odd := slices.DeleteFunc(v.snap.UIDs(), func(uid uint32) bool { return uid%2 == 0 })
		_, _, err := v.UpdateFlags(h.ctx(), odd, FlagUpdate{Op: AddFlags, Flags: Seen})
		h.must(err)
		ranges := 0
		h.must(h.db.Each(h.ctx(), changesAfterQuery.With(v.shared.id, int64(start), logPageChanges), func(r db.Row) error {
			var uids string
			err := r.Scan(new(uint64), new(bool), &uids)
			if err == nil {
				var list []Range
				list, err = snapshot.ParseRanges(nil, uids)
				ranges += len(list)
			}
			return err
		}))
		if ranges == 0 || ranges > maxLogRanges {
			t.Errorf("the log has %d ranges", ranges)
		}
		fresh := h.newFolders(h.db, nil, Options{PollInterval: -1})
		again, err := fresh.Open(h.ctx(), h.box, Inbox, true)
		h.must(err)
		defer again.Close()
		h.sync(v, true)
		if again.show() != v.show() {
			t.Error("two sessions see different flags")
		}
	})
}

// A STORE that can't continue reports what it has done.
func TestInterruptedStore(t *testing.T) {
	each(t, func(h *fixture) {
		h.BatchSize = 2
		h.fill(Inbox, 5)
		v := h.view(Inbox)
		_, _, err := v.UpdateFlags(h.ctx(), numbers(4), FlagUpdate{Op: AddFlags, Keywords: []string{"own"}})
		h.must(err)
		table := v.shared.keywords
		_, err = table.AddToSet(0, []string{"more"})
		h.must(err)
		for size := 1 << 16; size > 0; size /= 2 { // no space is left for "more own", in the second batch
			for n := 0; err == nil; n++ {
				_, err = table.AddToSet(0, []string{fmt.Sprintf("%0*d", size, n)})
			}
			err = nil
		}
		changed, _, err := v.UpdateFlags(h.ctx(), numbers(1, 2, 3, 4, 5), FlagUpdate{Op: AddFlags, Keywords: []string{"more"}})
		if !fault.Is(err, fault.RateLimited) || len(changed) != 2 {
			t.Errorf("STORE told of %d messages: %v", len(changed), err)
		}
		if c := h.sync(v, true); len(c.Flags) > 0 {
			t.Errorf("NOOP told of %d more", len(c.Flags))
		}
	})
}
