// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// entryColumns are the columns that scanEntry scans.
const entryColumns = `uid, flags, keywords, size, modseq`

var (
	messagesFromQuery = db.SQL(`SELECT ` + entryColumns + ` FROM folder_message
		WHERE folder = $1 AND uid >= $2 ORDER BY uid LIMIT $3`)
	messagesBetweenQuery = db.SQL(`SELECT ` + entryColumns + ` FROM folder_message
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 ORDER BY uid`)
	messagesByUIDQuery = db.SQL(`SELECT ` + entryColumns + ` FROM folder_message
		WHERE folder = $17 AND uid ` + inList + ` ORDER BY uid`)
	changesAfterQuery = db.SQL(`SELECT modseq, vanished, uids FROM folder_change
		WHERE folder = $1 AND modseq > $2 ORDER BY modseq LIMIT $3`)
)

// Number of rows read at once, so that read transactions stay short.
const (
	loadPageMessages = 20_000 // messages
	logPageChanges   = 1_000  // changes
)

// The log keeps the changes of the last logRetention mod-sequences, of at most logEntryBytes bytes
// each on average. The first change of every logPruneInterval prunes it in its own commit.
const (
	logRetention     = 1 << 16
	logEntryBytes    = 64
	logPruneInterval = 1 << 8
	logReloadMargin  = 1 << 10
)

// A change of flags uses at most maxLogRanges ranges of the log. A refresh reads at most
// maxReadRanges for all changes.
const (
	maxLogRanges  = 1_000
	maxReadRanges = 10_000
)

// refresh brings the view up to date if it was woken or force is set. It returns a fault.NotFound
// when the folder is gone.
//
// It reads the row, the new changes, the messages they name and the new messages, each in its own
// statement, so each may see a later state than the one before. Changes and arrivals become visible
// in the order of their numbers, since both are made while the folder's row is locked. Refresh
// reads again what it saw too early, and does not return before: a client that is told of a
// mod-sequence has been told of all before it.
func (sh *sharedView) refresh(ctx context.Context, force bool) error {
	sh.refreshMu.Lock()
	defer sh.refreshMu.Unlock()
	select {
	case <-sh.sub.C:
		sh.stale = true
	default:
	}
	if !force && !sh.stale && sh.store.PollInterval > 0 {
		return nil
	}
	sh.stale = true // until all is read
	err := sh.catchUp(ctx)
	sh.stale = err != nil
	return err
}

// catchUp reads the changes since the last refresh; refreshMu must be held.
func (sh *sharedView) catchUp(ctx context.Context) error {
	for {
		row, err := readFolder(ctx, sh.store.DB, folderByIDQuery.With(sh.id))
		if err != nil {
			return err
		}
		again := false
		sh.maxReadModSeq = 0
		switch {
		case !sh.loaded || row.changeModSeq != sh.changeModSeq && row.ModSeq-sh.changeModSeq > logRetention-logReloadMargin:
			// The view is empty, or so outdated that the log may be pruned while it is read.
			err, again = sh.loadSnapshot(ctx, row), true
		case row.changeModSeq != sh.changeModSeq || row.UIDNext != sh.nextUID:
			err = sh.applyChanges(ctx, row)
			if errors.Is(err, errLogPruned) {
				err, again = sh.loadSnapshot(ctx, row), true
			}
		}
		if err != nil {
			return err
		}
		sh.mu.Lock()
		sh.row = row
		sh.recentFrom = max(sh.recentFrom, row.recentFrom)
		sh.mu.Unlock()
		if !again && sh.maxReadModSeq <= row.ModSeq {
			return nil
		}
	}
}

// loadSnapshot loads the stored view, or reads all messages.
func (sh *sharedView) loadSnapshot(ctx context.Context, row Folder) error {
	if !sh.loaded && row.Messages >= minSavedMessages {
		found, err := sh.loadSaved(ctx, row)
		if err == nil && found || ctx.Err() != nil {
			return err
		}
		if err != nil {
			sh.store.Log.Warn("the stored view of a folder could not be read; its messages are", "folder", sh.id, "error", err)
		}
	}
	all, next, err := sh.appendArrivals(ctx, &snapshot.Snapshot{}, 1, row.UIDNext)
	if err != nil {
		return err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.snap, sh.nextUID, sh.changeModSeq, sh.loaded = all, next, row.changeModSeq, true
	return nil
}

// applyChanges reads the changes and arrivals since the last time.
func (sh *sharedView) applyChanges(ctx context.Context, row Folder) error {
	changed, gone, upTo, err := sh.readLog(ctx, row)
	if err != nil {
		return err
	}
	changed = snapshot.SubtractRanges(changed, gone)
	put, err := sh.readEntries(ctx, snapshot.CoarsenRanges(changed, maxReadRanges))
	if err != nil {
		return err
	}
	// Messages that are not in the view yet come as arrivals.
	put = slices.DeleteFunc(put, func(e snapshot.Entry) bool { return e.UID >= sh.nextUID })
	snap := sh.snap.Apply(put, sh.removedUIDs(gone, changed, put))
	next := sh.nextUID
	if row.UIDNext > next {
		if snap, next, err = sh.appendArrivals(ctx, snap, next, row.UIDNext); err != nil {
			return err
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.snap, sh.nextUID, sh.changeModSeq = snap, next, upTo
	return nil
}

// removedUIDs returns the ascending UIDs of the view's messages that no longer exist: those that
// vanished, and those that changed and were not found afterwards. The latter were expunged after
// the log was read. If the view kept them, it would be older than the mod-sequence up to which the
// log was read.
func (sh *sharedView) removedUIDs(gone, changed []Range, found []snapshot.Entry) (drop []uint32) {
	for _, r := range gone {
		for _, e := range sh.snap.Between(sh.snap.IndexRange(r)) {
			drop = append(drop, e.UID)
		}
	}
	for _, r := range changed {
		for _, e := range sh.snap.Between(sh.snap.IndexRange(r)) {
			for len(found) > 0 && found[0].UID < e.UID {
				found = found[1:]
			}
			if len(found) == 0 || found[0].UID != e.UID {
				drop = append(drop, e.UID)
			}
		}
	}
	slices.Sort(drop)
	return drop
}

// errLogPruned is returned when the log was pruned while it was read.
var errLogPruned = errors.New("the change log does not go back that far any more")

// readLog returns the UIDs that changed and that vanished, normalized, and the mod-sequence up to
// which they are known.
func (sh *sharedView) readLog(ctx context.Context, row Folder) (changed, gone []Range, upTo uint64, err error) {
	upTo = sh.changeModSeq
	most := 1 << 16 // ranges before they are normalized, as the same ones may occur many times
	for {
		n := 0
		err := sh.store.DB.Each(ctx, changesAfterQuery.With(sh.id, int64(upTo), logPageChanges), func(r db.Row) error {
			n++
			var vanished bool
			var uids string
			if err := r.Scan(&upTo, &vanished, &uids); err != nil {
				return err
			}
			into := &changed
			if vanished {
				into = &gone
			}
			var err error
			*into, err = snapshot.ParseRanges(*into, uids)
			if len(changed) > most {
				changed = snapshot.NormalizeRanges(changed)
				most = max(most, 2*len(changed))
			}
			return err
		})
		if err != nil {
			return nil, nil, 0, err
		}
		if n < logPageChanges {
			break
		}
	}
	if upTo > sh.changeModSeq+logRetention { // the change that prunes is in the log by then
		return nil, nil, 0, errLogPruned
	}
	return snapshot.NormalizeRanges(changed), snapshot.NormalizeRanges(gone), max(upTo, row.changeModSeq), nil
}

// readEntries reads the messages with these UIDs that exist.
func (sh *sharedView) readEntries(ctx context.Context, uids []Range) (found []snapshot.Entry, err error) {
	var spans []snapshot.Span
	for _, r := range uids {
		for lo := uint64(r.Lo); lo <= uint64(r.Hi); lo += loadPageMessages {
			hi := min(uint64(r.Hi), lo+loadPageMessages-1)
			spans = append(spans, snapshot.Span{Range: Range{Lo: uint32(lo), Hi: uint32(hi)}, N: int(hi - lo + 1)})
		}
	}
	for p := range uidBatches(spans) {
		err := sh.store.DB.Each(ctx, p.statement(messagesBetweenQuery, messagesByUIDQuery, sh.id), func(row db.Row) error {
			e, err := sh.scanEntry(row)
			found = append(found, e)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// appendArrivals appends the messages with UIDs from from on to snap. It returns the UID from which
// on nothing was read, at least upTo.
func (sh *sharedView) appendArrivals(ctx context.Context, snap *snapshot.Snapshot, from, upTo uint32) (*snapshot.Snapshot, uint32, error) {
	page := make([]snapshot.Entry, 0, min(loadPageMessages, upTo-from))
	for {
		page = page[:0]
		err := sh.store.DB.Each(ctx, messagesFromQuery.With(sh.id, from, loadPageMessages), func(row db.Row) error {
			e, err := sh.scanEntry(row)
			page = append(page, e)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		snap = snap.Apply(page, nil)
		if len(page) > 0 {
			from = page[len(page)-1].UID + 1
		}
		if len(page) < loadPageMessages {
			return snap, max(from, upTo), nil
		}
	}
}

func (sh *sharedView) scanEntry(r db.Row) (snapshot.Entry, error) {
	var uid, flags, size, modseq int64
	var keywords string
	err := r.Scan(&uid, &flags, &keywords, &size, &modseq)
	sh.maxReadModSeq = max(sh.maxReadModSeq, uint64(modseq))
	return snapshot.Entry{UID: uint32(uid), Flags: Flags(flags), Keywords: sh.keywords.ID(keywords), Size: uint32(size), ModSeq: uint64(modseq)}, err
}
