// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func (h *house) deposit(box db.ID, bytes, messages int64) {
	h.t.Helper()
	if err := h.db.Write(h.t.Context(), box, &db.Job{Apply: func(b *db.Batch) { b.Queue(mailbox.Deposit(box, bytes, messages)) }}); err != nil {
		h.t.Fatal(err)
	}
}

func TestRoom(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: "ann", QuotaMB: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		const mb = 1 << 20
		wantKind(t, h.Room(ctx, box.ID, mb+1), fault.TooLarge, "message_over_quota")
		claim := func(bytes int64) error {
			return h.db.Write(ctx, box.ID, &db.Job{Guard: func(b *db.Batch) {
				b.Queue(mailbox.Claim(box.ID, bytes, 1)).Else(mailbox.Full())
			}})
		}
		deposit := func(bytes, messages int64) { h.deposit(box.ID, bytes, messages) }
		if err := claim(mb - 10); err != nil {
			t.Fatal(err)
		}
		wantKind(t, claim(11), fault.OverQuota, mailbox.CodeFull)
		if err := h.Room(ctx, box.ID, 10); err != nil {
			t.Error(err)
		}
		deposit(20, 1) // what RCPT accepted may overrun
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull)
		h.now = h.now.Add(mailbox.OverLong - time.Second)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull)
		h.now = h.now.Add(time.Second)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFullLong)
		deposit(-5, -1)
		wantKind(t, h.Room(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeFull) // the seven days begin anew
		deposit(-100, 0)
		if err := h.Room(ctx, box.ID, 1); err != nil {
			t.Error(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Used != mb-95 || got.Messages != 1 {
			t.Errorf("uses %d in %d, %v", got.Used, got.Messages, err)
		}
	})
}

// However small they are, a mailbox holds no more than so many messages of a
// client's. What arrives is filed all the same.
func TestMostMessages(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		claim := func(bytes, messages int64) error {
			return h.db.Write(ctx, box.ID, &db.Job{Guard: func(b *db.Batch) {
				b.Queue(mailbox.Claim(box.ID, bytes, messages)).Else(mailbox.Full())
			}})
		}
		half := int64(mailbox.MaxMessages / 2)
		for range 2 {
			if err := claim(half, half); err != nil {
				t.Fatal(err)
			}
		}
		wantKind(t, claim(2*half, 2*half), fault.OverQuota, mailbox.CodeFull)
		wantKind(t, claim(1, 1), fault.OverQuota, mailbox.CodeFull)
		h.deposit(box.ID, 1, 1)
		if err := claim(1, 0); err != nil { // a message that is replaced
			t.Error(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Messages != 2*half+1 || got.Used != 2*half+2 {
			t.Errorf("uses %d in %d, %v", got.Used, got.Messages, err)
		}
	})
}

// Where there is ample room nobody looks again for a second, unless the quota
// changes.
func TestAmpleRoom(t *testing.T) {
	each(t, func(h *house) {
		ctx, t := h.t.Context(), h.t
		room := func(box db.ID, size int64, want string) {
			t.Helper()
			if err := h.Room(ctx, box, size); want == "" && err != nil {
				t.Error(err)
			} else if want != "" {
				wantKind(t, err, fault.OverQuota, want)
			}
		}
		made := func(local string, mb int) mailbox.Mailbox {
			t.Helper()
			box, _, err := h.Create(ctx, h.account, mailbox.New{Domain: h.domain, LocalPart: local, QuotaMB: &mb})
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		const gb = 1 << 30
		ann, bob := made("ann", 1024), made("bob", 512)
		room(ann.ID, 1, "")
		room(bob.ID, 1, "")
		h.deposit(ann.ID, gb, 1)
		h.deposit(bob.ID, gb, 1)
		room(ann.ID, 1, "")
		room(ann.ID, gb/2, mailbox.CodeFull) // more than ample is looked at in any case
		room(bob.ID, 1, mailbox.CodeFull)    // never had ample room
		h.now = h.now.Add(time.Second)
		room(ann.ID, 1, mailbox.CodeFull)

		more, less := 4096, 1024
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{QuotaMB: &more}); err != nil {
			t.Fatal(err)
		}
		room(ann.ID, 1, "")
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{QuotaMB: &less}); err != nil {
			t.Fatal(err)
		}
		room(ann.ID, 1, mailbox.CodeFull)
	})
}
