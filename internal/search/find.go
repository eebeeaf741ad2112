// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
)

const (
	foundFrom  = `SELECT upto, (SELECT upto FROM search_state WHERE pass = 0) FROM search_folder WHERE folder = ?`
	foundUpTo  = `SELECT upto FROM search_state WHERE pass = 0`
	topShelves = `SELECT id, blocks FROM search_shelf WHERE mailbox = ? ORDER BY id`
	bareBlocks = `SELECT id FROM search_block WHERE mailbox = ? AND shelf = ?`
	allBlocks  = `SELECT id FROM search_block WHERE mailbox = ?`
	someFields = `SELECT id, bits FROM search_field WHERE id IN (` + aQuery + `)`
	someSlices = `SELECT id, bits FROM search_slice WHERE id IN (` + aQuery + `)`
	aQuery     = `?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`
	blockIDs   = `SELECT id, ids FROM search_block WHERE id IN (?, ?, ?, ?, ?, ?, ?, ?)`
	tailFields = `SELECT docs FROM search_bundle WHERE mailbox = ?`
	tailAll    = `SELECT message, sig FROM search_tail WHERE mailbox = ?`
)

// findQueries are those of Find and Narrow, which are prepared once: for most of them that
// takes longer than to run them.
var findQueries = []string{
	foundFrom, foundUpTo, coveredFolders, topShelves, bareBlocks, allBlocks, someFields, someSlices, blockIDs, tailFields, tailAll, readBlocks, readTail,
}

// finding is a read transaction of theirs.
type finding struct {
	*sql.Tx
	prepared map[string]*sql.Stmt
}

// QueryContext runs one of findQueries.
func (f *finding) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return f.StmtContext(ctx, f.prepared[query]).QueryContext(ctx, args...) //nolint:sqlclosecheck // it ends with the transaction
}

// clause is a folder.Clause made ready: the buckets for each kind of text that
// may have what is sought, or others to combine.
type clause struct {
	kinds [][]uint32
	of    []clause
	any   bool
}

// ready also reports whether the fields of the envelope are all it asks about.
func ready(c *folder.Clause) (out clause, fields bool) {
	fields = true
	if c.Sought != nil {
		for _, kind := range c.Sought.Kinds {
			fields = fields && kind < folder.InHeaders
			out.kinds = append(out.kinds, wanted(kind, c.Sought.Text))
		}
		return out, fields
	}
	out.any = c.Any
	for i := range c.Of {
		one, only := ready(&c.Of[i])
		out.of, fields = append(out.of, one), fields && only
	}
	return out, fields
}

// met reports whether a message may meet the clause, by its signature, or by the
// fields in the tail if they are all it asks about.
func (c *clause) met(s set) bool {
	switch {
	case c.of == nil:
		return slices.ContainsFunc(c.kinds, s.hasAll)
	case c.any:
		return slices.ContainsFunc(c.of, func(o clause) bool { return o.met(s) })
	}
	return !slices.ContainsFunc(c.of, func(o clause) bool { return !o.met(s) })
}

// finder answers one Find, in one read transaction.
type finder struct {
	ctx    context.Context // without an end: each of many small queries would have to watch for it
	ended  func() error    // whether nobody waits for the answer any more
	tx     *finding
	clause clause
	limit  int
	found  []db.ID
	empty  set // for and, which leaves it so
}

func (f *finder) emptySet(words int) set {
	if len(f.empty) < words {
		f.empty = make(set, words)
	}
	return f.empty[:words]
}

// errMany ends a Find that has found too much.
var errMany = errors.New("too many messages")

// Find tells which messages of a mailbox may meet a clause; see folder.Options.
func (x *Index) Find(ctx context.Context, mailbox db.ID, s folder.Seek) (*folder.Found, error) {
	x.anew.RLock()
	defer x.anew.RUnlock()
	if x.lost {
		return nil, nil
	}
	begun, err := x.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading the search index: %w", err)
	}
	defer begun.Rollback() //nolint:errcheck // nothing was written
	tx := &finding{begun, x.prepared}
	var out folder.Found
	if s.Folder == 0 {
		out.Folders, err = coveredIn(tx.StmtContext(ctx, tx.prepared[coveredFolders]).QueryContext(ctx, mailbox)) //nolint:sqlclosecheck // it ends with the transaction
		if err == nil {
			err = tx.StmtContext(ctx, tx.prepared[foundUpTo]).QueryRowContext(ctx).Scan(&out.After) //nolint:sqlclosecheck // likewise
		}
	} else {
		err = tx.StmtContext(ctx, tx.prepared[foundFrom]).QueryRowContext(ctx, s.Folder).Scan(&out.UpTo, &out.After) //nolint:sqlclosecheck // it ends with the transaction
	}
	if errors.Is(err, sql.ErrNoRows) {
		x.ask(mailbox)
		return nil, nil
	}
	if err == nil && (s.Folder == 0 || out.UpTo < s.Last) {
		x.ask(mailbox)
	}
	if err == nil {
		f := finder{ctx: context.WithoutCancel(ctx), ended: ctx.Err, tx: tx, limit: s.Limit}
		err = f.find(mailbox, &s.Clause)
		out.Messages = f.found
	}
	if errors.Is(err, errMany) {
		return nil, nil
	}
	if err != nil {
		return nil, x.unread(err)
	}
	return &out, nil
}

// ask has Run look how far the folders of a mailbox are indexed.
func (x *Index) ask(mailbox db.ID) {
	select {
	case x.wanted <- mailbox:
	default: // a later search will ask
	}
}

func (f *finder) find(mailbox db.ID, c *folder.Clause) error {
	only := false
	f.clause, only = ready(c)
	if !only {
		blocks, err := int64s(f.ctx, f.tx, allBlocks, mailbox)
		if err != nil {
			return err
		}
		if err := f.inBlocks(blocks); err != nil {
			return err
		}
		return f.inTail(mailbox)
	}
	shelves, err := shelvesOf(f.ctx, f.tx, topShelves, mailbox)
	if err != nil {
		return err
	}
	var shelved []int64
	var from []source
	for _, s := range shelves {
		shelved, from = append(shelved, s.blocks...), append(from, s.fields(someFields))
	}
	if err := f.among(shelved, from); err != nil {
		return err
	}
	blocks, err := int64s(f.ctx, f.tx, bareBlocks, mailbox, bareBlock)
	if err != nil {
		return err
	}
	if err := f.inBlocks(blocks); err != nil {
		return err
	}
	return f.inBundles(mailbox)
}

func (f *finder) inBlocks(blocks []int64) error {
	for some := range slices.Chunk(blocks, abreast) {
		if err := f.among(some, slicesOfAll(some)); err != nil {
			return err
		}
	}
	return nil
}

// among adds what may meet the clause of some blocks, which stand in some sources.
func (f *finder) among(blocks []int64, from []source) error {
	may, err := f.judge(&f.clause, from, nil)
	if err != nil {
		return err
	}
	return f.take(blocks, may)
}

// judge returns those of within that may meet a clause. It reads no further
// once there are none.
func (f *finder) judge(c *clause, from []source, within set) (set, error) {
	switch {
	case c.of == nil:
		return f.either(len(c.kinds), from, within, func(i int) (set, error) { return f.inAll(c.kinds[i], from, within) })
	case c.any:
		return f.either(len(c.of), from, within, func(i int) (set, error) { return f.judge(&c.of[i], from, within) })
	}
	for i := range c.of {
		var err error
		if within, err = f.judge(&c.of[i], from, within); err != nil || within.empty() {
			return within, err
		}
	}
	return within, nil
}

func (f *finder) either(n int, from []source, within set, of func(i int) (set, error)) (set, error) {
	if n == 1 {
		return of(0)
	}
	all := make(set, wordsOf(from))
	for i := range n {
		some, err := of(i)
		if err != nil {
			return nil, err
		}
		all.or(some)
	}
	return all, nil
}

// What is read at once: so many buckets, of blocks so many side by side, and fewer
// of shelves, but of all of them, with so many rows by a query. To run one takes longer than to read a
// few rows more.
const (
	atOnce  = 8
	onShelf = 3
	abreast = 10
	aRead   = 32
)

// inAll returns those of within that are in all the buckets, and maybe a few
// others: to look at a handful of messages costs less than to read more, and what
// a further read leaves as they are, most likely have the text. So few are in a
// bucket of the fields that four of a shelf mostly do.
func (f *finder) inAll(want []uint32, from []source, within set) (set, error) {
	found, all, before := slices.Clone(within), within == nil, within.count()
	if all {
		found = make(set, wordsOf(from))
		if before = 64 * len(found); len(want) == 0 {
			found.fill()
		}
	}
	n, enough, blocks := onShelf, len(from)+len(found)>>10, len(found) <= abreast*blockWords
	if blocks {
		enough = 0 // until more was read of those that are left
	}
	for len(want) > 0 {
		some := want[:min(n, len(want))]
		if err := f.and(some, from, found, all); err != nil {
			return nil, err
		}
		want, all = want[len(some):], false
		left := found.count()
		if left == before || left <= enough {
			break
		}
		if before = left; blocks {
			n, enough = atOnce, abreast/3
		}
	}
	return found, nil
}

// part is a row that is to be read of a source, and those that it is about.
type part struct {
	row int64
	source
	left   set
	unread *bool // left is to be all, and has none yet
}

// and leaves of a set those that are in some buckets. If it is to be all, it is
// still empty.
func (f *finder) and(some []uint32, from []source, left set, all bool) error {
	var parts []part
	for _, s := range from {
		own, unread := left[:s.words], all
		if left = left[s.words:]; !all && own.empty() {
			continue
		}
		first := len(parts)
		for _, bucket := range some {
			if row := s.row(bucket); !slices.ContainsFunc(parts[first:], func(p part) bool { return p.row == row }) {
				parts = append(parts, part{row, s, own, &unread})
			}
		}
	}
	for few := range slices.Chunk(parts, aRead) {
		if err := f.ended(); err != nil {
			return err
		}
		if err := f.andParts(some, few); err != nil {
			return err
		}
	}
	return nil
}

func (f *finder) andParts(some []uint32, parts []part) error {
	var args [aRead]any
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
		p := parts[slices.IndexFunc(parts, func(p part) bool { return p.row == id })]
		in := f.emptySet(p.words)
		err := p.each(row, func(n uint32, one []byte) error {
			if !slices.Contains(some, uint32(id-p.from)*p.perRow+n) {
				return nil
			}
			if *p.unread {
				*p.unread = false
				return p.left.load(one)
			}
			err := in.load(one)
			p.left.and(in)
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
		return damaged("a row is missing")
	}
	return nil
}

// take adds the messages of a set to what is found. A block that was dissolved
// has none: they are in the tail again.
func (f *finder) take(blocks []int64, may set) error {
	part := func(i int) set { return may[i*blockWords:][:blockWords] }
	var met []int // places among blocks
	for i := range blocks {
		if !part(i).empty() {
			met = append(met, i)
		}
	}
	for some := range slices.Chunk(met, atOnce) {
		if err := f.takeSome(blocks, some, part); err != nil {
			return err
		}
		if len(f.found) > f.limit {
			return errMany
		}
	}
	return nil
}

func (f *finder) takeSome(blocks []int64, some []int, part func(i int) set) error {
	var args [atOnce]any
	for i := range args {
		args[i] = blocks[some[min(i, len(some)-1)]]
	}
	rows, err := f.tx.QueryContext(f.ctx, blockIDs, args[:]...)
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
		ids, err := openedIDs[db.ID](raw)
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

// inTail looks at the messages that are in no block.
func (f *finder) inTail(mailbox db.ID) error {
	sig := make(set, buckets/64)
	err := eachInTail(f.ctx, f.tx, tailAll, sig, func(id db.ID) { f.look(id, sig) }, mailbox)
	return f.enough(err)
}

// inBundles looks at the fields of the same.
func (f *finder) inBundles(mailbox db.ID) error {
	rows, err := f.tx.QueryContext(f.ctx, tailFields, mailbox)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var row sql.RawBytes
		if err := rows.Scan(&row); err != nil {
			return err
		}
		if err := eachBundled(row, f.look); err != nil {
			return err
		}
	}
	return f.enough(rows.Err())
}

// look adds a message that may meet the clause.
func (f *finder) look(id db.ID, sig set) {
	if f.clause.met(sig) {
		f.found = append(f.found, id)
	}
}

func (f *finder) enough(err error) error {
	if err == nil && len(f.found) > f.limit {
		err = errMany
	}
	return err
}
