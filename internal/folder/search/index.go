// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// IndexClause is a condition for an index: messages that may contain a text, or that match all of
// several clauses, or one of them.
type IndexClause struct {
	Term     *IndexTerm
	Children []IndexClause
	MatchAny bool
}

// Index is what Search and the lists of messages need of a search index.
type Index interface {
	// Prefilter returns which of some messages of a mailbox, in the order of their ids, may contain
	// which of the texts. The result may omit messages and may have false positives, but must not
	// have false negatives. It is nil if the index can't tell.
	Prefilter(ctx context.Context, mailbox db.ID, among []db.ID, terms []IndexTerm) (*PrefilterResult, error)
	// Query returns which messages of a mailbox may match a clause, and which messages the index
	// does not know. It returns nil if the index can't tell or finds too many.
	Query(ctx context.Context, mailbox db.ID, s IndexQuery) (*IndexResult, error)
}

// IndexQuery is a query to an index, for one folder or a whole mailbox.
type IndexQuery struct {
	Folder  db.ID  // 0 for all of the mailbox
	LastUID uint32 // the highest UID in it
	Clause  IndexClause
	Limit   int // number of messages; more are too many
}

// IndexResult is an index's result: the messages that may match an IndexClause, and the limits of
// what is indexed. The index does not know the folder's messages with UIDs above IndexedThroughUID,
// and all messages created after IndexedThroughID.
type IndexResult struct {
	Messages           []db.ID
	IndexedThroughUID  uint32
	IndexedThroughUIDs map[db.ID]uint32 // IndexedThroughUID of each folder that the index knows, for an IndexQuery without Folder
	IndexedThroughID   db.ID
}

// clause returns a clause that every message must match for the criterion to hold, or nil if none
// is known.
func (c *compiledCriterion) clause() *IndexClause {
	if c.Not {
		return nil
	}
	var all IndexClause
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
func (r *folderSearch) candidatesFromIndex(ctx context.Context) (uids []uint32, known bool, err error) {
	clause := r.criterion.clause()
	if r.index == nil || r.snap.Len() < minPrefilter || clause == nil {
		return nil, false, nil
	}
	in := r.view.Folder()
	found, err := r.index.Query(ctx, in.Mailbox, IndexQuery{in.ID, r.snap.LastUID(), *clause, min(maxIndexResults, r.snap.Len()/2)})
	if err != nil {
		return nil, false, r.logIndexError(ctx, in.Mailbox, err)
	}
	if found == nil {
		return nil, false, nil
	}
	from, there := r.snap.IndexOfUID(found.IndexedThroughUID)
	if there {
		from++
	}
	if r.snap.Len()-from > maxUnindexed {
		return nil, false, nil
	}
	for _, e := range r.snap.Between(from, r.snap.Len()) {
		uids = append(uids, e.UID)
	}
	late, err := r.view.UIDsCreatedAfter(ctx, found.IndexedThroughID, maxUnindexed+1)
	if err != nil || len(late) > maxUnindexed {
		return nil, false, err
	}
	indexed, err := r.view.MessageUIDs(ctx, found.Messages...)
	if err != nil {
		return nil, false, err
	}
	uids = slices.Concat(uids, late, indexed)
	slices.Sort(uids)
	return slices.Compact(uids), true, nil
}
