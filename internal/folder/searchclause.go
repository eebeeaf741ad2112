// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// Clause is what an index is asked for: messages that may have a text, or all
// of several clauses, or one of them.
type Clause struct {
	Sought *Sought
	Of     []Clause
	Any    bool
}

// Seek is what a search in a folder asks an index, or in a whole mailbox.
type Seek struct {
	Folder db.ID  // 0 for all of the mailbox
	Last   uint32 // the highest UID in it
	Clause Clause
	Limit  int // of messages; more are too many
}

// Found is what an index tells of a folder: messages of its mailbox that may
// meet a Clause, and of which others it knows nothing: those of the folder with
// UIDs above UpTo, and all that were made after another.
type Found struct {
	Messages []db.ID
	UpTo     uint32
	Folders  map[db.ID]uint32 // UpTo of each folder that it knows, if the Seek is in all of them
	After    db.ID
}

// clause returns what every message for which the criterion holds must meet, or
// nil if nothing is known of that.
func (c *criterion) clause() *Clause {
	if c.Not {
		return nil
	}
	var all Clause
	switch c.Test {
	case Or, And:
		all.Any = c.Test == Or
		for i := range c.of {
			if one := c.of[i].clause(); one != nil {
				all.Of = append(all.Of, *one)
			} else if all.Any {
				return nil
			}
		}
		if len(all.Of) == 0 {
			return nil
		}
	default:
		if all.Sought = c.seeks(); all.Sought == nil {
			return nil
		}
	}
	return &all
}

// Bounds of what is asked for beside the index, and of what it may name: with
// more, the whole folder is looked at.
const (
	maxUnknown = 2_000
	maxFound   = 20_000
)

// fromIndex returns the UIDs of the messages for which the criterion may hold,
// rising, as far as an index tells; known is false if it doesn't. It takes time
// for what is found, not for what is there.
func (v *View) fromIndex(ctx context.Context, c *criterion) (uids []uint32, known bool, err error) {
	clause := c.clause()
	if v.store.Find == nil || v.snap.n < fewOpen || clause == nil {
		return nil, false, nil
	}
	found, err := v.store.Find(ctx, v.row.Mailbox, Seek{v.shared.id, v.snap.last(), *clause, min(maxFound, v.snap.n/2)})
	if err != nil {
		return nil, false, v.store.without(ctx, v.row.Mailbox, err)
	}
	if found == nil {
		return nil, false, nil
	}
	from, there := v.snap.index(found.UpTo)
	if there {
		from++
	}
	if v.snap.n-from > maxUnknown {
		return nil, false, nil
	}
	for _, e := range v.snap.between(from, v.snap.n) {
		uids = append(uids, e.uid)
	}
	uids, late, err := v.later(ctx, uids, found.After)
	if err != nil || late > maxUnknown {
		return nil, false, err
	}
	for some := range slices.Chunk(found.Messages, listSize) {
		args := make([]any, listSize, listSize+1)
		for i := range args {
			args[i] = some[min(i, len(some)-1)]
		}
		err := v.store.DB.Each(ctx, uidsOf.With(append(args, v.shared.id)...), func(r db.Row) error {
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
	// With + 0 PostgreSQL looks for the messages one by one, though it take the
	// folder for a small one, or all of them for few.
	uidsOf = db.SQL(`SELECT uid FROM folder_message
		WHERE message IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AND folder + 0 = $17`)
	uidsLater = db.SQL(`SELECT f.uid FROM message m JOIN folder_message f ON f.message = m.id + 0 AND f.folder + 0 = $3
		WHERE m.mailbox = $1 AND m.id > $2 ORDER BY m.id LIMIT $4`)
)

// later adds the UIDs of messages that were made after one.
func (v *View) later(ctx context.Context, uids []uint32, after db.ID) (_ []uint32, n int, err error) {
	err = v.store.DB.Each(ctx, uidsLater.With(v.row.Mailbox, after, v.shared.id, maxUnknown+1), func(r db.Row) error {
		n++
		var uid uint32
		err := r.Scan(&uid)
		uids = append(uids, uid)
		return err
	})
	return uids, n, err
}

// without logs that the index failed; the search goes on without it.
func (s *Store) without(ctx context.Context, mailbox db.ID, err error) error {
	if ctx.Err() == nil {
		s.Log.Error("the search index could not be read", "mailbox", mailbox, "error", err)
	}
	return ctx.Err()
}

// MessagesAfter returns which messages stand in a folder from a UID, not
// included, on: at most limit, in the order of their UIDs, which rise with the
// order of their commits.
func (s *Store) MessagesAfter(ctx context.Context, folder db.ID, uid uint32, limit int) (uids []uint32, ids []db.ID, err error) {
	err = s.DB.Each(ctx, readIDs.With(folder, uid, limit), func(r db.Row) error {
		var uid uint32
		var id db.ID
		err := r.Scan(&uid, &id)
		uids, ids = append(uids, uid), append(ids, id)
		return err
	})
	return uids, ids, err
}

// judgeChunk says whether the criterion holds for all messages of a chunk, for
// none, or whether each has to be looked at.
func (c *criterion) judgeChunk(s slot) truth {
	t := c.testChunk(s)
	if c.Not && t != maybe {
		return yes - t
	}
	return t
}

func (c *criterion) testChunk(s slot) truth {
	switch c.Test {
	case All:
		return yes
	case And:
		all := yes
		for i := range c.of {
			all = min(all, c.of[i].judgeChunk(s))
		}
		return all
	case Or:
		any := no
		for i := range c.of {
			any = max(any, c.of[i].judgeChunk(s))
		}
		return any
	case InUIDs:
		at, found := slices.BinarySearch(c.UIDs, s.uid(0))
		if !found && (at == len(c.UIDs) || c.UIDs[at] > s.uid(s.len()-1)) {
			return no
		}
	case HasFlags:
		switch {
		case c.Flags&Recent != 0: // that is for each session to know
		case s.every&c.Flags == c.Flags:
			return yes
		case s.some&c.Flags != c.Flags:
			return no
		}
	case HasKeyword:
		if s.words.width == 0 && s.words.step == 0 && s.words.base != otherWords {
			return is(c.words[uint32(s.words.base)])
		}
	case ModSeqFrom:
		if s.newest < c.Num {
			return no
		}
	}
	return maybe
}
