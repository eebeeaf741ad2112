// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// Clause is a condition for an index: messages that may contain a text, or that match all of
// several clauses, or one of them.
type Clause struct {
	Term     *IndexTerm
	Children []Clause
	MatchAny bool
}

// Index is what Search and the lists of messages need of a search index.
type Index interface {
	// Prefilter returns which of some messages of a mailbox, in the order of their ids, may contain
	// which of the texts. The result may omit messages and may have false positives, but must not
	// have false negatives. It is nil if the index can't tell.
	Prefilter(ctx context.Context, mailbox db.ID, among []db.ID, sought []IndexTerm) (*PrefilterResult, error)
	// Query returns which messages of a mailbox may match a clause, and which messages the index
	// does not know. It returns nil if the index can't tell or finds too many.
	Query(ctx context.Context, mailbox db.ID, s IndexQuery) (*IndexResult, error)
}

// IndexQuery is a query to an index, for one folder or a whole mailbox.
type IndexQuery struct {
	Folder  db.ID  // 0 for all of the mailbox
	LastUID uint32 // the highest UID in it
	Clause  Clause
	Limit   int // number of messages; more are too many
}

// IndexResult is an index's result: the messages that may match a Clause, and the limits of what is
// indexed. The index does not know the folder's messages with UIDs above IndexedThroughUID, and all
// messages created after IndexedThroughID.
type IndexResult struct {
	Messages           []db.ID
	IndexedThroughUID  uint32
	IndexedThroughUIDs map[db.ID]uint32 // IndexedThroughUID of each folder that the index knows, for an IndexQuery without Folder
	IndexedThroughID   db.ID
}

// clause returns a clause that every message must match for the criterion to hold, or nil if none
// is known.
func (c *compiledCriterion) clause() *Clause {
	if c.Not {
		return nil
	}
	var all Clause
	switch c.Test {
	case Or, And:
		all.MatchAny = c.Test == Or
		for i := range c.children {
			if one := c.children[i].clause(); one != nil {
				all.Children = append(all.Children, *one)
			} else if all.MatchAny {
				return nil
			}
		}
		if len(all.Children) == 0 {
			return nil
		}
	default:
		if all.Term = c.term(); all.Term == nil {
			return nil
		}
	}
	return &all
}

// Limits of unindexed messages and of index results. Beyond them the whole folder is scanned.
const (
	maxUnindexed    = 2_000
	maxIndexResults = 20_000
)

// candidatesFromIndex returns the ascending UIDs of the messages for which the criterion may hold,
// according to the index. known is false if the index can't tell. The cost depends on the number of
// results, not on the size of the folder.
func (v *View) candidatesFromIndex(ctx context.Context, c *compiledCriterion) (uids []uint32, known bool, err error) {
	clause := c.clause()
	if v.store.Index == nil || v.snap.Len() < minPrefilter || clause == nil {
		return nil, false, nil
	}
	found, err := v.store.Index.Query(ctx, v.row.Mailbox, IndexQuery{v.shared.id, v.snap.LastUID(), *clause, min(maxIndexResults, v.snap.Len()/2)})
	if err != nil {
		return nil, false, v.store.logIndexError(ctx, v.row.Mailbox, err)
	}
	if found == nil {
		return nil, false, nil
	}
	from, there := v.snap.Index(found.IndexedThroughUID)
	if there {
		from++
	}
	if v.snap.Len()-from > maxUnindexed {
		return nil, false, nil
	}
	for _, e := range v.snap.Between(from, v.snap.Len()) {
		uids = append(uids, e.UID)
	}
	uids, late, err := v.appendNewer(ctx, uids, found.IndexedThroughID)
	if err != nil || late > maxUnindexed {
		return nil, false, err
	}
	for some := range slices.Chunk(found.Messages, listSize) {
		args := listArgs(len(some), func(i int) any { return some[i] })
		err := v.store.DB.Each(ctx, uidsByMessageQuery.With(append(args, v.shared.id)...), func(r db.Row) error {
			var uid uint32
			err := r.Scan(&uid)
			uids = append(uids, uid)
			return err
		})
		if err != nil {
			return nil, false, err
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), true, nil
}

var (
	// With + 0 PostgreSQL looks up the messages one by one, even if it estimates that the folder is
	// small or holds most of them.
	uidsByMessageQuery = db.SQL(`SELECT uid FROM folder_message
		WHERE message ` + inList + ` AND folder + 0 = $17`)
	newerUIDsQuery = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id + 0 AND f.folder + 0 = $3
		WHERE m.mailbox = $1 AND m.id > $2 ORDER BY m.id LIMIT $4`)
)

// appendNewer appends the UIDs of messages created after the message after.
func (v *View) appendNewer(ctx context.Context, uids []uint32, after db.ID) (_ []uint32, n int, err error) {
	err = v.store.DB.Each(ctx, newerUIDsQuery.With(v.row.Mailbox, after, v.shared.id, maxUnindexed+1), func(r db.Row) error {
		n++
		var uid uint32
		err := r.Scan(&uid)
		uids = append(uids, uid)
		return err
	})
	return uids, n, err
}

// logIndexError logs that the index failed; the search continues without it.
func (s *Folders) logIndexError(ctx context.Context, mailbox db.ID, err error) error {
	if ctx.Err() == nil {
		s.Log.Error("the search index could not be read", "mailbox", mailbox, "error", err)
	}
	return ctx.Err()
}

// MessagesAfter returns at most limit messages of a folder with UIDs above uid, in the order of
// their UIDs, which is also the order of their commits.
func (s *Folders) MessagesAfter(ctx context.Context, folder db.ID, uid uint32, limit int) (uids []uint32, ids []db.ID, err error) {
	err = s.DB.Each(ctx, messageIDsQuery.With(folder, uid, limit), func(r db.Row) error {
		var uid uint32
		var id db.ID
		err := r.Scan(&uid, &id)
		uids, ids = append(uids, uid), append(ids, id)
		return err
	})
	return uids, ids, err
}

// matchChunk returns whether the criterion holds for all messages of a chunk, for none, or whether
// each must be tested.
func (c *compiledCriterion) matchChunk(s snapshot.Slot) matchResult {
	t := c.matchChunkTest(s)
	if c.Not && t != matchUnknown {
		return matchYes - t
	}
	return t
}

func (c *compiledCriterion) matchChunkTest(s snapshot.Slot) matchResult {
	switch c.Test {
	case MatchAll:
		return matchYes
	case And:
		all := matchYes
		for i := range c.children {
			all = min(all, c.children[i].matchChunk(s))
		}
		return all
	case Or:
		any := matchNo
		for i := range c.children {
			any = max(any, c.children[i].matchChunk(s))
		}
		return any
	case HasUID:
		at, found := slices.BinarySearch(c.UIDs, s.UID(0))
		if !found && (at == len(c.UIDs) || c.UIDs[at] > s.UID(s.Len()-1)) {
			return matchNo
		}
	case HasFlags:
		switch {
		case c.Flags&Recent != 0: // only each session knows that
		case s.AllFlags&c.Flags == c.Flags:
			return matchYes
		case s.AnyFlags&c.Flags != c.Flags:
			return matchNo
		}
	case HasKeyword:
		if set, all := s.KeywordSet(); all && set != snapshot.OverflowKeywords {
			return matchOf(c.keywordSets[set])
		}
	case ModSeqAtLeast:
		if s.MaxModSeq < c.Num {
			return matchNo
		}
	}
	return matchUnknown
}
