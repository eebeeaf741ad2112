// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func wantFull(h *fixture, what string, err error) {
	h.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != CodeFolderFull || f.Kind != fault.RateLimited {
		h.Errorf("%s: %v", what, err)
	}
}

// For every way to add and remove it, a message counts for at least 1,024 bytes, and for nothing
// when it is gone.
func TestSmallMessagesAreCharged(t *testing.T) {
	each(t, func(h *fixture) {
		small, large := h.upload("s", 0), h.upload(strings.Repeat("l", 5000), 0)
		const layer = mailbox.MinCountedSize
		if small.Blob.Size >= layer || large.Blob.Size <= layer {
			t.Fatalf("%d and %d bytes", small.Blob.Size, large.Blob.Size)
		}
		s, l := layer-small.Blob.Size, large.Blob.Size
		want := func(step string, bytes, messages, charged int64) {
			t.Helper()
			h.checkCounts()
			if got := h.use(h.box); got.Bytes != bytes || got.Messages != messages || got.Bytes+got.Overhead != charged {
				t.Errorf("%s: %+v", step, got)
			}
		}
		size := layer - s
		_, uids, err := h.Append(h.ctx(), h.box, Inbox, small, large)
		h.must(err)
		want("append", size+l, 2, layer+l)
		filed := h.deliver("s")
		got := h.use(h.box)
		v := h.view(Inbox)
		_, err = v.Copy(h.ctx(), uids, "Archive")
		h.must(err)
		_, err = v.Copy(h.ctx(), uids[:1], Inbox)
		h.must(err)
		copied := h.use(h.box)
		if copied.Bytes != got.Bytes+2*size+l || copied.Overhead != got.Overhead+2*s {
			t.Errorf("copied: %+v", copied)
		}
		h.checkCounts()
		_, err = v.Move(h.ctx(), uids, "Trash")
		h.must(err)
		_, err = v.Move(h.ctx(), []uint32{filed.UID}, Inbox)
		h.must(err)
		if moved := h.use(h.box); moved != copied {
			t.Errorf("moved: %+v", moved)
		}
		h.checkCounts()
		h.sync(v, true)
		_, err = v.Replace(h.ctx(), v.UID(1), Inbox, h.upload(strings.Repeat("l", 5000), 0))
		h.must(err)
		h.checkCounts()
		h.sync(v, true)
		_, err = v.Replace(h.ctx(), v.UID(1), "Junk", h.upload("x", 0))
		h.must(err)
		h.checkCounts()
		h.must(h.Rename(h.ctx(), h.box, Inbox, "Old"))
		h.checkCounts()
		for _, name := range []string{"Old", "Archive", "Junk"} {
			_, err = h.Delete(h.ctx(), h.box, name)
			h.must(err)
			h.checkCounts()
		}
		trash := h.view("Trash")
		_, _, err = trash.UpdateFlags(h.ctx(), trash.snap.UIDs(), FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = trash.Expunge(h.ctx(), nil)
		h.must(err)
		want("emptied", 0, 0, 0)
	})
}

// Tiny messages use up a quota: none of them is free.
func TestTinyMessagesFillQuota(t *testing.T) {
	each(t, func(h *fixture) {
		dbtest.Exec(h, h.db, setQuota.With(h.box, 10*mailbox.MinCountedSize))
		filed := 0
		for range 20 {
			_, _, err := h.Append(h.ctx(), h.box, Inbox, h.upload("\r\n", 0))
			if err == nil {
				filed++
			} else if !fault.Is(err, fault.OverQuota) {
				t.Fatal(err)
			}
		}
		if filed != 10 {
			t.Errorf("%d messages fit into ten times the least that one counts for", filed)
		}
	})
}

// Statements of the previous release, which knows no surcharge.
var (
	oldDeposit = db.SQL(`UPDATE mailbox_usage SET bytes = bytes + $2, messages = messages + $3 WHERE mailbox = $1`)
	oldAdd     = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1, messages = messages + 1, unseen = unseen + 1, bytes = bytes + $2
		WHERE id = $1`)
	oldTake   = db.SQL(`UPDATE folder SET modseq = modseq + 1, changed_modseq = modseq + 1, messages = messages - 1, unseen = unseen - 1, bytes = bytes - $2 WHERE id = $1`)
	oldDelete = db.SQL(`DELETE FROM folder WHERE id = $1`)
	oldFolder = db.SQL(`INSERT INTO folder (id, mailbox, name, special_use, uidvalidity, uid_next, modseq, changed_modseq,
			messages, unseen, bytes, recent_uid, log_start_modseq)
		VALUES ($1, $2, $3, '', 7, 1, 1, 1, 0, 0, 0, 1, 0)`)
	forgetSurcharges = db.SQL(`UPDATE folder SET surcharge = 0, surcharge_mark = 0 WHERE mailbox = $1`)
	forgetSurcharge  = db.SQL(`UPDATE mailbox_usage SET surcharge = 0 WHERE mailbox = $1`)
)

// Messages from before the surcharge, and changes by a concurrent node of the previous release, are
// counted. Nothing is counted twice or falls below zero.
func TestRecount(t *testing.T) {
	each(t, func(h *fixture) {
		recount := func(want int) {
			t.Helper()
			n, err := h.RecountUsage(h.ctx())
			h.must(err)
			if n != want {
				t.Errorf("corrected %d mailboxes, not %d", n, want)
			}
			h.checkCounts()
		}
		uids := h.fill(Inbox, 30)
		h.fill("Archive", 3)
		recount(0)

		dbtest.Exec(h, h.db, forgetSurcharges.With(h.box)) // as after the migration
		dbtest.Exec(h, h.db, forgetSurcharge.With(h.box))
		v := h.view(Inbox)
		_, _, err := v.UpdateFlags(h.ctx(), uids[:20], FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), nil) // removes more than was counted
		h.must(err)
		if u := h.use(h.box); u.Overhead >= 0 {
			t.Errorf("the case is not the one that is meant: %+v", u)
		}
		_, err = h.Delete(h.ctx(), h.box, "Archive")
		h.must(err)
		recount(1)
		recount(0)

		inbox := h.status(Inbox)
		size := int64(10)
		h.must(h.db.Tx(h.ctx(), func(tx *db.Tx) error {
			id := h.db.NewID()
			for _, s := range []db.Statement{
				mailbox.LockUsage(h.box), oldAdd.With(inbox.ID, size), oldDeposit.With(h.box, size, 1),
				insertFolderMessageQuery.With(inbox.ID, inbox.UIDNext, id, 0, "", inbox.ModSeq+1, size, 1, 1),
				oldFolder.With(h.db.NewID(), h.box, "made by the other"),
			} {
				if _, err := tx.Exec(h.ctx(), s); err != nil {
					return err
				}
			}
			return nil
		}))
		recount(1)
		h.must(h.db.Tx(h.ctx(), func(tx *db.Tx) error { // a message goes, and a folder
			for _, s := range []db.Statement{
				mailbox.LockUsage(h.box), oldTake.With(inbox.ID, size), oldDeposit.With(h.box, -size, -1), deleteRowsQuery.With(inbox.UIDNext, inbox.UIDNext, inbox.ID),
			} {
				if _, err := tx.Exec(h.ctx(), s); err != nil {
					return err
				}
			}
			return nil
		}))
		recount(1)
		_, err = h.Create(h.ctx(), h.box, "B")
		h.must(err)
		h.fill("B", 2)
		b := h.status("B")
		dbtest.Exec(h, h.db, oldDelete.With(b.ID))
		dbtest.Exec(h, h.db, oldDeposit.With(h.box, -b.Bytes, -int64(b.Messages)))
		recount(1)
		recount(0)
	})
}

// A recount works while others file and expunge, and is right in the end.
func TestRecountBesideWriters(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 60)
		dbtest.Exec(h, h.db, forgetSurcharges.With(h.box))
		dbtest.Exec(h, h.db, forgetSurcharge.With(h.box))
		var work sync.WaitGroup
		failed := make(chan error, 3)
		arrivals := make([]Upload, 30)
		for n := range arrivals {
			arrivals[n] = h.upload(fmt.Sprint(n), 0)
		}
		work.Go(func() {
			for _, one := range arrivals {
				if _, _, err := h.Append(h.ctx(), h.box, Inbox, one); err != nil {
					failed <- err
					return
				}
			}
		})
		v := h.view(Inbox)
		work.Go(func() {
			for _, uid := range uids[:30] {
				if _, err := v.Move(h.ctx(), []uint32{uid}, "Archive"); err != nil {
					failed <- err
					return
				}
			}
		})
		work.Go(func() {
			for range 20 {
				if _, err := h.RecountUsage(h.ctx()); err != nil {
					failed <- err
					return
				}
			}
		})
		work.Wait()
		close(failed)
		for err := range failed {
			t.Error(err)
		}
		_, err := h.RecountUsage(h.ctx())
		h.must(err)
		h.checkCounts()
	})
}

// Concurrent clients fill a folder, and a mailbox with folders, exactly up to the limit.
func TestLimitsUnderRace(t *testing.T) {
	each(t, func(h *fixture) {
		h.MaxMessages, h.MaxFolders = 20, 30
		source := h.fill("Archive", 10)
		v := h.view("Archive")
		var work sync.WaitGroup
		const callers = 200
		results := make(chan error, 2*callers)
		for n := range callers {
			uploads := []Upload{h.upload("a", 0), h.upload("b", 0), h.upload("c", 0)}
			work.Go(func() {
				var err error
				switch n % 3 {
				case 0:
					_, _, err = h.Append(h.ctx(), h.box, Inbox, uploads[:1]...)
				case 1:
					_, err = v.Copy(h.ctx(), source[:2], Inbox)
				default:
					_, _, err = h.Append(h.ctx(), h.box, Inbox, uploads...)
				}
				results <- err
			})
			work.Go(func() {
				_, err := h.Create(h.ctx(), h.box, fmt.Sprintf("f%d/g", n))
				results <- err
			})
		}
		work.Wait()
		close(results)
		refused := 0
		for err := range results {
			if fault.Is(err, fault.RateLimited) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		f := h.status(Inbox)
		folders, err := h.List(h.ctx(), h.box)
		h.must(err)
		if f.Messages < 18 || f.Messages > 20 || len(folders) < 29 || len(folders) > 30 || refused == 0 {
			t.Errorf("%d messages, %d folders, %d refused", f.Messages, len(folders), refused)
		}
		h.checkCounts()
	})
}

// TestFullFolder checks who may add messages to a full folder.
func TestFullFolder(t *testing.T) {
	each(t, func(h *fixture) {
		h.MaxMessages = 5
		uids := h.fill(Inbox, 5)
		other := h.fill("Archive", 3)
		left := func(want int64) {
			t.Helper()
			if n, err := h.RemainingMessages(h.ctx(), h.box); err != nil || n != want {
				t.Errorf("%d left, %v", n, err)
			}
		}
		left(0)
		v, a := h.view(Inbox), h.view("Archive")
		_, _, err := h.Append(h.ctx(), h.box, Inbox, h.upload("x", 0))
		wantFull(h, "append", err)
		_, err = a.Copy(h.ctx(), other[:1], Inbox)
		wantFull(h, "copy", err)
		_, err = v.Copy(h.ctx(), uids[:1], Inbox)
		wantFull(h, "copy to itself", err)
		_, err = a.Move(h.ctx(), other[:1], Inbox)
		wantFull(h, "move", err)
		_, err = a.Replace(h.ctx(), other[0], Inbox, h.upload("x", 0))
		wantFull(h, "replace", err)
		_, _, err = h.Append(h.ctx(), h.box, "none", h.upload("x", 0))
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("no such folder: %v", err)
		}
		moved, err := v.Move(h.ctx(), uids[:1], Inbox)
		h.must(err)
		h.sync(v, true)
		_, err = v.Replace(h.ctx(), moved.DstUIDs[0], Inbox, h.upload("x", 0))
		h.must(err)
		h.deliver("accepted before it was full")
		left(-1)
		if f := h.status("Archive"); f.Messages != 3 {
			t.Errorf("the other holds %d", f.Messages)
		}
		wantFull(h, "rename INBOX", h.Rename(h.ctx(), h.box, Inbox, "Old"))
		if _, err := h.Status(h.ctx(), h.box, "Old"); !fault.Is(err, fault.NotFound) {
			t.Errorf("a folder was made for what it can't take: %v", err)
		}
		_, err = v.Move(h.ctx(), uids[1:4], "Archive")
		wantFull(h, "move out to one that is too full", err)
		_, err = v.Move(h.ctx(), uids[1:3], "Archive")
		h.must(err)
		left(1) // the contents of Archive don't matter to senders
		h.checkCounts()
	})
}
