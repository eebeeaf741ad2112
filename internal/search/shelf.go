// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"database/sql"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// A shelf holds what several blocks of a mailbox have in the buckets of the
// fields once more, side by side: a search by a field reads one row for all of
// them. Four blocks make a shelf of level 1, four of these one of level 2, which
// takes their place, and so on; so a mailbox of a million messages is two large
// shelves and some smaller ones, and each row that a search reads is worth
// reading. Blocks that are dissolved leave a gap; what stands on a shelf that is
// mostly gaps is put on smaller ones.
const (
	shelfFan  = 4
	topShelf  = 5 // of 1,024 blocks
	bareBlock = 0 // in place of the shelf of a block without one
	// carryAtOnce is how many buckets are carried to a shelf at once, so that
	// those of a large one are never all in memory.
	carryAtOnce = 64
)

const (
	firstBare    = `SELECT id FROM search_block WHERE mailbox = ? AND shelf = 0 ORDER BY id LIMIT ?`
	firstShelves = `SELECT id, blocks FROM search_shelf WHERE mailbox = ? AND level = ? ORDER BY id LIMIT ?`
	insertShelf  = `INSERT INTO search_shelf (mailbox, level, blocks) VALUES (?, ?, ?)`
	insertField  = `INSERT INTO search_field (id, bits) VALUES (?, ?)`
	shelve       = `UPDATE search_block SET shelf = ? WHERE id = ?`
	readRows     = `SELECT id, bits FROM search_slice WHERE id >= ? AND id < ? ORDER BY id`
	readFields   = `SELECT id, bits FROM search_field WHERE id >= ? AND id < ? ORDER BY id`
	deleteShelf  = `DELETE FROM search_shelf WHERE id = ?`
	deleteFields = `DELETE FROM search_field WHERE id >= ? AND id < ?`
	unshelve     = `UPDATE search_block SET shelf = 0 WHERE mailbox = ? AND shelf = ?`
	// sparseShelves are those of which a quarter is left, or less.
	sparseShelves = `SELECT s.id FROM search_shelf s WHERE s.mailbox = ?
		AND 4 * (SELECT COUNT(*) FROM search_block b WHERE b.mailbox = s.mailbox AND b.shelf = s.id) <= LENGTH(s.blocks) / 8`
)

// makeShelves makes shelves of the blocks that stand on none, as long as there are
// enough, and from level to level one of those below.
func makeShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	for {
		blocks, err := int64s(ctx, tx, firstBare, mailbox, shelfFan)
		if err != nil || len(blocks) < shelfFan {
			return err
		}
		parts := make([]source, shelfFan)
		for i, id := range blocks {
			parts[i] = slicesOf(readRows, id)
		}
		if err := makeShelf(ctx, tx, mailbox, 1, blocks, parts); err != nil {
			return err
		}
		if err := raiseShelves(ctx, tx, mailbox); err != nil {
			return err
		}
	}
}

// raiseShelves makes one shelf of several, from level to level.
func raiseShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	for level := 2; level <= topShelf; level++ {
		low, err := shelvesOf(ctx, tx, firstShelves, mailbox, level-1, shelfFan)
		if err != nil || len(low) < shelfFan {
			return err
		}
		if err := raise(ctx, tx, mailbox, level, low); err != nil {
			return err
		}
	}
	return nil
}

// raise makes one shelf of several, which it replaces.
func raise(ctx context.Context, tx *sql.Tx, mailbox db.ID, level int, low []shelf) error {
	var blocks []int64
	var parts []source
	for _, s := range low {
		blocks, parts = append(blocks, s.blocks...), append(parts, s.fields(readFields))
	}
	if err := makeShelf(ctx, tx, mailbox, level, blocks, parts); err != nil {
		return err
	}
	for _, s := range low {
		if err := removeShelf(ctx, tx, s.id); err != nil {
			return err
		}
	}
	return nil
}

func makeShelf(ctx context.Context, tx *sql.Tx, mailbox db.ID, level int, blocks []int64, parts []source) error {
	res, err := tx.ExecContext(ctx, insertShelf, mailbox, level, sealedIDs(blocks))
	if err != nil {
		return err
	}
	shelf, err := res.LastInsertId()
	if err != nil {
		return err
	}
	for _, id := range blocks {
		if _, err := tx.ExecContext(ctx, shelve, shelf, id); err != nil {
			return err
		}
	}
	insert, err := tx.PrepareContext(ctx, insertField)
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // what was written is told by each
	to := fieldsOf(insertField, shelf, len(blocks))
	sets := newSets(carryAtOnce, to.words)
	for from := uint32(0); from < fieldBuckets; from += carryAtOnce {
		at := 0
		for _, part := range parts {
			if err := part.carry(ctx, tx, from, sets, at); err != nil {
				return err
			}
			at += part.words
		}
		var row []byte
		for i, s := range sets {
			row = appendPacked(row, s)
			clear(s)
			if bucket := from + uint32(i); (bucket+1)%to.perRow == 0 {
				if _, err := insert.ExecContext(ctx, to.row(bucket), sealed(row)); err != nil {
					return err
				}
				row = row[:0]
			}
		}
	}
	return nil
}

// source is where the buckets of a shelf or block stand, with so many in a row.
// For each there is a set of so many words.
type source struct {
	query  string
	from   int64
	perRow uint32
	words  int
}

// slicesOf are the buckets of a block.
func slicesOf(query string, block int64) source {
	return source{query, block * rowsPerBlock, rowBuckets, blockWords}
}

// slicesOfAll are those that a search reads, of several.
func slicesOfAll(blocks []int64) (all []source) {
	for _, id := range blocks {
		all = append(all, slicesOf(someSlices, id))
	}
	return all
}

func wordsOf(all []source) (n int) {
	for _, s := range all {
		n += s.words
	}
	return n
}

// fieldsOf are those of a shelf. Of a small one some share a row.
func fieldsOf(query string, shelf int64, blocks int) source {
	return source{query, shelf * fieldBuckets, uint32(max(1, 2*rowBuckets/blocks)), blocks * blockWords}
}

func (s source) row(bucket uint32) int64 { return s.from + int64(bucket/s.perRow) }

// carry reads the sets of some buckets, whose rows must all be there, into others
// that have room for more, from a word on, and nothing there yet.
func (s source) carry(ctx context.Context, tx *sql.Tx, bucket uint32, into []set, at int) error {
	from, to := s.row(bucket), s.row(bucket+uint32(len(into)))
	rows, err := tx.QueryContext(ctx, s.query, from, to)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for ; rows.Next(); from++ {
		var id int64
		var row sql.RawBytes
		if err := rows.Scan(&id, &row); err != nil {
			return err
		}
		if id != from {
			break
		}
		err := s.each(row, func(n uint32, one []byte) error {
			return into[uint32(id-s.from)*s.perRow+n-bucket][at:][:s.words].load(one)
		})
		if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if from != to {
		return damaged("rows are missing")
	}
	return nil
}

// each calls f with what is packed in a row.
func (s source) each(row []byte, f func(n uint32, one []byte) error) error {
	row, err := opened(row)
	if err != nil {
		return err
	}
	for n := range s.perRow {
		one, rest, err := cut(row, s.words)
		if err == nil {
			err = f(n, one)
		}
		if err != nil {
			return err
		}
		row = rest
	}
	if len(row) > 0 {
		return damaged("a row is too long")
	}
	return nil
}

// shelf is one that was read.
type shelf struct {
	id     int64
	blocks []int64
}

func (s shelf) fields(query string) source { return fieldsOf(query, s.id, len(s.blocks)) }

func shelvesOf(ctx context.Context, q querier, query string, args ...any) (list []shelf, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var s shelf
		var raw sql.RawBytes
		if err := rows.Scan(&s.id, &raw); err != nil {
			return nil, err
		}
		if s.blocks, err = openedIDs[int64](raw); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// clearShelves removes the shelves of a mailbox whose blocks are mostly dissolved,
// and makes others of those that are left.
func clearShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	sparse, err := int64s(ctx, tx, sparseShelves, mailbox)
	if err != nil || len(sparse) == 0 {
		return err
	}
	for _, id := range sparse {
		if _, err := tx.ExecContext(ctx, unshelve, mailbox, id); err != nil {
			return err
		}
		if err := removeShelf(ctx, tx, id); err != nil {
			return err
		}
	}
	return makeShelves(ctx, tx, mailbox)
}

func removeShelf(ctx context.Context, tx *sql.Tx, id int64) error {
	if _, err := tx.ExecContext(ctx, deleteShelf, id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, deleteFields, id*fieldBuckets, (id+1)*fieldBuckets)
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func int64s(ctx context.Context, q querier, query string, args ...any) (list []int64, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return slices.Clip(list), rows.Err()
}
