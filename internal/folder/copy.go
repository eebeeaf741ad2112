// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// holdFolder keeps others from changing the messages that are copied.
	holdFolder = db.SQL(`SELECT changed FROM folder WHERE id = $1 AND changed = $2 {for_update}`)
	// addMessages takes UIDs for messages that come in, unless the folder is full then.
	addMessages = db.SQL(`UPDATE folder SET uid_next = uid_next + $4, modseq = modseq + 1,
			messages = messages + $4, unseen = unseen + $5, bytes = bytes + $6,
			surcharge = surcharge + $7, surcharge_mark = surcharge_mark + $4
		WHERE id = $1 AND mailbox = $2 AND name = $3 AND messages + $4 <= $8 RETURNING uid_next - $4, modseq, uidvalidity`)
	// moveWithin is both at once, for a move to the folder itself.
	moveWithin = db.SQL(`UPDATE folder SET uid_next = uid_next + $4, modseq = modseq + $5, changed = modseq + $5, surcharge_mark = surcharge_mark + 2 * $4
		WHERE id = $1 AND name = $2 AND changed = $3 RETURNING uid_next - $4, modseq, uidvalidity`)
	copyRows = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT CAST($4 AS BIGINT), CAST($5 AS BIGINT) - 1 + ROW_NUMBER() OVER (ORDER BY uid), message, flags, keywords,
			CAST($6 AS BIGINT), size, internal_date, CAST($7 AS BIGINT)
		FROM folder_message WHERE folder = $3 AND uid BETWEEN $1 AND $2`)
	copyRowsList = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT CAST($18 AS BIGINT), CAST($19 AS BIGINT) - 1 + ROW_NUMBER() OVER (ORDER BY uid), message, flags, keywords,
			CAST($20 AS BIGINT), size, internal_date, CAST($21 AS BIGINT)
		FROM folder_message WHERE folder = $17
			AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
)

// ErrExpunged is for messages of which all are wanted, when some are no more.
var ErrExpunged = errors.New("some of the messages are expunged")

// Copied tells the UIDs of copied messages: Dst[i] is the copy of Src[i].
type Copied struct {
	UIDValidity uint32 // of the destination
	Src, Dst    []uint32
	From, To    Folder // as they were before
}

// Runs returns the UIDs of the copies: others arrive between the parts of a move.
func (c *Copied) Runs() (runs []Range) {
	for _, uid := range c.Dst {
		runs = appendUID(runs, uid)
	}
	return runs
}

// transfer is a copy or a move on its way.
type transfer struct {
	*chosen
	store    *Store
	from, to Folder
	since    uint64
	move     bool
	tell     bool   // the owner, that there is little room left
	first    uint32 // the UID of the first copy
	dstSeq   uint64 // mod-sequences of the change in the two folders
	srcSeq   uint64
	validity uint32
	micros   int64
	source   *shared
	log      string // of a move, its entry in the source's log
}

// Copy copies messages to another folder of the mailbox, all in one commit. No
// such folder is a fault.NotFound, no room a fault.OverQuota, more messages than
// Options.Carry, or than the folder can take, a fault.Limited. Messages that were expunged meanwhile are left
// out.
func (v *View) Copy(ctx context.Context, uids []uint32, to string) (c Copied, err error) {
	err = v.transfer(ctx, &c, uids, nil, to, false)
	return c, err
}

// CopyAll is Copy, but copies nothing (ErrExpunged) unless all messages are
// there.
func (v *View) CopyAll(ctx context.Context, uids []uint32, to string) (c Copied, err error) {
	err = v.transfer(ctx, &c, uids, uids, to, false)
	return c, err
}

// Move moves messages to another folder, each of which is in one of the two at
// any time (RFC 6851 §3.3); Sync tells that they are gone from here. It does so in
// parts: with an error Copied tells what was moved before it, and the others
// have stayed.
func (v *View) Move(ctx context.Context, uids []uint32, to string) (Copied, error) {
	return v.move(ctx, uids, to, false)
}

// MoveAll is Move, but moves nothing (ErrExpunged) unless all messages are there
// when it begins, and ends before the part of which one is gone later.
func (v *View) MoveAll(ctx context.Context, uids []uint32, to string) (Copied, error) {
	return v.move(ctx, uids, to, true)
}

func (v *View) move(ctx context.Context, uids []uint32, to string, all bool) (c Copied, err error) {
	part := func() []uint32 { return uids[:min(len(uids), v.store.Part)] }
	for needed := uids; ; needed = part() {
		if !all {
			needed = nil
		}
		err = v.transfer(ctx, &c, part(), needed, to, true)
		if uids = uids[len(part()):]; err != nil || len(uids) == 0 {
			return c, err
		}
	}
}

// transfer copies or moves messages in one commit, unless one of those needed is
// gone, and adds to c what it did.
func (v *View) transfer(ctx context.Context, c *Copied, uids, needed []uint32, to string, move bool) error {
	sh := v.shared
	var t transfer
	err := sh.repeatedly(ctx, func() error {
		dst, err := v.store.byName(ctx, v.row.Mailbox, to)
		if err == nil && c.To.ID != 0 && c.To.ID != dst.ID { // of that name there is another now
			err = noFolder()
		}
		if err != nil {
			return err
		}
		snap, since := sh.state()
		t = transfer{
			chosen: &chosen{}, store: v.store, from: v.row, to: dst, since: since, move: move, micros: db.Micros(v.store.Now()), source: sh,
		}
		for index, e := range snap.pick(uids) {
			t.add(index, e)
		}
		if !snap.hasAll(needed) {
			return ErrExpunged
		}
		if len(t.uids) == 0 {
			t.validity = dst.UIDValidity
			return nil
		}
		if most := v.store.Carry; !move && len(t.uids) > most {
			return fault.New(fault.Limited, "too_many_messages", "At most %d messages can be copied at once. Take them in parts.", most)
		}
		if !move || dst.ID != sh.id {
			if err := v.store.fits(dst, t.messages); err != nil {
				return err
			}
		}
		if move {
			t.log = t.spans.text()
		}
		err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Job{
			Guard: t.guard,
			Apply: t.apply,
			AfterCommit: func() {
				v.store.wakeFolder(dst.ID)
				if move && dst.ID != sh.id {
					v.store.wakeFolder(sh.id)
				}
				v.store.wakeRoom(t.tell)
			},
		})
		if err == nil && move {
			sh.publish(since, t.srcSeq, nil, t.uids)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.UIDValidity, c.From, c.To = t.validity, t.from, t.to
	c.Src = append(c.Src, t.uids...)
	for i := range t.uids {
		c.Dst = append(c.Dst, t.first+uint32(i))
	}
	return nil
}

// guard takes the rows of both folders.
func (t *transfer) guard(b *db.Batch) {
	b.Queue(mailbox.Hold(t.from.Mailbox))
	if t.move && t.from.ID == t.to.ID {
		b.Queue(moveWithin.With(t.to.ID, t.to.Name, int64(t.since), t.messages, step(t.log))).One(&t.first, &t.dstSeq, &t.validity).Else(errStale)
		return
	}
	if t.move {
		b.Queue(t.take(t.from.ID, t.since, step(t.log))).One(new(uint64), &t.srcSeq).Else(errStale)
	} else {
		b.Queue(holdFolder.With(t.from.ID, int64(t.since))).One(new(int64)).Else(errStale)
	}
	b.Queue(t.addTo(t.to, t.store.MaxMessages)).
		One(&t.first, &t.dstSeq, &t.validity).Else(errStale)
	if !t.move {
		b.Queue(mailbox.Claim(t.from.Mailbox, t.use())).Each(mailbox.ToTell(&t.tell)).Else(mailbox.Full())
	}
}

func (t *transfer) apply(b *db.Batch) {
	if t.from.ID == t.to.ID {
		t.srcSeq = t.dstSeq
	}
	next := int64(t.first)
	for p := range pieces(t.spans.list) {
		b.Queue(p.with(copyRows, copyRowsList, t.from.ID, t.to.ID, next, int64(t.dstSeq), t.micros))
		next += int64(p.n)
	}
	if !t.move {
		return
	}
	for p := range pieces(t.spans.list) {
		b.Queue(p.with(takeOut, takeOutList, t.from.ID))
	}
	t.source.logChange(b, t.since, t.srcSeq, true, t.log)
}
