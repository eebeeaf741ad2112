// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/search"
)

const (
	blocksOverlappingQuery       = `SELECT id, ids FROM search_block WHERE mailbox = ? AND lo <= ? AND hi >= ? ORDER BY lo`
	bufferSignaturesBetweenQuery = `SELECT message, sig FROM search_tail WHERE mailbox = ? AND message BETWEEN ? AND ? ORDER BY message`
)

// blockMatches is a block's messages and, for each term, the messages that may have it.
type blockMatches struct {
	id      int64
	ids     []db.ID
	matches []bitset
}

// Prefilter returns which of some messages of a mailbox, with ascending ids, may contain which of
// the terms; see search.Index. The result includes other messages too.
func (x *Index) Prefilter(ctx context.Context, mailbox db.ID, among []db.ID, sought []search.IndexTerm) (*search.PrefilterResult, error) {
	x.fileMu.RLock()
	defer x.fileMu.RUnlock()
	if x.unavailable || len(among) == 0 {
		return nil, nil
	}
	begun, err := x.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a block and the write buffer change together
	if err != nil {
		return nil, fmt.Errorf("reading the search index: %w", err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing was written
	f := searcher{ctx: context.WithoutCancel(ctx), ctxErr: ctx.Err, tx: &readTx{begun, x.statements}}
	clauses := make([]compiledClause, len(sought))
	for i := range sought {
		clauses[i], _ = compileClause(&search.IndexClause{Term: &sought[i]})
	}
	var known prefilterState
	if err = known.addBlocks(&f, mailbox, among, clauses); err == nil {
		err = known.addBuffer(&f, mailbox, among, clauses)
	}
	if err != nil {
		return nil, x.handleReadError(err)
	}
	return known.result(sought), nil
}

// handleReadError makes Run repair the file if a search found it damaged.
func (x *Index) handleReadError(err error) error {
	if isDamageError(err) {
		select {
		case x.damage <- err:
		default:
		}
	}
	return fmt.Errorf("reading the search index: %w", err)
}

// prefilterState holds what is known about the messages.
type prefilterState struct {
	ids     []db.ID
	matches [][]bool        // by message: for each term
	blocks  []*blockMatches // the blocks; their messages precede those of ids
}

// addBlocks adds the messages of the blocks that contain any of among.
func (r *prefilterState) addBlocks(f *searcher, mailbox db.ID, among []db.ID, clauses []compiledClause) error {
	rows, err := f.tx.QueryContext(f.ctx, blocksOverlappingQuery, mailbox, among[len(among)-1], among[0])
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var b blockMatches
		var raw sql.RawBytes
		if err := rows.Scan(&b.id, &raw); err != nil {
			return err
		}
		if b.ids, err = decodeIDs[db.ID](raw); err != nil {
			return err
		}
		if intersects(b.ids, among) {
			r.blocks = append(r.blocks, &b)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for some := range slices.Chunk(r.blocks, blocksPerRead) {
		var from []pageSource
		for _, b := range some {
			from = append(from, blockSource(blockPagesByIDQuery, b.id))
		}
		for i := range clauses {
			may, err := f.evaluate(&clauses[i], from, nil)
			if err != nil {
				return err
			}
			for n, b := range some {
				b.matches = append(b.matches, may[n*blockWords:][:blockWords])
			}
		}
	}
	return nil
}

// intersects reports whether two ascending lists have an id in common.
func intersects(ids, among []db.ID) bool {
	from, _ := slices.BinarySearch(among, ids[0])
	for _, id := range among[from:] {
		at, found := slices.BinarySearch(ids, id)
		if found || at == len(ids) {
			return found
		}
	}
	return false
}

// addBuffer adds the messages that are in no block yet.
func (r *prefilterState) addBuffer(f *searcher, mailbox db.ID, among []db.ID, clauses []compiledClause) error {
	sig := make(bitset, buckets/64)
	return eachBuffered(f.ctx, f.tx, bufferSignaturesBetweenQuery, sig, func(id db.ID) {
		may := make([]bool, len(clauses))
		for i := range clauses {
			may[i] = clauses[i].matches(sig)
		}
		r.ids, r.matches = append(r.ids, id), append(r.matches, may)
	}, mailbox, among[0], among[len(among)-1])
}

// result returns the result in the order of the ids.
func (r *prefilterState) result(sought []search.IndexTerm) *search.PrefilterResult {
	type place struct {
		id    db.ID
		block int // -1 for the write buffer
		n     int
	}
	all := make([]place, 0, len(r.blocks)*blockDocs+len(r.ids))
	for at, b := range r.blocks {
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
	result := &search.PrefilterResult{Messages: make([]db.ID, len(all)), MayContain: make([][]uint64, len(sought))}
	for i := range result.MayContain {
		result.MayContain[i] = make([]uint64, (len(all)+63)/64)
	}
	for at, p := range all {
		result.Messages[at] = p.id
		for i := range sought {
			var may bool
			if p.block < 0 {
				may = r.matches[p.n][i]
			} else {
				may = r.blocks[p.block].matches[i].has(p.n)
			}
			if may {
				bitset(result.MayContain[i]).add(at)
			}
		}
	}
	return result
}
