// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// replaceWithinFolderQuery removes one message and adds another.
var replaceWithinFolderQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1, changed_modseq = modseq + 1,
		unseen = unseen + $4, bytes = bytes + $5, surcharge = surcharge + $6, surcharge_mark = surcharge_mark + 2
	WHERE id = $1 AND name = $2 AND changed_modseq = $3 RETURNING uid_next - 1, modseq, uidvalidity`)

// replaceOperation is a Replace in progress.
type replaceOperation struct {
	view         *View
	to           Folder
	old          selection
	new          *pendingMessage
	baseModSeq   uint64
	srcModSeq    uint64 // mod-sequence of the change in the view's folder
	quotaWarning bool   // whether to warn the owner that little quota is left
}

// Replace adds a message to a folder of the mailbox and removes the message uid from the view's
// folder, in one commit (RFC 8508). Sync then reports that the old message is gone. Only the amount
// by which the new message uses more counts against the quota. It returns a fault.RateLimited for a
// folder with too many messages, a fault.NotFound for a missing folder, and a fault.NotFound with
// CodeMessageGone for a missing message.
func (v *View) Replace(ctx context.Context, uid uint32, to string, u Upload) (MessageRef, error) {
	sh := v.shared
	var r replaceOperation
	err := sh.retryStale(ctx, func() error {
		dst, err := v.store.folderByName(ctx, v.row.Mailbox, to)
		if err != nil {
			return err
		}
		snap, since := sh.current()
		r = replaceOperation{view: v, to: dst, baseModSeq: since}
		for index, e := range snap.EachOf([]uint32{uid}) {
			r.old.add(index, e)
		}
		if len(r.old.uids) == 0 {
			return messageExpungedError()
		}
		if dst.ID != sh.id {
			if err := v.store.checkCapacity(dst, 1); err != nil {
				return err
			}
		}
		if r.new, err = v.store.newPendingMessage(v.row.Mailbox, u); err != nil {
			return err
		}
		err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
			Guard: r.guard,
			Apply: r.apply,
			AfterCommit: func() {
				v.store.wakeFolder(dst.ID)
				if dst.ID != sh.id {
					v.store.wakeFolder(sh.id)
				}
				v.store.wakeQuotaNotifier(r.quotaWarning)
			},
		})
		if err == nil {
			sh.publish(since, r.srcModSeq, nil, r.old.uids)
		}
		return err
	})
	if err != nil {
		return MessageRef{}, err
	}
	return r.new.MessageRef, nil
}

// guard locks the rows of both folders.
func (r *replaceOperation) guard(b *db.Batch) {
	from, f := r.view.shared.id, r.new
	f.Folder = r.to.ID
	b.Queue(mailbox.LockUsage(r.to.Mailbox))
	if from == r.to.ID {
		b.Queue(replaceWithinFolderQuery.With(from, r.to.Name, int64(r.baseModSeq), f.unseenCount()-r.old.unseen, f.size()-r.old.bytes, f.usage().Overhead-r.old.surcharge)).
			One(&f.UID, &f.ModSeq, &f.UIDValidity).OrFail(errStale)
	} else {
		b.Queue(r.old.removeStatement(from, r.baseModSeq, 1)).One(new(uint64), &r.srcModSeq).OrFail(errStale)
		b.Queue(totals{1, f.unseenCount(), f.size(), f.usage().Overhead}.reserveStatement(r.to, r.view.store.MaxMessages)).
			One(&f.UID, &f.ModSeq, &f.UIDValidity).OrFail(errStale)
	}
	// A mailbox over its quota may shrink.
	more := mailbox.Usage{Bytes: f.size() - r.old.bytes, Overhead: f.usage().Overhead - r.old.surcharge}
	if more.Bytes+more.Overhead > 0 {
		b.Queue(mailbox.ReserveUsage(r.to.Mailbox, more)).Each(mailbox.ScanNearlyFull(&r.quotaWarning)).OrFail(mailbox.FullError())
	} else {
		b.Queue(mailbox.AddUsage(r.to.Mailbox, more))
	}
}

func (r *replaceOperation) apply(b *db.Batch) {
	sh := r.view.shared
	if r.to.ID == sh.id {
		r.srcModSeq = r.new.ModSeq
	}
	r.new.queueInserts(b)
	for p := range uidBatches(r.old.spans.Spans) {
		b.Queue(p.statement(recordExpungedQuery, recordExpungedListQuery, sh.id, r.new.now))
		b.Queue(p.statement(deleteRowsQuery, deleteRowsListQuery, sh.id))
	}
	sh.logChange(b, r.baseModSeq, r.srcModSeq, true, snapshot.FormatRanges(r.old.spans.Ranges()))
}
