// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// A command that changes messages reckons on the node's view what is to be
// done, and has the database do it only if no other change came after the
// ones that the view knows: one conditional update of the folder's row. Else it
// catches up and begins anew. So it knows beforehand which messages it will
// find, and needs to read none; arrivals don't disturb it. All that changes the
// messages of a folder goes this way, so the row's lock orders it.

var (
	updateFolderIfCurrentQuery = db.SQL(`UPDATE folder SET modseq = modseq + $6, changed = modseq + $6,
			messages = messages - $3, unseen = unseen - $4, bytes = bytes - $5,
			surcharge = surcharge - $7, surcharge_mark = surcharge_mark + $3
		WHERE id = $1 AND changed = $2 RETURNING modseq - $6, modseq`)
	insertChangeQuery  = db.SQL(`INSERT INTO folder_change (folder, modseq, vanished, uids) VALUES ($1, $2, $3, $4)`)
	pruneChangesQuery  = db.SQL(`DELETE FROM folder_change WHERE folder = $1 AND modseq <= $2`)
	raiseLogFloorQuery = db.SQL(`UPDATE folder SET log_floor = $2 WHERE id = $1 AND log_floor < $2`)
)

// errStale declines a job that was reckoned on an old view.
var errStale = errors.New("the folder has changed meanwhile")

// maxStaleRetries bounds how often a command begins anew because other nodes change
// the same folder.
const maxStaleRetries = 200

// totals are what messages add up to.
type totals struct{ messages, unseen, bytes, surcharge int64 }

func (t *totals) add(e entry) {
	t.messages++
	t.bytes += int64(e.size)
	t.surcharge += mailbox.Overhead(int64(e.size))
	if e.flags&Seen == 0 {
		t.unseen++
	}
}

// usage is what the messages count for in their mailbox.
func (t totals) usage() mailbox.Usage {
	return mailbox.Usage{Bytes: t.bytes, Messages: t.messages, Overhead: t.surcharge}
}

// removeStatement makes the statement that takes messages out of a folder, if no change came
// after since, and raises its mod-sequence by step.
func (t totals) removeStatement(folder db.ID, since uint64, step int64) db.Statement {
	return updateFolderIfCurrentQuery.With(folder, int64(since), t.messages, t.unseen, t.bytes, step, t.surcharge)
}

// reserveStatement makes the statement that takes UIDs for messages that come into a folder of
// this name, unless it is full then.
func (t totals) reserveStatement(f Folder, most int) db.Statement {
	return reserveUIDsQuery.With(f.ID, f.Mailbox, f.Name, t.messages, t.unseen, t.bytes, t.surcharge, most)
}

// retryStale calls try, which ends in errStale when it was reckoned on an old
// view, until it succeeds.
func (sh *sharedView) retryStale(ctx context.Context, try func() error) error {
	sh.writeMu.Lock()
	defer sh.writeMu.Unlock()
	for range maxStaleRetries {
		err := try()
		if !errors.Is(err, errStale) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sh.refresh(ctx, true); err != nil {
			return err
		}
	}
	return fault.New(fault.Unavailable, "folder_busy", "The folder is being changed by others all the time. Try again.")
}

// checkUnchanged returns errStale if there is a change after this one.
func (sh *sharedView) checkUnchanged(ctx context.Context, since uint64) error {
	if err := sh.refresh(ctx, true); err != nil {
		return err
	}
	if _, changed := sh.current(); changed != since {
		return errStale
	}
	return nil
}

// modSeqStep is by how much a change raises the mod-sequence whose entry in the log is
// uids. No quota counts the log, so a long entry takes as many of the logRetention
// mod-sequences as short ones of its size would.
func modSeqStep(uids string) int64 { return 1 + int64(len(uids)/logEntryBytes) }

// logChange queues the entry of the log after the one of mod-sequence since, and
// now and then its pruning: arrivals may take every number that logPruneInterval divides.
func (sh *sharedView) logChange(b *db.Batch, since, modseq uint64, vanished bool, uids string) {
	b.Queue(insertChangeQuery.With(sh.id, int64(modseq), vanished, uids))
	if modseq/logPruneInterval > since/logPruneInterval && modseq > logRetention {
		b.Queue(pruneChangesQuery.With(sh.id, int64(modseq-logRetention)))
		b.Queue(raiseLogFloorQuery.With(sh.id, int64(modseq-logRetention)))
	}
}
