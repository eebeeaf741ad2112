// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
)

var (
	// A folder may hold a message twice.
	recordExpungedQuery = db.SQL(`INSERT INTO expunged_message (message, at) SELECT DISTINCT message, CAST($4 AS BIGINT) FROM folder_message
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 ON CONFLICT (message) DO UPDATE SET at = excluded.at`)
	recordExpungedListQuery = db.SQL(`INSERT INTO expunged_message (message, at) SELECT DISTINCT message, CAST($18 AS BIGINT) FROM folder_message
		WHERE folder = $17 AND uid ` + inList + `
		ON CONFLICT (message) DO UPDATE SET at = excluded.at`)
	deleteRowsQuery     = db.SQL(`DELETE FROM folder_message WHERE folder = $3 AND uid BETWEEN $1 AND $2`)
	deleteRowsListQuery = db.SQL(`DELETE FROM folder_message
		WHERE folder = $17 AND uid ` + inList)
)

// selection is the messages that a command removes or copies.
type selection struct {
	totals
	uids  []uint32
	spans snapshot.SpanBuilder
}

func (c *selection) add(index int, e snapshot.Entry) {
	c.totals.add(e)
	c.uids = append(c.uids, e.UID)
	c.spans.Add(index, e.UID)
}

// selectDeleted selects the messages with the Deleted flag.
func selectDeleted(snap *snapshot.Snapshot) (c selection) {
	for index, e := range snap.EachWith(Deleted) {
		c.add(index, e)
	}
	return c
}

// selectDeletedOf selects the messages of uids with the Deleted flag.
func selectDeletedOf(snap *snapshot.Snapshot, uids []uint32) (c selection) {
	for index, e := range snap.EachOf(uids) {
		if e.Flags&Deleted != 0 {
			c.add(index, e)
		}
	}
	return c
}

// Expunge removes the messages with the Deleted flag and returns their UIDs. If only is not nil, it
// is limited to these UIDs, which ascend. Sync then reports that the messages are gone. Expunge
// works in batches, some of which may be committed before an error.
func (v *View) Expunge(ctx context.Context, only []uint32) (gone []uint32, err error) {
	sh := v.shared
	// Other nodes may have set flags that this node has not read yet.
	if err := sh.refresh(ctx, true); err != nil {
		return nil, err
	}
	if only == nil {
		snap, _ := sh.current()
		only = selectDeleted(snap).uids
	}
	for part := range slices.Chunk(only, v.store.BatchSize) {
		some, err := v.expungeBatch(ctx, part)
		if err != nil {
			return gone, err
		}
		gone = append(gone, some...)
	}
	return gone, nil
}

// expungeBatch removes the deleted messages among uids in one commit.
func (v *View) expungeBatch(ctx context.Context, uids []uint32) ([]uint32, error) {
	sh := v.shared
	var out selection
	err := sh.retryStale(ctx, func() error {
		snap, since := sh.current()
		out = selectDeletedOf(snap, uids)
		if len(out.uids) == 0 {
			return nil
		}
		was, modseq, err := v.commitExpunge(ctx, &out, since)
		if err == nil {
			sh.publish(since, modseq, nil, out.uids)
			sh.notifyOthers(was, modseq, out.totals)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out.uids, nil
}

func (v *View) commitExpunge(ctx context.Context, out *selection, since uint64) (was, modseq uint64, err error) {
	sh := v.shared
	now, log := db.Micros(v.store.Now()), snapshot.FormatRanges(out.spans.Ranges())
	err = v.store.DB.Write(ctx, v.row.Mailbox, &db.Mutation{
		Guard: func(b *db.Batch) {
			b.Queue(mailbox.LockUsage(v.row.Mailbox))
			b.Queue(out.removeStatement(sh.id, since, modSeqStep(log))).One(&was, &modseq).OrFail(errStale)
		},
		Apply: func(b *db.Batch) {
			b.Queue(mailbox.AddUsage(v.row.Mailbox, out.usage().Negate()))
			for p := range uidBatches(out.spans.Spans) {
				b.Queue(p.statement(recordExpungedQuery, recordExpungedListQuery, sh.id, now))
				b.Queue(p.statement(deleteRowsQuery, deleteRowsListQuery, sh.id))
			}
			sh.logChange(b, since, modseq, true, log)
		},
	})
	return was, modseq, err
}
