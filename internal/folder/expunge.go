// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// A message may be in the folder twice.
	noteExpunged = db.SQL(`INSERT INTO expunged (message, at) SELECT DISTINCT message, CAST($4 AS BIGINT) FROM folder_message
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 ON CONFLICT (message) DO UPDATE SET at = excluded.at`)
	noteExpungedList = db.SQL(`INSERT INTO expunged (message, at) SELECT DISTINCT message, CAST($18 AS BIGINT) FROM folder_message
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
		ON CONFLICT (message) DO UPDATE SET at = excluded.at`)
	takeOut     = db.SQL(`DELETE FROM folder_message WHERE folder = $3 AND uid BETWEEN $1 AND $2`)
	takeOutList = db.SQL(`DELETE FROM folder_message
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
)

// chosen are messages that a command takes out or copies.
type chosen struct {
	totals
	uids  []uint32
	spans spans
}

func (c *chosen) add(index int, e entry) {
	c.totals.add(e)
	c.uids = append(c.uids, e.uid)
	c.spans.add(index, e.uid)
}

// deleted chooses the messages with the Deleted flag.
func deleted(snap *snapshot) (c chosen) {
	for _, slot := range snap.slots {
		if slot.some&Deleted == 0 {
			continue
		}
		for i := range slot.len() {
			if Flags(slot.flags.at(i))&Deleted == 0 {
				continue
			}
			c.add(slot.start+i, slot.entry(i))
		}
	}
	return c
}

// deletedOf chooses those of some messages that have it.
func deletedOf(snap *snapshot, uids []uint32) (c chosen) {
	for index, e := range snap.pick(uids) {
		if e.flags&Deleted != 0 {
			c.add(index, e)
		}
	}
	return c
}

// Expunge removes the messages with the Deleted flag, if only is not nil only
// those among these UIDs, which rise, and returns the UIDs of what it removed;
// Sync tells that they are gone. It does so in parts, of which some may be done
// before an error.
func (v *View) Expunge(ctx context.Context, only []uint32) (gone []uint32, err error) {
	sh := v.shared
	// Other nodes may have set flags of which this one has not heard.
	if err := sh.refresh(ctx, true); err != nil {
		return nil, err
	}
	if only == nil {
		snap, _ := sh.state()
		only = deleted(snap).uids
	}
	for part := range slices.Chunk(only, v.store.Part) {
		some, err := v.expunge(ctx, part)
		if err != nil {
			return gone, err
		}
		gone = append(gone, some...)
	}
	return gone, nil
}

// expunge removes what is deleted among some messages, in one commit.
func (v *View) expunge(ctx context.Context, uids []uint32) ([]uint32, error) {
	sh := v.shared
	var out chosen
	err := sh.repeatedly(ctx, func() error {
		snap, since := sh.state()
		out = deletedOf(snap, uids)
		if len(out.uids) == 0 {
			return nil
		}
		was, modseq, err := v.commitExpunge(ctx, &out, since)
		if err == nil {
			sh.publish(since, modseq, nil, out.uids)
			sh.tell(was, modseq, out.totals)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out.uids, nil
}

func (v *View) commitExpunge(ctx context.Context, out *chosen, since uint64) (was, modseq uint64, err error) {
	sh := v.shared
	now, log := db.Micros(v.store.Now()), out.spans.text()
	err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Job{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(v.row.Mailbox))
			b.Queue(out.take(sh.id, since, step(log))).One(&was, &modseq).Else(errStale)
		},
		Apply: func(b *db.Batch) {
			b.Queue(mailbox.Deposit(v.row.Mailbox, out.use().Less()))
			for p := range pieces(out.spans.list) {
				b.Queue(p.with(noteExpunged, noteExpungedList, sh.id, now))
				b.Queue(p.with(takeOut, takeOutList, sh.id))
			}
			sh.logChange(b, since, modseq, true, log)
		},
	})
	return was, modseq, err
}
