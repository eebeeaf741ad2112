// SPDX-License-Identifier: Apache-2.0

// Package search finds messages: those of a folder for IMAP's SEARCH, SORT and THREAD, and those of
// a mailbox for the lists of the API and the dashboard.
//
// A SEARCH examines the folder's view first, then an index of texts, then the rows of the messages
// that are left, and their bytes last. The index only narrows: the results are the same without it.
package search

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// Searcher finds messages. It is safe for concurrent use.
type Searcher struct {
	// MaxScan is how many messages one page of a list examines at most.
	MaxScan int

	folders *folder.Folders
	index   Index
}

// New returns a Searcher. Without an index, which may be nil, it examines all messages.
func New(folders *folder.Folders, index Index) *Searcher {
	return &Searcher{MaxScan: 5_000, folders: folders, index: index}
}

// ErrIncomplete is returned by a search that could not read all messages that it had to.
var ErrIncomplete = errors.New("some messages could not be read")

// maxLoggedUnreadable is how many unreadable messages of one search are logged.
const maxLoggedUnreadable = 100

// Search returns the ascending UIDs of the view's messages for which c holds. It examines only the
// messages that the index names, if it can. It reads rows only if neither the view nor the index
// decides, and bytes only if the rows don't. It stops when ctx ends. It leaves out unreadable
// messages that may match, and then returns the other UIDs with ErrIncomplete.
//
// Before it reads the first body it calls acquire, unless that is nil, with no transaction open.
// After the last body it calls release. An error from acquire ends the search.
func (s *Searcher) Search(ctx context.Context, v *folder.View, c Criterion, acquire func(context.Context) (release func(), err error)) ([]uint32, error) {
	r := folderSearch{Searcher: s, view: v, snap: v.Snapshot(), criterion: compile(&c, v.KeywordTable())}
	few, known, err := r.candidatesFromIndex(ctx)
	if err != nil {
		return nil, err
	}
	if known {
		for _, e := range r.snap.EachOf(few) {
			r.classify(e)
		}
	} else if err := r.scanSnapshot(ctx); err != nil {
		return nil, err
	}
	if len(r.open) == 0 {
		return r.hits, nil
	}
	if !known {
		if err := r.prefilter(ctx); err != nil {
			return nil, err
		}
	}
	if acquire != nil && len(r.open) > 0 && r.criterion.readsBodies() {
		release, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	if err := r.readOpen(ctx); err != nil {
		return nil, err
	}
	slices.Sort(r.hits)
	if r.unreadable > 0 {
		return r.hits, ErrIncomplete
	}
	return r.hits, nil
}

// folderSearch is one Search.
type folderSearch struct {
	*Searcher
	view        *folder.View
	snap        *snapshot.Snapshot
	criterion   compiledCriterion
	scratch     candidate
	prefiltered *PrefilterResult // nil if the index was not asked about single messages
	hits        []uint32
	open        []uint32 // UIDs of the messages that are undecided so far
	unreadable  int      // number of messages
}

// scanSnapshot classifies all messages, unless ctx ends.
func (r *folderSearch) scanSnapshot(ctx context.Context) error {
	c := &r.criterion
	for _, slot := range r.snap.Slots() {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch c.matchChunk(slot) {
		case matchYes:
			for i := range slot.Len() {
				r.hits = append(r.hits, slot.UID(i))
			}
		case matchUnknown:
			if c.Test == HasFlags && c.Flags&folder.Recent == 0 { // the most common search: nothing else need be unpacked
				for i := range slot.Len() {
					if has := slot.Flags(i)&c.Flags == c.Flags; has != c.Not {
						r.hits = append(r.hits, slot.UID(i))
					}
				}
				continue
			}
			for i := range slot.Len() {
				r.classify(slot.Entry(i))
			}
		}
	}
	return nil
}

// classify appends a message to hits if the criterion holds, or to open if the view does not
// decide.
func (r *folderSearch) classify(e snapshot.Entry) {
	r.scratch.Entry, r.scratch.recent = e, r.view.IsRecent(e.UID)
	switch r.criterion.match(&r.scratch) {
	case matchYes:
		r.hits = append(r.hits, e.UID)
	case matchUnknown:
		r.open = append(r.open, e.UID)
	}
}

// readOpen reads the open messages and appends those for which the criterion holds to hits.
func (r *folderSearch) readOpen(ctx context.Context) error {
	buf := make([]byte, textBuffer)
	want := r.criterion.fields()
	if want == folder.FetchBlobID|folder.FetchStructure {
		want |= folder.FetchContent // only the bytes can decide, so each will be read
	}
	return r.view.Fetch(ctx, r.open, want, func(row *folder.MessageRow) error {
		e, _ := r.snap.ByUID(row.UID)
		m := candidate{Entry: e, recent: row.Flags&folder.Recent != 0, row: row, prefilter: r.prefiltered, position: r.prefiltered.position(row.Message)}
		found := r.criterion.match(&m)
		if found == matchUnknown {
			var why, err error
			if found, why, err = r.testContent(ctx, &m, buf); err != nil {
				return err
			}
			if found == matchUnknown {
				r.unreadable++
				r.logUnreadable(row, why)
			}
		}
		if found == matchYes {
			r.hits = append(r.hits, row.UID)
		}
		return ctx.Err()
	})
}

// logUnreadable logs a message that could not be read.
func (r *folderSearch) logUnreadable(row *folder.MessageRow, why error) {
	switch log := r.folders.Log.With("folder", r.view.Folder().ID, "uid", row.UID, "message", row.Message); {
	case r.unreadable < maxLoggedUnreadable:
		log.Error("searching a message", "error", why)
	case r.unreadable == maxLoggedUnreadable:
		log.Error("searching a message; more may follow that are not named", "error", why)
	}
}

// logIndexError logs that the index failed; the search continues without it.
func (s *Searcher) logIndexError(ctx context.Context, mailbox db.ID, err error) error {
	if ctx.Err() == nil {
		s.folders.Log.Error("the search index could not be read", "mailbox", mailbox, "error", err)
	}
	return ctx.Err()
}
