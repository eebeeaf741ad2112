// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// lockSourceQuery prevents others from changing the messages that are copied.
	lockSourceQuery = db.SQL(`SELECT changed_modseq FROM folder WHERE id = $1 AND changed_modseq = $2 {for_update}`)
	// reserveUIDsQuery reserves UIDs for incoming messages, unless the folder would become too
	// full.
	reserveUIDsQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + $4, modseq = modseq + 1,
			messages = messages + $4, unseen = unseen + $5, bytes = bytes + $6,
			surcharge = surcharge + $7, surcharge_mark = surcharge_mark + $4
		WHERE id = $1 AND mailbox = $2 AND name = $3 AND messages + $4 <= $8 RETURNING uid_next - $4, modseq, uidvalidity`)
	// moveWithinFolderQuery does both at once, for a move within one folder.
	moveWithinFolderQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + $4, modseq = modseq + $5, changed_modseq = modseq + $5, surcharge_mark = surcharge_mark + 2 * $4
		WHERE id = $1 AND name = $2 AND changed_modseq = $3 RETURNING uid_next - $4, modseq, uidvalidity`)
	copyRowsQuery = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT CAST($4 AS BIGINT), CAST($5 AS BIGINT) - 1 + ROW_NUMBER() OVER (ORDER BY uid), message, flags, keywords,
			CAST($6 AS BIGINT), size, internal_date, CAST($7 AS BIGINT)
		FROM folder_message WHERE folder = $3 AND uid BETWEEN $1 AND $2`)
	copyRowsListQuery = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT CAST($18 AS BIGINT), CAST($19 AS BIGINT) - 1 + ROW_NUMBER() OVER (ORDER BY uid), message, flags, keywords,
			CAST($20 AS BIGINT), size, internal_date, CAST($21 AS BIGINT)
		FROM folder_message WHERE folder = $17
			AND uid ` + inList)
)

// ErrExpunged is returned when all messages are required and some are expunged.
var ErrExpunged = errors.New("some of the messages are expunged")

// CopyResult holds the UIDs of copied messages: DstUIDs[i] is the copy of SrcUIDs[i].
type CopyResult struct {
	UIDValidity      uint32 // of the destination
	SrcUIDs, DstUIDs []uint32
	From, To         Folder // as they were before
}

// DstRanges returns the UIDs of the copies. They may have gaps, because other messages can arrive
// between the batches of a move.
func (c *CopyResult) DstRanges() (runs []Range) {
	for _, uid := range c.DstUIDs {
		runs = snapshot.AppendUID(runs, uid)
	}
	return runs
}

// copyOperation is a copy or a move in progress.
type copyOperation struct {
	*selection
	store        *Folders
	from, to     Folder
	baseModSeq   uint64
	move         bool
	quotaWarning bool   // whether to warn the owner that little quota is left
	firstUID     uint32 // the UID of the first copy
	dstModSeq    uint64 // mod-sequences of the change in the two folders
	srcModSeq    uint64
	uidValidity  uint32
	savedAt      int64
	source       *sharedView
	logUIDs      string // of a move: its entry in the source's log
}

// Copy copies messages to another folder of the mailbox, all in one commit. It leaves out messages
// that were expunged meanwhile. It returns a fault.NotFound if the folder does not exist, a
// fault.OverQuota if the copies exceed the quota, and a fault.RateLimited for more messages than
// Options.MaxCopy or than the folder can take.
func (v *View) Copy(ctx context.Context, uids []uint32, to string) (c CopyResult, err error) {
	err = v.copyOrMove(ctx, &c, uids, nil, to, false)
	return c, err
}

// CopyAll is Copy, but copies nothing and returns ErrExpunged unless all messages exist.
func (v *View) CopyAll(ctx context.Context, uids []uint32, to string) (c CopyResult, err error) {
	err = v.copyOrMove(ctx, &c, uids, uids, to, false)
	return c, err
}

// Move moves messages to another folder. Each message is in exactly one of the two at any time (RFC
// 6851 §3.3). Sync then reports that they are gone from this folder. Move works in batches: with an
// error, CopyResult holds the messages moved before it, and the others have stayed.
func (v *View) Move(ctx context.Context, uids []uint32, to string) (CopyResult, error) {
	return v.moveBatches(ctx, uids, to, false)
}

// MoveAll is Move, but moves nothing and returns ErrExpunged unless all messages exist when it
// begins. It stops before the batch in which a message has gone later.
func (v *View) MoveAll(ctx context.Context, uids []uint32, to string) (CopyResult, error) {
	return v.moveBatches(ctx, uids, to, true)
}

func (v *View) moveBatches(ctx context.Context, uids []uint32, to string, all bool) (c CopyResult, err error) {
	part := func() []uint32 { return uids[:min(len(uids), v.store.BatchSize)] }
	for needed := uids; ; needed = part() {
		if !all {
			needed = nil
		}
		err = v.copyOrMove(ctx, &c, part(), needed, to, true)
		if uids = uids[len(part()):]; err != nil || len(uids) == 0 {
			return c, err
		}
	}
}

// copyOrMove copies or moves messages in one commit and adds the result to c. It does nothing if
// one of the needed messages is gone.
func (v *View) copyOrMove(ctx context.Context, c *CopyResult, uids, needed []uint32, to string, move bool) error {
	sh := v.shared
	var t copyOperation
	err := sh.retryStale(ctx, func() error {
		dst, err := v.store.folderByName(ctx, v.row.Mailbox, to)
		if err == nil && c.To.ID != 0 && c.To.ID != dst.ID { // another folder has that name now
			err = noFolderError()
		}
		if err != nil {
			return err
		}
		snap, since := sh.current()
		t = copyOperation{
			selection: &selection{}, store: v.store, from: v.row, to: dst, baseModSeq: since, move: move, savedAt: db.Micros(v.store.Now()), source: sh,
		}
		for index, e := range snap.EachOf(uids) {
			t.add(index, e)
		}
		if !snap.HasAll(needed) {
			return ErrExpunged
		}
		if len(t.uids) == 0 {
			t.uidValidity = dst.UIDValidity
			return nil
		}
		if most := v.store.MaxCopy; !move && len(t.uids) > most {
			return fault.New(fault.RateLimited, "too_many_messages", "At most %d messages can be copied at once. Take them in parts.", most)
		}
		if !move || dst.ID != sh.id {
			if err := v.store.checkCapacity(dst, t.messages); err != nil {
				return err
			}
		}
		if move {
			t.logUIDs = snapshot.FormatRanges(t.spans.Ranges())
		}
		err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
			Guard: t.guard,
			Apply: t.apply,
			AfterCommit: func() {
				v.store.wakeFolder(dst.ID)
				if move && dst.ID != sh.id {
					v.store.wakeFolder(sh.id)
				}
				v.store.wakeQuotaNotifier(t.quotaWarning)
			},
		})
		if err == nil && move {
			sh.publish(since, t.srcModSeq, nil, t.uids)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.UIDValidity, c.From, c.To = t.uidValidity, t.from, t.to
	c.SrcUIDs = append(c.SrcUIDs, t.uids...)
	for i := range t.uids {
		c.DstUIDs = append(c.DstUIDs, t.firstUID+uint32(i))
	}
	return nil
}

// guard locks the rows of both folders.
func (t *copyOperation) guard(b *db.Batch) {
	b.Queue(mailbox.LockUsage(t.from.Mailbox))
	if t.move && t.from.ID == t.to.ID {
		b.Queue(moveWithinFolderQuery.With(t.to.ID, t.to.Name, int64(t.baseModSeq), t.messages, modSeqStep(t.logUIDs))).One(&t.firstUID, &t.dstModSeq, &t.uidValidity).OrFail(errStale)
		return
	}
	if t.move {
		b.Queue(t.removeStatement(t.from.ID, t.baseModSeq, modSeqStep(t.logUIDs))).One(new(uint64), &t.srcModSeq).OrFail(errStale)
	} else {
		b.Queue(lockSourceQuery.With(t.from.ID, int64(t.baseModSeq))).One(new(int64)).OrFail(errStale)
	}
	b.Queue(t.reserveStatement(t.to, t.store.MaxMessages)).
		One(&t.firstUID, &t.dstModSeq, &t.uidValidity).OrFail(errStale)
	if !t.move {
		b.Queue(mailbox.ReserveUsage(t.from.Mailbox, t.usage())).Each(mailbox.ScanNearlyFull(&t.quotaWarning)).OrFail(mailbox.FullError())
	}
}

func (t *copyOperation) apply(b *db.Batch) {
	if t.from.ID == t.to.ID {
		t.srcModSeq = t.dstModSeq
	}
	next := int64(t.firstUID)
	for p := range uidBatches(t.spans.Spans) {
		b.Queue(p.statement(copyRowsQuery, copyRowsListQuery, t.from.ID, t.to.ID, next, int64(t.dstModSeq), t.savedAt))
		next += int64(p.N)
	}
	if !t.move {
		return
	}
	for p := range uidBatches(t.spans.Spans) {
		b.Queue(p.statement(deleteRowsQuery, deleteRowsListQuery, t.from.ID))
	}
	t.source.logChange(b, t.baseModSeq, t.srcModSeq, true, t.logUIDs)
}
