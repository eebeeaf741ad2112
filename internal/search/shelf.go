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
// them. Eight blocks make a shelf of level 1, eight of these one of level 2,
// which takes their place; so a mailbox of a million messages is some forty
// shelves and blocks. Blocks that are dissolved leave a gap.
const (
	shelfFan  = 8
	topShelf  = 2
	bareBlock = 0 // in place of the shelf of a block without one
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
// enough, and one of the shelves of level 1.
func makeShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	blocks, err := int64s(ctx, tx, firstBare, mailbox, shelfFan)
	if err != nil || len(blocks) < shelfFan {
		return err
	}
	parts := make([][]byte, shelfFan) // each all of its buckets, one after the other
	for i, id := range blocks {
		if parts[i], err = bitsOf(ctx, tx, readRows, id*rowsPerBlock, fieldBuckets/rowBuckets, rowBytes); err != nil {
			return err
		}
	}
	if err := makeShelf(ctx, tx, mailbox, 1, blocks, parts); err != nil {
		return err
	}
	return raiseShelves(ctx, tx, mailbox)
}

// raiseShelves makes a shelf of level 2 of those of level 1, if there are enough.
func raiseShelves(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	low, err := shelvesOf(ctx, tx, firstShelves, mailbox, topShelf-1, shelfFan)
	if err != nil || len(low) < shelfFan {
		return err
	}
	var blocks []int64
	var parts [][]byte
	for _, s := range low {
		part, err := bitsOf(ctx, tx, readFields, s.id*fieldBuckets, fieldBuckets, len(s.blocks)*sliceBytes)
		if err != nil {
			return err
		}
		if err := removeShelf(ctx, tx, s.id); err != nil {
			return err
		}
		blocks, parts = append(blocks, s.blocks...), append(parts, part)
	}
	return makeShelf(ctx, tx, mailbox, topShelf, blocks, parts)
}

func makeShelf(ctx context.Context, tx *sql.Tx, mailbox db.ID, level int, blocks []int64, parts [][]byte) error {
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
	row := make([]byte, 0, len(blocks)*sliceBytes)
	for bucket := range fieldBuckets {
		row = row[:0]
		for _, part := range parts {
			n := len(part) / fieldBuckets
			row = append(row, part[bucket*n:][:n]...)
		}
		if _, err := insert.ExecContext(ctx, shelf*fieldBuckets+int64(bucket), row); err != nil {
			return err
		}
	}
	return nil
}

// bitsOf reads rows that must be there and have a size.
func bitsOf(ctx context.Context, tx *sql.Tx, query string, from int64, rows, size int) ([]byte, error) {
	found, err := tx.QueryContext(ctx, query, from, from+int64(rows))
	if err != nil {
		return nil, err
	}
	defer found.Close() //nolint:errcheck // what there is is told by Err
	all := make([]byte, 0, rows*size)
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
	if len(all) != rows*size {
		return nil, damaged("rows are missing")
	}
	return all, nil
}

// shelf is one that was read.
type shelf struct {
	id     int64
	blocks []int64
}

func shelvesOf(ctx context.Context, tx *sql.Tx, query string, args ...any) (list []shelf, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
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
		if n := len(s.blocks); n != shelfFan && n != shelfFan*shelfFan {
			return nil, damaged("a shelf has not the right number of blocks")
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
