// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"database/sql"
	"encoding/binary"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// A shelf holds what several blocks of a mailbox have in the buckets of the
// fields once more, side by side: a search by a field reads one row for all of
// them. Four blocks make a shelf of level 1, four of these one of level 2, which
// takes their place, and so on; so a mailbox of a million messages is two large
// shelves and some smaller ones, and each row that a search reads is worth
// reading. Blocks that are dissolved leave a gap.
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
	bareShelves  = `SELECT s.id FROM search_shelf s WHERE s.mailbox = ?
		AND NOT EXISTS (SELECT 1 FROM search_block b WHERE b.mailbox = s.mailbox AND b.shelf = s.id)`
)

// makeShelves makes a shelf of the blocks that stand on none, if there are
// enough, and from level to level one of those below.
func makeShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	blocks, err := int64s(ctx, tx, firstBare, mailbox, shelfFan)
	if err != nil || len(blocks) < shelfFan {
		return err
	}
	parts := make([]source, shelfFan)
	for i, id := range blocks {
		parts[i] = source{readRows, id * rowsPerBlock, rowBuckets, sliceBytes}
	}
	if err := makeShelf(ctx, tx, mailbox, 1, blocks, parts); err != nil {
		return err
	}
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
	var list []byte
	for _, id := range blocks {
		list = binary.LittleEndian.AppendUint64(list, uint64(id))
	}
	res, err := tx.ExecContext(ctx, insertShelf, mailbox, level, list)
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
	bits, row := make([][]byte, len(parts)), make([]byte, 0, len(blocks)*sliceBytes)
	for from := uint32(0); from < fieldBuckets; from += carryAtOnce {
		for i, part := range parts {
			if bits[i], err = bitsOf(ctx, tx, part, from, carryAtOnce); err != nil {
				return err
			}
		}
		for n := range carryAtOnce {
			row = row[:0]
			for i, part := range parts {
				row = append(row, bits[i][n*part.size:][:part.size]...)
			}
			if _, err := insert.ExecContext(ctx, shelf*fieldBuckets+int64(from)+int64(n), row); err != nil {
				return err
			}
		}
	}
	return nil
}

// bitsOf reads what a source has in some buckets, whose rows must be there and
// have their size.
func bitsOf(ctx context.Context, tx *sql.Tx, s source, bucket, n uint32) ([]byte, error) {
	from, to, size := s.row(bucket), s.row(bucket+n), int(s.perRow)*s.size
	found, err := tx.QueryContext(ctx, s.query, from, to)
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // what there is is told by Err
	all := make([]byte, 0, int(n)*s.size)
	for found.Next() {
		var id int64
		var bits sql.RawBytes
		if err := found.Scan(&id, &bits); err != nil {
			return nil, err
		}
		if len(bits) != size || id != from+int64(len(all)/size) {
			return nil, damaged("a row is missing or has not the right size")
		}
		all = append(all, bits...)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	if len(all) != int(n)*s.size {
		return nil, damaged("rows are missing")
	}
	return all, nil
}

// shelf is one that was read.
type shelf struct {
	id     int64
	blocks []int64
}

// fields are its buckets.
func (s shelf) fields(query string) source {
	return source{query, s.id * fieldBuckets, 1, len(s.blocks) * sliceBytes}
}

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
		for _, id := range idsOf(raw) {
			s.blocks = append(s.blocks, int64(id))
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// clearShelves removes the shelves of a mailbox whose blocks are all dissolved.
func clearShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	bare, err := int64s(ctx, tx, bareShelves, mailbox)
	for _, id := range bare {
		if err == nil {
			err = removeShelf(ctx, tx, id)
		}
	}
	return err
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
