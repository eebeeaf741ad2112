// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// replaceWithin takes one message out and another in.
var replaceWithin = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1, changed = modseq + 1,
		unseen = unseen + $4, bytes = bytes + $5, surcharge = surcharge + $6, surcharge_mark = surcharge_mark + 2
	WHERE id = $1 AND name = $2 AND changed = $3 RETURNING uid_next - 1, modseq, uidvalidity`)

// replacement is a Replace on its way.
type replacement struct {
	view   *View
	to     Folder
	old    chosen
	new    *filing
	since  uint64
	srcSeq uint64 // mod-sequence of the change in the view's folder
	tell   bool   // the owner, that there is little room left
}

// Replace puts a message into a folder of the mailbox and takes the one with
// this UID out of the view's, in one commit (RFC 8508); Sync tells that it is
// gone. It needs room for what the new message counts for more. A folder that holds
// too many messages is a fault.Limited. No such folder is a
// fault.NotFound; so is a message that is gone, with CodeMessageGone.
func (v *View) Replace(ctx context.Context, uid uint32, to string, u Upload) (Filed, error) {
	sh := v.shared
	var r replacement
	err := sh.repeatedly(ctx, func() error {
		dst, err := v.store.byName(ctx, v.row.Mailbox, to)
		if err != nil {
			return err
		}
		snap, since := sh.state()
		r = replacement{view: v, to: dst, since: since}
		for index, e := range snap.pick([]uint32{uid}) {
			r.old.add(index, e)
		}
		if len(r.old.uids) == 0 {
			return expungedMessage()
		}
		if dst.ID != sh.id {
			if err := v.store.fits(dst, 1); err != nil {
				return err
			}
		}
		if r.new, err = v.store.newFiling(v.row.Mailbox, u); err != nil {
			return err
		}
		err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Job{
			Guard: r.guard,
			Apply: r.apply,
			AfterCommit: func() {
				v.store.wakeFolder(dst.ID)
				if dst.ID != sh.id {
					v.store.wakeFolder(sh.id)
				}
				v.store.wakeRoom(r.tell)
			},
		})
		if err == nil {
			sh.publish(since, r.srcSeq, nil, r.old.uids)
		}
		return err
	})
	if err != nil {
		return Filed{}, err
	}
	return r.new.Filed, nil
}

// guard takes the rows of both folders.
func (r *replacement) guard(b *db.Batch) {
	from, f := r.view.shared.id, r.new
	f.Folder = r.to.ID
	b.Queue(mailbox.Hold(r.to.Mailbox))
	if from == r.to.ID {
		b.Queue(replaceWithin.With(from, r.to.Name, int64(r.since), f.unseen()-r.old.unseen, f.size()-r.old.bytes, f.use().Surcharge-r.old.surcharge)).
			One(&f.UID, &f.ModSeq, &f.UIDValidity).Else(errStale)
	} else {
		b.Queue(r.old.take(from, r.since, 1)).One(new(uint64), &r.srcSeq).Else(errStale)
		b.Queue(totals{1, f.unseen(), f.size(), f.use().Surcharge}.addTo(r.to, r.view.store.MaxMessages)).
			One(&f.UID, &f.ModSeq, &f.UIDValidity).Else(errStale)
	}
	// A full mailbox may become less full.
	more := mailbox.Use{Bytes: f.size() - r.old.bytes, Surcharge: f.use().Surcharge - r.old.surcharge}
	if more.Bytes+more.Surcharge > 0 {
		b.Queue(mailbox.Claim(r.to.Mailbox, more)).Each(mailbox.ToTell(&r.tell)).Else(mailbox.Full())
	} else {
		b.Queue(mailbox.Deposit(r.to.Mailbox, more))
	}
}

func (r *replacement) apply(b *db.Batch) {
	sh := r.view.shared
	if r.to.ID == sh.id {
		r.srcSeq = r.new.ModSeq
	}
	r.new.insert(b)
	for p := range pieces(r.old.spans.list) {
		b.Queue(p.with(noteExpunged, noteExpungedList, sh.id, r.new.now))
		b.Queue(p.with(takeOut, takeOutList, sh.id))
	}
	sh.logChange(b, r.since, r.srcSeq, true, r.old.spans.text())
}
