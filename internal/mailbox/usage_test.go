// SPDX-License-Identifier: Apache-2.0

package mailbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

func (h *fixture) deposit(box db.ID, bytes, messages int64) {
	h.t.Helper()
	if err := h.db.Write(h.t.Context(), box, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(mailbox.AddUsage(box, mailbox.Usage{Bytes: bytes, Messages: messages})) }}); err != nil {
		h.t.Fatal(err)
	}
}

func TestCapacity(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "ann", QuotaMB: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		const mb, kb = 1 << 20, 1 << 10
		wantKind(t, h.CheckQuota(ctx, box.ID, mb+1), fault.TooLarge, "message_over_quota")
		claim := func(bytes int64) error {
			return h.db.Write(ctx, box.ID, &db.Mutation{Guard: func(b *db.Batch) {
				b.Queue(mailbox.ReserveUsage(box.ID, mailbox.Usage{Bytes: bytes, Messages: 1})).OrFail(mailbox.FullError())
			}})
		}
		deposit := func(bytes, messages int64) { h.deposit(box.ID, bytes, messages) }
		if err := claim(mb - 10*kb); err != nil {
			t.Fatal(err)
		}
		wantKind(t, claim(11*kb), fault.OverQuota, mailbox.CodeMailboxFull)
		if err := h.CheckQuota(ctx, box.ID, 10*kb); err != nil {
			t.Error(err)
		}
		deposit(20*kb, 1) // mail accepted at RCPT may exceed the quota
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull)
		h.now = h.now.Add(mailbox.FullGracePeriod - time.Second)
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull)
		h.now = h.now.Add(time.Second)
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFullLong)
		deposit(-5*kb, -1)
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull) // the seven days start again
		deposit(-100*kb, 0)
		if err := h.CheckQuota(ctx, box.ID, 1); err != nil {
			t.Error(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Used != mb-95*kb || got.Messages != 1 {
			t.Errorf("uses %d in %d, %v", got.Used, got.Messages, err)
		}
	})
}

// A message counts for at least 1,024 bytes, for the quota check and in the reported usage.
func TestSmallMessagesCount(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "ann", QuotaMB: new(1)})
		if err != nil {
			t.Fatal(err)
		}
		write := func(s db.Statement) error {
			return h.db.Write(ctx, box.ID, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(s).OrFail(mailbox.FullError()) }})
		}
		for range 1023 {
			if err := write(mailbox.ReserveUsage(box.ID, mailbox.MessageUsage(3))); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.CheckQuota(ctx, box.ID, 1); err != nil {
			t.Error(err)
		}
		if err := write(mailbox.AddUsage(box.ID, mailbox.MessageUsage(3))); err != nil {
			t.Fatal(err)
		}
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull)
		wantKind(t, write(mailbox.ReserveUsage(box.ID, mailbox.MessageUsage(1))), fault.OverQuota, mailbox.CodeMailboxFull)
		_, used, err := h.StorageUsage(ctx, h.account)
		if err != nil || used != 1<<20 {
			t.Errorf("the account uses %d, %v", used, err)
		}
		list, _, err := h.List(ctx, h.account, mailbox.Filter{}, db.Page{Limit: 10})
		if err != nil || len(list) != 1 || list[0].Used != 1<<20 || list[0].Messages != 1024 {
			t.Errorf("listed as %+v, %v", list, err)
		}
		if err := write(mailbox.AddUsage(box.ID, mailbox.MessageUsage(3).Negate())); err != nil {
			t.Fatal(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Used != 1<<20-mailbox.MinCountedSize {
			t.Errorf("uses %d, %v", got.Used, err)
		}
		var told int64
		tell := &db.Mutation{Guard: func(b *db.Batch) { b.Queue(mailbox.MarkWarned(box.ID)).One(&told) }}
		if err := h.db.Write(ctx, box.ID, tell); err != nil || told != 1<<20-mailbox.MinCountedSize {
			t.Errorf("its owner is told of %d used, %v", told, err)
		}
	})
}

// A mailbox with a full folder is full, and after seven days it is full for long.
func TestCapacityOfFolders(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		left := int64(1)
		h.RemainingMessages = func(context.Context, db.ID) (int64, error) { return left, nil }
		if err := h.CheckQuota(ctx, box.ID, 0); err != nil {
			t.Error(err)
		}
		left = 0 // little was left, so it is checked again immediately
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull)
		h.now = h.now.Add(mailbox.FullGracePeriod)
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFullLong)
		left = 1
		if err := h.CheckQuota(ctx, box.ID, 0); err != nil {
			t.Error(err)
		}
		left = 0
		wantKind(t, h.CheckQuota(ctx, box.ID, 0), fault.OverQuota, mailbox.CodeMailboxFull)
	})
}

// A client can't store more than a maximum number of messages, however small. Incoming mail is
// stored anyway.
func TestMostMessages(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		claim := func(bytes, messages int64) error {
			return h.db.Write(ctx, box.ID, &db.Mutation{Guard: func(b *db.Batch) {
				b.Queue(mailbox.ReserveUsage(box.ID, mailbox.Usage{Bytes: bytes, Messages: messages})).OrFail(mailbox.FullError())
			}})
		}
		half := int64(mailbox.MaxMessages / 2)
		for range 2 {
			if err := claim(half, half); err != nil {
				t.Fatal(err)
			}
		}
		wantKind(t, claim(2*half, 2*half), fault.OverQuota, mailbox.CodeMailboxFull)
		wantKind(t, claim(1, 1), fault.OverQuota, mailbox.CodeMailboxFull)
		h.deposit(box.ID, 1, 1)
		if err := claim(1, 0); err != nil { // a message that is replaced
			t.Error(err)
		}
		if got, err := h.ByID(ctx, box.ID); err != nil || got.Messages != 2*half+1 || got.Used != 2*half+2 {
			t.Errorf("uses %d in %d, %v", got.Used, got.Messages, err)
		}
	})
}

// With ample free quota the mailbox isn't checked again for a second, unless the quota changes.
func TestAmpleCapacity(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		capacity := func(box db.ID, size int64, want string) {
			t.Helper()
			if err := h.CheckQuota(ctx, box, size); want == "" && err != nil {
				t.Error(err)
			} else if want != "" {
				wantKind(t, err, fault.OverQuota, want)
			}
		}
		made := func(local string, mb int) mailbox.Mailbox {
			t.Helper()
			box, _, err := h.Create(ctx, h.account, mailbox.CreateParams{Domain: h.domain, LocalPart: local, QuotaMB: &mb})
			if err != nil {
				t.Fatal(err)
			}
			return box
		}
		const gb = 1 << 30
		ann, bob := made("ann", 1024), made("bob", 512)
		capacity(ann.ID, 1, "")
		capacity(bob.ID, 1, "")
		h.deposit(ann.ID, gb, 1)
		h.deposit(bob.ID, gb, 1)
		capacity(ann.ID, 1, "")
		capacity(ann.ID, gb/2, mailbox.CodeMailboxFull) // more than the ample amount is always checked
		capacity(bob.ID, 1, mailbox.CodeMailboxFull)    // never had ample free quota
		h.now = h.now.Add(time.Second)
		capacity(ann.ID, 1, mailbox.CodeMailboxFull)

		more, less := 4096, 1024
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{QuotaMB: &more}); err != nil {
			t.Fatal(err)
		}
		capacity(ann.ID, 1, "")
		if _, err := h.Update(ctx, h.account, ann.ID, mailbox.Change{QuotaMB: &less}); err != nil {
			t.Fatal(err)
		}
		capacity(ann.ID, 1, mailbox.CodeMailboxFull)
	})
}
