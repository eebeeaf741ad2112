// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/search"
)

const (
	folderProgressQuery    = `SELECT upto, (SELECT upto FROM search_state WHERE pass = 0) FROM search_folder WHERE folder = ?`
	indexedThroughIDQuery  = `SELECT upto FROM search_state WHERE pass = 0`
	segmentsQuery          = `SELECT id, blocks FROM search_shelf WHERE mailbox = ? ORDER BY id`
	unsegmentedBlocksQuery = `SELECT id FROM search_block WHERE mailbox = ? AND shelf = ?`
	allBlocksQuery         = `SELECT id FROM search_block WHERE mailbox = ?`
	segmentPagesByIDQuery  = `SELECT id, bits FROM search_field WHERE id IN (` + pagePlaceholders + `)`
	blockPagesByIDQuery    = `SELECT id, bits FROM search_slice WHERE id IN (` + pagePlaceholders + `)`
	pagePlaceholders       = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`
	blockIDsQuery          = `SELECT id, ids FROM search_block WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?)`
	bufferPagesQuery       = `SELECT docs FROM search_bundle WHERE mailbox = ?`
	bufferSignaturesQuery  = `SELECT message, sig FROM search_tail WHERE mailbox = ?`
)

// searchQueries are the queries of Query and Prefilter. They are prepared once, because preparing
// most of them takes longer than running them.
var searchQueries = []string{
	folderProgressQuery, indexedThroughIDQuery, indexedThroughQuery, segmentsQuery, unsegmentedBlocksQuery, allBlocksQuery, segmentPagesByIDQuery, blockPagesByIDQuery, blockIDsQuery, bufferPagesQuery, bufferSignaturesQuery, blocksOverlappingQuery, bufferSignaturesBetweenQuery,
}

// readTx is a read transaction of Query or Prefilter.
type readTx struct {
	*sql.Tx
	prepared map[string]*sql.Stmt
}

// QueryContext runs one of searchQueries.
func (f *readTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return f.StmtContext(ctx, f.prepared[query]).QueryContext(ctx, args...) //nolint:sqlclosecheck // it ends with the transaction
}

// compiledClause is a search.IndexClause prepared for matching: the buckets for each kind of text
// that may contain the term, or other clauses to combine.
type compiledClause struct {
	kindBuckets [][]uint32
	children    []compiledClause
	matchAny    bool
}

// compileClause also reports whether the clause covers only ENVELOPE fields.
func compileClause(c *search.IndexClause) (out compiledClause, fields bool) {
	fields = true
	if c.Term != nil {
		for _, kind := range c.Term.Kinds {
			fields = fields && kind < search.HeaderText
			out.kindBuckets = append(out.kindBuckets, termBuckets(kind, c.Term.Text))
		}
		return out, fields
	}
	out.matchAny = c.MatchAny
	for i := range c.Children {
		one, only := compileClause(&c.Children[i])
		out.children, fields = append(out.children, one), fields && only
	}
	return out, fields
}

// matches reports whether a message may match the clause, by its signature, or by the fields in the
// write buffer if the clause covers only these.
func (c *compiledClause) matches(s bitset) bool {
	switch {
	case c.children == nil:
		return slices.ContainsFunc(c.kindBuckets, s.containsAll)
	case c.matchAny:
		return slices.ContainsFunc(c.children, func(o compiledClause) bool { return o.matches(s) })
	}
	return !slices.ContainsFunc(c.children, func(o compiledClause) bool { return !o.matches(s) })
}

// searcher runs one Query or Prefilter, in one read transaction.
type searcher struct {
	ctx     context.Context // without cancellation, which each of many small queries would have to watch
	ctxErr  func() error    // whether the caller has given up
	tx      *readTx
	clause  compiledClause
	limit   int
	found   []db.ID
	scratch bitset // for and; empty between uses
}

func (f *searcher) scratchSet(words int) bitset {
	if len(f.scratch) < words {
		f.scratch = make(bitset, words)
	}
	return f.scratch[:words]
}

// errTooManyMatches ends a Query that has found too many messages.
var errTooManyMatches = errors.New("too many messages")

// Query returns the messages of a mailbox that may match a clause; see search.Index.
func (x *Index) Query(ctx context.Context, mailbox db.ID, s search.IndexQuery) (*search.IndexResult, error) {
	x.fileMu.RLock()
	defer x.fileMu.RUnlock()
	if x.unavailable {
		return nil, nil
	}
	begun, err := x.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading the search index: %w", err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing was written
	tx := &readTx{begun, x.statements}
	var out search.IndexResult
	if s.Folder == 0 {
		out.IndexedThroughUIDs, err = scanIndexedThrough(tx.StmtContext(ctx, tx.prepared[indexedThroughQuery]).QueryContext(ctx, mailbox)) //nolint:sqlclosecheck // it ends with the transaction
		if err == nil {
			err = tx.StmtContext(ctx, tx.prepared[indexedThroughIDQuery]).QueryRowContext(ctx).Scan(&out.IndexedThroughID) //nolint:sqlclosecheck // likewise
		}
	} else {
		err = tx.StmtContext(ctx, tx.prepared[folderProgressQuery]).QueryRowContext(ctx, s.Folder).Scan(&out.IndexedThroughUID, &out.IndexedThroughID) //nolint:sqlclosecheck // it ends with the transaction
	}
	if errors.Is(err, sql.ErrNoRows) {
		x.requestUpdate(mailbox)
		return nil, nil
	}
	if err == nil && (s.Folder == 0 || out.IndexedThroughUID < s.LastUID) {
		x.requestUpdate(mailbox)
	}
	if err == nil {
		f := searcher{ctx: context.WithoutCancel(ctx), ctxErr: ctx.Err, tx: tx, limit: s.Limit}
		err = f.search(mailbox, &s.Clause)
		out.Messages = f.found
	}
	if errors.Is(err, errTooManyMatches) {
		return nil, nil
	}
	if err != nil {
		return nil, x.handleReadError(err)
	}
	return &out, nil
}

// requestUpdate asks Run to update the indexed-through UIDs of a mailbox's folders.
func (x *Index) requestUpdate(mailbox db.ID) {
	select {
	case x.updateRequests <- mailbox:
	default: // a later search will ask
	}
}

func (f *searcher) search(mailbox db.ID, c *search.IndexClause) error {
	only := false
	f.clause, only = compileClause(c)
	if !only {
		blocks, err := queryInt64s(f.ctx, f.tx, allBlocksQuery, mailbox)
		if err != nil {
			return err
		}
		if err := f.searchBlocks(blocks); err != nil {
			return err
		}
		return f.searchBuffer(mailbox)
	}
	segments, err := readSegments(f.ctx, f.tx, segmentsQuery, mailbox)
	if err != nil {
		return err
	}
	var shelved []int64
	var from []pageSource
	for _, s := range segments {
		shelved, from = append(shelved, s.blocks...), append(from, s.source(segmentPagesByIDQuery))
	}
	if err := f.searchSources(shelved, from); err != nil {
		return err
	}
	blocks, err := queryInt64s(f.ctx, f.tx, unsegmentedBlocksQuery, mailbox, noSegment)
	if err != nil {
		return err
	}
	if err := f.searchBlocks(blocks); err != nil {
		return err
	}
	return f.searchBufferPages(mailbox)
}

func (f *searcher) searchBlocks(blocks []int64) error {
	for some := range slices.Chunk(blocks, blocksPerRead) {
		if err := f.searchSources(some, blockSources(some)); err != nil {
			return err
		}
	}
	return nil
}

// searchSources adds the messages of some blocks that may match the clause. from are the sources of
// the blocks.
func (f *searcher) searchSources(blocks []int64, from []pageSource) error {
	may, err := f.evaluate(&f.clause, from, nil)
	if err != nil {
		return err
	}
	return f.addMatches(blocks, may)
}

// evaluate returns the members of within that may match a clause. It stops reading once there are
// none.
func (f *searcher) evaluate(c *compiledClause, from []pageSource, within bitset) (bitset, error) {
	switch {
	case c.children == nil:
		return f.evaluateAny(len(c.kindBuckets), from, within, func(i int) (bitset, error) { return f.intersectAll(c.kindBuckets[i], from, within) })
	case c.matchAny:
		return f.evaluateAny(len(c.children), from, within, func(i int) (bitset, error) { return f.evaluate(&c.children[i], from, within) })
	}
	for i := range c.children {
		var err error
		if within, err = f.evaluate(&c.children[i], from, within); err != nil || within.isEmpty() {
			return within, err
		}
	}
	return within, nil
}

func (f *searcher) evaluateAny(n int, from []pageSource, within bitset, of func(i int) (bitset, error)) (bitset, error) {
	if n == 1 {
		return of(0)
	}
	all := make(bitset, totalSetWords(from))
	for i := range n {
		some, err := of(i)
		if err != nil {
			return nil, err
		}
		all.or(some)
	}
	return all, nil
}

// Number of buckets and rows read at once, for up to so many blocks together. Fewer buckets are
// read of segments, but of all segments together. Running a query takes longer than reading a few
// more rows.
const (
	bucketsPerRead        = 8
	segmentBucketsPerRead = 3
	blocksPerRead         = 10
	pagesPerQuery         = 32
)

// intersectAll returns the members of within that are in all the buckets, and perhaps a few others,
// because examining a few messages is cheaper than reading more rows. It stops when a read excludes
// nothing, since the rest most likely have the text. A field bucket has so few messages that four
// buckets of a segment usually suffice.
func (f *searcher) intersectAll(want []uint32, from []pageSource, within bitset) (bitset, error) {
	found, all, before := slices.Clone(within), within == nil, within.count()
	if all {
		found = make(bitset, totalSetWords(from))
		if before = 64 * len(found); len(want) == 0 {
			found.setAll()
		}
	}
	n, enough, blocks := segmentBucketsPerRead, len(from)+len(found)>>10, len(found) <= blocksPerRead*blockWords
	if blocks {
		enough = 0 // until more buckets were read for the remaining messages
	}
	for len(want) > 0 {
		some := want[:min(n, len(want))]
		if err := f.intersect(some, from, found, all); err != nil {
			return nil, err
		}
		want, all = want[len(some):], false
		left := found.count()
		if left == before || left <= enough {
			break
		}
		if before = left; blocks {
			n, enough = bucketsPerRead, blocksPerRead/3
		}
	}
	return found, nil
}

// pageRead is a row to read from a source, and the messages it applies to.
type pageRead struct {
	row int64
	pageSource
	remaining bitset
	isFirst   *bool // whether remaining means all and is still empty
}

// intersect removes the messages from left that are not in all of some buckets. If all is true,
// left means all messages and is still empty.
func (f *searcher) intersect(some []uint32, from []pageSource, left bitset, all bool) error {
	var parts []pageRead
	for _, s := range from {
		own, unread := left[:s.words], all
		if left = left[s.words:]; !all && own.isEmpty() {
			continue
		}
		first := len(parts)
		for _, bucket := range some {
			if row := s.page(bucket); !slices.ContainsFunc(parts[first:], func(p pageRead) bool { return p.row == row }) {
				parts = append(parts, pageRead{row, s, own, &unread})
			}
		}
	}
	for few := range slices.Chunk(parts, pagesPerQuery) {
		if err := f.ctxErr(); err != nil {
			return err
		}
		if err := f.intersectPages(some, few); err != nil {
			return err
		}
	}
	return nil
}

func (f *searcher) intersectPages(some []uint32, parts []pageRead) error {
	var args [pagesPerQuery]any
	for i := range args {
		args[i] = parts[min(i, len(parts)-1)].row
	}
	rows, err := f.tx.QueryContext(f.ctx, parts[0].query, args[:]...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	missing := len(parts)
	for rows.Next() {
		var id int64
		var row sql.RawBytes
		if err := rows.Scan(&id, &row); err != nil {
			return err
		}
		p := parts[slices.IndexFunc(parts, func(p pageRead) bool { return p.row == id })]
		in := f.scratchSet(p.words)
		err := p.eachSet(row, func(n uint32, one []byte) error {
			if !slices.Contains(some, uint32(id-p.firstPage)*p.bucketsPerPage+n) {
				return nil
			}
			if *p.isFirst {
				*p.isFirst = false
				return p.remaining.decode(one)
			}
			err := in.decode(one)
			p.remaining.and(in)
			clear(in)
			return err
		})
		if err != nil {
			return err
		}
		missing--
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if missing != 0 {
		return damageError("a row is missing")
	}
	return nil
}

// addMatches adds the messages of a set to the results. A dissolved block has no messages: they are
// in the write buffer again.
func (f *searcher) addMatches(blocks []int64, may bitset) error {
	part := func(i int) bitset { return may[i*blockWords:][:blockWords] }
	var met []int // indexes of blocks
	for i := range blocks {
		if !part(i).isEmpty() {
			met = append(met, i)
		}
	}
	for some := range slices.Chunk(met, bucketsPerRead) {
		if err := f.addBlockMatches(blocks, some, part); err != nil {
			return err
		}
		if len(f.found) > f.limit {
			return errTooManyMatches
		}
	}
	return nil
}

func (f *searcher) addBlockMatches(blocks []int64, some []int, part func(i int) bitset) error {
	var args [bucketsPerRead]any
	for i := range args {
		args[i] = blocks[some[min(i, len(some)-1)]]
	}
	rows, err := f.tx.QueryContext(f.ctx, blockIDsQuery, args[:]...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var block int64
		var raw sql.RawBytes
		if err := rows.Scan(&block, &raw); err != nil {
			return err
		}
		ids, err := decodeIDs[db.ID](raw)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(some, func(i int) bool { return blocks[i] == block })
		for k, w := range part(some[at]) {
			for ; w != 0; w &= w - 1 {
				f.found = append(f.found, ids[k*64+bits.TrailingZeros64(w)])
			}
		}
	}
	return rows.Err()
}

// searchBuffer examines the messages that are in no block.
func (f *searcher) searchBuffer(mailbox db.ID) error {
	sig := make(bitset, buckets/64)
	err := eachBuffered(f.ctx, f.tx, bufferSignaturesQuery, sig, func(id db.ID) { f.addIfMatching(id, sig) }, mailbox)
	return f.checkLimit(err)
}

// searchBufferPages examines the fields of the messages that are in no block.
func (f *searcher) searchBufferPages(mailbox db.ID) error {
	rows, err := f.tx.QueryContext(f.ctx, bufferPagesQuery, mailbox)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var row sql.RawBytes
		if err := rows.Scan(&row); err != nil {
			return err
		}
		if err := eachBufferEntry(row, f.addIfMatching); err != nil {
			return err
		}
	}
	return f.checkLimit(rows.Err())
}

// addIfMatching adds a message if it may match the clause.
func (f *searcher) addIfMatching(id db.ID, sig bitset) {
	if f.clause.matches(sig) {
		f.found = append(f.found, id)
	}
}

func (f *searcher) checkLimit(err error) error {
	if err == nil && len(f.found) > f.limit {
		err = errTooManyMatches
	}
	return err
}
