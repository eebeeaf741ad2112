// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"fmt"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var freeFolders = db.SQL(`SELECT COUNT(*) FROM (SELECT id FROM folder WHERE mailbox = $1 {skip_locked}) AS free`)

// Every change to folders or messages locks its mailbox before any folder.
func TestMailboxIsHeldFirst(t *testing.T) {
	each(t, func(h *fixture) {
		uids := h.fill(Inbox, 8)
		v := h.view(Inbox)
		_, _, err := v.UpdateFlags(h.ctx(), uids[:1], FlagUpdate{Op: AddFlags, Flags: Deleted})
		h.must(err)
		for _, writer := range []struct {
			name  string
			write func() error
		}{
			{"deliver", func() error {
				_, err := h.Deliver(h.ctx(), Delivery{Mailbox: h.box, SpecialUse: Junk, Blob: h.upload("x", 0).Blob})
				return err
			}},
			{"append", func() error { _, _, err := h.Append(h.ctx(), h.box, "Junk", h.upload("x", 0)); return err }},
			{"store", func() error {
				_, _, err := v.UpdateFlags(h.ctx(), uids, FlagUpdate{Op: AddFlags, Flags: Seen})
				return err
			}},
			{"expunge", func() error { _, err := v.Expunge(h.ctx(), nil); return err }},
			{"copy", func() error { _, err := v.Copy(h.ctx(), uids[1:2], "Junk"); return err }},
			{"move", func() error { _, err := v.Move(h.ctx(), uids[2:3], "Junk"); return err }},
			{"move within", func() error { _, err := v.Move(h.ctx(), uids[3:4], Inbox); return err }},
			{"replace", func() error { _, err := v.Replace(h.ctx(), uids[4], "Junk", h.upload("x", 0)); return err }},
			{"replace within", func() error { _, err := v.Replace(h.ctx(), uids[5], Inbox, h.upload("x", 0)); return err }},
			{"open", func() error {
				w, err := h.Open(h.ctx(), h.box, "Junk", false)
				if err == nil {
					w.Close()
				}
				return err
			}},
			{"create", func() error { _, err := h.Create(h.ctx(), h.box, "a"); return err }},
			{"rename", func() error { return h.Rename(h.ctx(), h.box, "Junk", "b") }},
			{"delete", func() error { _, err := h.Delete(h.ctx(), h.box, "b"); return err }},
			{"collect", func() error { _, err := h.CollectGarbage(h.ctx()); return err }},
			{"empty", func() error { return h.PurgeMailbox(h.ctx(), h.box) }},
		} {
			folders, err := h.List(h.ctx(), h.box)
			h.must(err)
			done := make(chan error, 1)
			h.must(h.db.Tx(h.ctx(), func(tx *db.Tx) error {
				if _, err := tx.Exec(h.ctx(), mailbox.LockUsage(h.box)); err != nil {
					return err
				}
				ctx, ended := context.WithCancel(h.ctx())
				go func() {
					done <- writer.write()
					ended()
				}()
				if err := dbtest.AwaitBlocked(ctx, h.db, tx, "%"); err != nil {
					return fmt.Errorf("%s does not wait for who holds the mailbox: %w", writer.name, err)
				}
				free := 0
				err := h.db.One(h.ctx(), freeFolders.With(h.box), &free)
				if free < len(folders) {
					t.Errorf("%s has taken a folder before the mailbox", writer.name)
				}
				return err
			}))
			h.must(<-done)
		}
	})
}
