// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
)

const (
	readBlocks = `SELECT id, ids FROM search_block WHERE mailbox = ? AND lo <= ? AND hi >= ? ORDER BY lo`
	readTail   = `SELECT message, sig FROM search_tail WHERE mailbox = ? AND message BETWEEN ? AND ? ORDER BY message`
)

// block is one that was read: its messages, and for each text that is sought
// those that may have it.
type block struct {
	id  int64
	ids []db.ID
	may []set
}

// Narrow tells which of some messages of a mailbox, whose ids must be rising,
// may have which of the texts; see folder.Options. It tells of others too.
func (x *Index) Narrow(ctx context.Context, mailbox db.ID, among []db.ID, sought []folder.Sought) (*folder.Narrowed, error) {
	x.anew.RLock()
	defer x.anew.RUnlock()
	if x.lost || len(among) == 0 {
		return nil, nil
	}
	begun, err := x.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a block and its tail change together
	if err != nil {
		return nil, fmt.Errorf("reading the search index: %w", err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing was written
	f := finder{ctx: context.WithoutCancel(ctx), ended: ctx.Err, tx: &finding{begun, x.prepared}}
	clauses := make([]clause, len(sought))
	for i := range sought {
		clauses[i], _ = ready(&folder.Clause{Sought: &sought[i]})
	}
	var known result
	if err = known.addBlocks(&f, mailbox, among, clauses); err == nil {
		err = known.addTail(&f, mailbox, among, clauses)
	}
	if err != nil {
		return nil, x.unread(err)
	}
	return known.narrowed(sought), nil
}

// unread has Run mend what a search found damaged.
func (x *Index) unread(err error) error {
	if isDamage(err) {
		select {
		case x.broken <- err:
		default:
		}
	}
	return fmt.Errorf("reading the search index: %w", err)
}

// result is what is known of messages.
type result struct {
	ids []db.ID
	may [][]bool // by message, for each text that is sought
	of  []*block // the blocks, in whose order the messages are first
}

// addBlocks adds the messages of the blocks that have some of among.
func (r *result) addBlocks(f *finder, mailbox db.ID, among []db.ID, clauses []clause) error {
	rows, err := f.tx.QueryContext(f.ctx, readBlocks, mailbox, among[len(among)-1], among[0])
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var b block
		var raw sql.RawBytes
		if err := rows.Scan(&b.id, &raw); err != nil {
			return err
		}
		if b.ids, err = openedIDs[db.ID](raw); err != nil {
			return err
		}
		if meet(b.ids, among) {
			r.of = append(r.of, &b)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for some := range slices.Chunk(r.of, abreast) {
		var from []source
		for _, b := range some {
			from = append(from, slicesOf(someSlices, b.id))
		}
		for i := range clauses {
			may, err := f.judge(&clauses[i], from, nil)
			if err != nil {
				return err
			}
			for n, b := range some {
				b.may = append(b.may, may[n*blockWords:][:blockWords])
			}
		}
	}
	return nil
}

// meet reports whether two rising lists have an id in common.
func meet(ids, among []db.ID) bool {
	from, _ := slices.BinarySearch(among, ids[0])
	for _, id := range among[from:] {
		at, found := slices.BinarySearch(ids, id)
		if found || at == len(ids) {
			return found
		}
	}
	return false
}

// addTail adds the messages that are in no block yet.
func (r *result) addTail(f *finder, mailbox db.ID, among []db.ID, clauses []clause) error {
	sig := make(set, buckets/64)
	return eachInTail(f.ctx, f.tx, readTail, sig, func(id db.ID) {
		may := make([]bool, len(clauses))
		for i := range clauses {
			may[i] = clauses[i].met(sig)
		}
		r.ids, r.may = append(r.ids, id), append(r.may, may)
	}, mailbox, among[0], among[len(among)-1])
}

// narrowed puts what is known in the order of the ids.
func (r *result) narrowed(sought []folder.Sought) *folder.Narrowed {
	type place struct {
		id    db.ID
		block int // -1 for the tail
		n     int
	}
	all := make([]place, 0, len(r.of)*blockDocs+len(r.ids))
	for at, b := range r.of {
		for n, id := range b.ids {
			all = append(all, place{id, at, n})
		}
	}
	for n, id := range r.ids {
		all = append(all, place{id, -1, n})
	}
	byID := func(a, b place) int { return cmp.Compare(a.id, b.id) }
	if !slices.IsSortedFunc(all, byID) {
		slices.SortFunc(all, byID)
	}
	result := &folder.Narrowed{Messages: make([]db.ID, len(all)), May: make([][]uint64, len(sought))}
	for i := range result.May {
		result.May[i] = make([]uint64, (len(all)+63)/64)
	}
	for at, p := range all {
		result.Messages[at] = p.id
		for i := range sought {
			var may bool
			if p.block < 0 {
				may = r.may[p.n][i]
			} else {
				may = r.of[p.block].may[i].has(p.n)
			}
			if may {
				set(result.May[i]).add(at)
			}
		}
	}
	return result
}
