// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

var (
	messagesFrom = db.SQL(`SELECT uid, flags, keywords, size, modseq FROM folder_message
		WHERE folder = $1 AND uid >= $2 ORDER BY uid LIMIT $3`)
	messagesBetween = db.SQL(`SELECT uid, flags, keywords, size, modseq FROM folder_message
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 ORDER BY uid`)
	messagesOfList = db.SQL(`SELECT uid, flags, keywords, size, modseq FROM folder_message
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY uid`)
	changesAfter = db.SQL(`SELECT modseq, vanished, uids FROM folder_change
		WHERE folder = $1 AND modseq > $2 ORDER BY modseq LIMIT $3`)
)

// Sizes of what is read at once, so that no read transaction lives long.
const (
	loadPage = 20_000 // messages
	logPage  = 1_000  // changes
)

// The log keeps the changes of the last logKeep mod-sequences, of logUnit bytes
// each on average at most. It is pruned by the first change of every logPrune, in
// the commit that makes it.
const (
	logKeep   = 1 << 16
	logUnit   = 64
	logPrune  = 1 << 8
	logMargin = 1 << 10
)

// A change of flags takes at most logRanges ranges of the log. At most readRanges are read for all changes.
const (
	logRanges  = 1_000
	readRanges = 10_000
)

// refresh brings the view up to date, if it may be behind: it was woken, is
// told so by force, or nobody has looked for a while. It returns a
// fault.NotFound when the folder is gone.
//
// It reads the row, the new changes, the messages they name and the new
// messages, each by a statement of its own, so each may see more than the one
// before. Changes and arrivals become visible in the order of their numbers,
// since both are made while the folder's row is locked. What was seen too early
// is read once more, and until then it reads on: who is told of a mod-sequence
// has heard of all before it.
func (sh *shared) refresh(ctx context.Context, force bool) error {
	sh.look.Lock()
	defer sh.look.Unlock()
	now := sh.store.Now()
	woken := false
	select {
	case <-sh.sub.C:
		woken = true
	default:
	}
	if !force && !woken && sh.loaded && now.Sub(sh.checked) <= sh.store.Poll {
		return nil
	}
	if err := sh.read(ctx); err != nil {
		sh.checked = time.Time{} // a signal is used up, or only a part was read
		return err
	}
	sh.checked = now
	return nil
}

// read reads what is new; look is held.
func (sh *shared) read(ctx context.Context) error {
	for {
		row, err := readFolder(ctx, sh.store.DB, folderByID.With(sh.id))
		if err != nil {
			return err
		}
		again := false
		sh.ahead = 0
		switch {
		case !sh.loaded || row.changed != sh.changed && row.ModSeq-sh.changed > logKeep-logMargin:
			// Nothing there yet, or so far behind that the log may be cut
			// off while it is read.
			err, again = sh.load(ctx, row), true
		case row.changed != sh.changed || row.UIDNext != sh.next:
			err = sh.update(ctx, row)
			if errors.Is(err, errCut) {
				err, again = sh.load(ctx, row), true
			}
		}
		if err != nil {
			return err
		}
		sh.mu.Lock()
		sh.row = row
		sh.recentFrom = max(sh.recentFrom, row.recentFrom)
		sh.mu.Unlock()
		if !again && sh.ahead <= row.ModSeq {
			return nil
		}
	}
}

// load begins with the stored view, or reads all messages.
func (sh *shared) load(ctx context.Context, row Folder) error {
	if !sh.loaded && row.Messages >= storeFrom {
		found, err := sh.loadStored(ctx, row)
		if err == nil && found || ctx.Err() != nil {
			return err
		}
		if err != nil {
			sh.store.Log.Warn("the stored view of a folder could not be read; its messages are", "folder", sh.id, "error", err)
		}
	}
	all, next, err := sh.arrivals(ctx, &snapshot{}, 1, row.UIDNext)
	if err != nil {
		return err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.snap, sh.next, sh.changed, sh.loaded = all, next, row.changed, true
	return nil
}

// update reads the changes and arrivals since the last time.
func (sh *shared) update(ctx context.Context, row Folder) error {
	changed, gone, upTo, err := sh.readLog(ctx, row)
	if err != nil {
		return err
	}
	changed = without(changed, gone)
	put, err := sh.entries(ctx, coarse(changed, readRanges))
	if err != nil {
		return err
	}
	// What isn't in the view yet comes as an arrival.
	put = slices.DeleteFunc(put, func(e entry) bool { return e.uid >= sh.next })
	snap := sh.snap.with(put, sh.missing(gone, changed, put))
	next := sh.next
	if row.UIDNext > next {
		if snap, next, err = sh.arrivals(ctx, snap, next, row.UIDNext); err != nil {
			return err
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.snap, sh.next, sh.changed = snap, next, upTo
	return nil
}

// missing returns the UIDs of the view's messages, rising, that are no more:
// what vanished, and what changed and was not found afterwards. That was
// expunged since the log was read, which does not say so yet; as the view had
// it, it would be older than what its log goes up to.
func (sh *shared) missing(gone, changed []Range, found []entry) (drop []uint32) {
	for _, r := range gone {
		for _, e := range sh.snap.between(sh.snap.span(r)) {
			drop = append(drop, e.uid)
		}
	}
	for _, r := range changed {
		for _, e := range sh.snap.between(sh.snap.span(r)) {
			for len(found) > 0 && found[0].uid < e.uid {
				found = found[1:]
			}
			if len(found) == 0 || found[0].uid != e.uid {
				drop = append(drop, e.uid)
			}
		}
	}
	slices.Sort(drop)
	return drop
}

// errCut says that the log was pruned while it was read.
var errCut = errors.New("the change log does not go back that far any more")

// readLog returns the UIDs, normal, that changed and that vanished, and the
// mod-sequence up to which that is known.
func (sh *shared) readLog(ctx context.Context, row Folder) (changed, gone []Range, upTo uint64, err error) {
	upTo = sh.changed
	most := 1 << 16 // ranges before they are made normal: the same may come again and again
	for {
		n := 0
		err := sh.store.DB.Each(ctx, changesAfter.With(sh.id, int64(upTo), logPage), func(r db.Row) error {
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
			*into, err = parseRanges(*into, uids)
			if len(changed) > most {
				changed = normal(changed)
				most = max(most, 2*len(changed))
			}
			return err
		})
		if err != nil {
			return nil, nil, 0, err
		}
		if n < logPage {
			break
		}
	}
	if upTo > sh.changed+logKeep { // who prunes is in the log by then
		return nil, nil, 0, errCut
	}
	return normal(changed), normal(gone), max(upTo, row.changed), nil
}

// entries reads the messages with these UIDs, as far as they are there.
func (sh *shared) entries(ctx context.Context, uids []Range) (found []entry, err error) {
	var spans []span
	for _, r := range uids {
		for lo := uint64(r.Lo); lo <= uint64(r.Hi); lo += loadPage {
			hi := min(uint64(r.Hi), lo+loadPage-1)
			spans = append(spans, span{Range{uint32(lo), uint32(hi)}, int(hi - lo + 1)})
		}
	}
	for p := range pieces(spans) {
		err := sh.store.DB.Each(ctx, p.with(messagesBetween, messagesOfList, sh.id), func(row db.Row) error {
			e, err := sh.scan(row)
			found = append(found, e)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// arrivals adds to snap the messages from a UID on, and returns the UID from
// which nothing was read; at least upTo.
func (sh *shared) arrivals(ctx context.Context, snap *snapshot, from, upTo uint32) (*snapshot, uint32, error) {
	page := make([]entry, 0, min(loadPage, upTo-from))
	for {
		page = page[:0]
		err := sh.store.DB.Each(ctx, messagesFrom.With(sh.id, from, loadPage), func(row db.Row) error {
			e, err := sh.scan(row)
			page = append(page, e)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		snap = snap.with(page, nil)
		if len(page) > 0 {
			from = page[len(page)-1].uid + 1
		}
		if len(page) < loadPage {
			return snap, max(from, upTo), nil
		}
	}
}

func (sh *shared) scan(r db.Row) (entry, error) {
	var uid, flags, size, modseq int64
	var keywords string
	err := r.Scan(&uid, &flags, &keywords, &size, &modseq)
	sh.ahead = max(sh.ahead, uint64(modseq))
	return entry{uid: uint32(uid), flags: Flags(flags), words: sh.words.id(keywords), size: uint32(size), modseq: uint64(modseq)}, err
}
