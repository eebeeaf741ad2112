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

// A command that changes messages computes the change from the node's view. The database applies it
// only if no other change came after those that the view knows, by one conditional update of the
// folder's row. Otherwise the command refreshes the view and retries. So it knows beforehand which
// messages it will find and needs to read none; arrivals don't disturb it. All changes to a
// folder's messages work this way, so the row's lock orders them.

var (
	updateFolderIfCurrentQuery = db.SQL(`UPDATE folder SET modseq = modseq + $6, changed_modseq = modseq + $6,
			messages = messages - $3, unseen = unseen - $4, bytes = bytes - $5,
			surcharge = surcharge - $7, surcharge_mark = surcharge_mark + $3
		WHERE id = $1 AND changed_modseq = $2 RETURNING modseq - $6, modseq`)
	insertChangeQuery  = db.SQL(`INSERT INTO folder_change (folder, modseq, vanished, uids) VALUES ($1, $2, $3, $4)`)
	pruneChangesQuery  = db.SQL(`DELETE FROM folder_change WHERE folder = $1 AND modseq <= $2`)
	raiseLogLayerQuery = db.SQL(`UPDATE folder SET log_start_modseq = $2 WHERE id = $1 AND log_start_modseq < $2`)
)

// errStale declines a mutation that was computed from an old view.
var errStale = errors.New("the folder has changed meanwhile")

// maxStaleRetries is how many times a command is retried because other nodes change the same
// folder.
const maxStaleRetries = 200

// totals are sums over messages.
type totals struct{ messages, unseen, bytes, surcharge int64 }

func (t *totals) add(e snapshot.Entry) {
	t.messages++
	t.bytes += int64(e.Size)
	t.surcharge += mailbox.Overhead(int64(e.Size))
	if e.Flags&Seen == 0 {
		t.unseen++
	}
}

// usage returns what the messages count for in their mailbox.
func (t totals) usage() mailbox.Usage {
	return mailbox.Usage{Bytes: t.bytes, Messages: t.messages, Overhead: t.surcharge}
}

// removeStatement returns the statement that removes messages from a folder and raises its
// mod-sequence by step. It changes nothing if there is a change after since.
func (t totals) removeStatement(folder db.ID, since uint64, step int64) db.Statement {
	return updateFolderIfCurrentQuery.With(folder, int64(since), t.messages, t.unseen, t.bytes, step, t.surcharge)
}

// reserveStatement returns the statement that reserves UIDs for messages that come into a folder,
// identified by its name. It changes nothing if the folder would hold more than most messages.
func (t totals) reserveStatement(f Folder, most int) db.Statement {
	return reserveUIDsQuery.With(f.ID, f.Mailbox, f.Name, t.messages, t.unseen, t.bytes, t.surcharge, most)
}

// retryStale calls try until it succeeds. try returns errStale when it was computed from an old
// view.
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

// checkUnchanged returns errStale if the folder has changed after since.
func (sh *sharedView) checkUnchanged(ctx context.Context, since uint64) error {
	if err := sh.refresh(ctx, true); err != nil {
		return err
	}
	if _, changed := sh.current(); changed != since {
		return errStale
	}
	return nil
}

// modSeqStep returns by how much a change raises the mod-sequence whose log entry is uids. No quota
// counts the log, so a long entry takes as many of the logRetention mod-sequences as short entries
// of its total size.
func modSeqStep(uids string) int64 { return 1 + int64(len(uids)/logEntryBytes) }

// logChange queues the log entry that follows mod-sequence since, and sometimes the pruning of the
// log: arrivals may take every number that logPruneInterval divides.
func (sh *sharedView) logChange(b *db.Batch, since, modseq uint64, vanished bool, uids string) {
	b.Queue(insertChangeQuery.With(sh.id, int64(modseq), vanished, uids))
	if modseq/logPruneInterval > since/logPruneInterval && modseq > logRetention {
		b.Queue(pruneChangesQuery.With(sh.id, int64(modseq-logRetention)))
		b.Queue(raiseLogLayerQuery.With(sh.id, int64(modseq-logRetention)))
	}
}
