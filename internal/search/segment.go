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
	segmentFanout = 4
	maxLevel      = 5 // of 1,024 blocks
	noSegment     = 0 // in place of the shelf of a block without one
	// copyBuckets is how many buckets are carried to a shelf at once, so that
	// those of a large one are never all in memory.
	copyBuckets = 64
)

const (
	firstUnsegmentedBlocksQuery = `SELECT id FROM search_block WHERE mailbox = ? AND shelf = 0 ORDER BY id LIMIT ?`
	segmentsOfLevelQuery        = `SELECT id, blocks FROM search_shelf WHERE mailbox = ? AND level = ? ORDER BY id LIMIT ?`
	insertSegmentQuery          = `INSERT INTO search_shelf (mailbox, level, blocks) VALUES (?, ?, ?)`
	insertSegmentPageQuery      = `INSERT INTO search_field (id, bits) VALUES (?, ?)`
	setBlockSegmentQuery        = `UPDATE search_block SET shelf = ? WHERE id = ?`
	blockPagesQuery             = `SELECT id, bits FROM search_slice WHERE id >= ? AND id < ? ORDER BY id`
	segmentPagesQuery           = `SELECT id, bits FROM search_field WHERE id >= ? AND id < ? ORDER BY id`
	deleteSegmentQuery          = `DELETE FROM search_shelf WHERE id = ?`
	deleteSegmentPagesQuery     = `DELETE FROM search_field WHERE id >= ? AND id < ?`
	clearBlockSegmentQuery      = `UPDATE search_block SET shelf = 0 WHERE mailbox = ? AND shelf = ?`
	// sparseSegmentsQuery are those of which a quarter is left, or less.
	sparseSegmentsQuery = `SELECT s.id FROM search_shelf s WHERE s.mailbox = ?
		AND 4 * (SELECT COUNT(*) FROM search_block b WHERE b.mailbox = s.mailbox AND b.shelf = s.id) <= LENGTH(s.blocks) / 8`
)

// buildSegments makes shelves of the blocks that stand on none, as long as there are
// enough, and from level to level one of those below.
func buildSegments(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	for {
		blocks, err := queryInt64s(ctx, tx, firstUnsegmentedBlocksQuery, mailbox, segmentFanout)
		if err != nil || len(blocks) < segmentFanout {
			return err
		}
		parts := make([]pageSource, segmentFanout)
		for i, id := range blocks {
			parts[i] = blockSource(blockPagesQuery, id)
		}
		if err := buildSegment(ctx, tx, mailbox, 1, blocks, parts); err != nil {
			return err
		}
		if err := mergeLevels(ctx, tx, mailbox); err != nil {
			return err
		}
	}
}

// mergeLevels makes one shelf of several, from level to level.
func mergeLevels(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	for level := 2; level <= maxLevel; level++ {
		low, err := readSegments(ctx, tx, segmentsOfLevelQuery, mailbox, level-1, segmentFanout)
		if err != nil || len(low) < segmentFanout {
			return err
		}
		if err := mergeSegments(ctx, tx, mailbox, level, low); err != nil {
			return err
		}
	}
	return nil
}

// mergeSegments makes one shelf of several, which it replaces.
func mergeSegments(ctx context.Context, tx *sql.Tx, mailbox db.ID, level int, low []segment) error {
	var blocks []int64
	var parts []pageSource
	for _, s := range low {
		blocks, parts = append(blocks, s.blocks...), append(parts, s.source(segmentPagesQuery))
	}
	if err := buildSegment(ctx, tx, mailbox, level, blocks, parts); err != nil {
		return err
	}
	for _, s := range low {
		if err := deleteSegment(ctx, tx, s.id); err != nil {
			return err
		}
	}
	return nil
}

func buildSegment(ctx context.Context, tx *sql.Tx, mailbox db.ID, level int, blocks []int64, parts []pageSource) error {
	res, err := tx.ExecContext(ctx, insertSegmentQuery, mailbox, level, encodeIDs(blocks))
	if err != nil {
		return err
	}
	shelf, err := res.LastInsertId()
	if err != nil {
		return err
	}
	for _, id := range blocks {
		if _, err := tx.ExecContext(ctx, setBlockSegmentQuery, shelf, id); err != nil {
			return err
		}
	}
	insert, err := tx.PrepareContext(ctx, insertSegmentPageQuery)
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // what was written is told by each
	to := segmentSource(insertSegmentPageQuery, shelf, len(blocks))
	sets := newSets(copyBuckets, to.words)
	for from := uint32(0); from < fieldBuckets; from += copyBuckets {
		at := 0
		for _, part := range parts {
			if err := part.copyInto(ctx, tx, from, sets, at); err != nil {
				return err
			}
			at += part.words
		}
		var row []byte
		for i, s := range sets {
			row = appendSet(row, s)
			clear(s)
			if bucket := from + uint32(i); (bucket+1)%to.bucketsPerPage == 0 {
				if _, err := insert.ExecContext(ctx, to.page(bucket), appendChecksum(row)); err != nil {
					return err
				}
				row = row[:0]
			}
		}
	}
	return nil
}

// pageSource is where the buckets of a shelf or block stand, with so many in a row.
// For each there is a set of so many words.
type pageSource struct {
	query          string
	firstPage      int64
	bucketsPerPage uint32
	words          int
}

// blockSource are the buckets of a block.
func blockSource(query string, block int64) pageSource {
	return pageSource{query, block * pagesPerBlock, blockBucketsPerPage, blockWords}
}

// blockSources are those that a search reads, of several.
func blockSources(blocks []int64) (all []pageSource) {
	for _, id := range blocks {
		all = append(all, blockSource(blockPagesByIDQuery, id))
	}
	return all
}

func totalWords(all []pageSource) (n int) {
	for _, s := range all {
		n += s.words
	}
	return n
}

// segmentSource are those of a shelf. Of a small one some share a row.
func segmentSource(query string, shelf int64, blocks int) pageSource {
	return pageSource{query, shelf * fieldBuckets, uint32(max(1, 2*blockBucketsPerPage/blocks)), blocks * blockWords}
}

func (s pageSource) page(bucket uint32) int64 { return s.firstPage + int64(bucket/s.bucketsPerPage) }

// copyInto reads the sets of some buckets, whose rows must all be there, into others
// that have room for more, from a word on, and nothing there yet.
func (s pageSource) copyInto(ctx context.Context, tx *sql.Tx, bucket uint32, into []bitset, at int) error {
	from, to := s.page(bucket), s.page(bucket+uint32(len(into)))
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
		err := s.eachSet(row, func(n uint32, one []byte) error {
			return into[uint32(id-s.firstPage)*s.bucketsPerPage+n-bucket][at:][:s.words].decode(one)
		})
		if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if from != to {
		return damageError("rows are missing")
	}
	return nil
}

// eachSet calls f with what is packed in a row.
func (s pageSource) eachSet(row []byte, f func(n uint32, one []byte) error) error {
	row, err := verifyRow(row)
	if err != nil {
		return err
	}
	for n := range s.bucketsPerPage {
		one, rest, err := splitSet(row, s.words)
		if err == nil {
			err = f(n, one)
		}
		if err != nil {
			return err
		}
		row = rest
	}
	if len(row) > 0 {
		return damageError("a row is too long")
	}
	return nil
}

// segment is one that was read.
type segment struct {
	id     int64
	blocks []int64
}

func (s segment) source(query string) pageSource { return segmentSource(query, s.id, len(s.blocks)) }

func readSegments(ctx context.Context, q querier, query string, args ...any) (list []segment, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var s segment
		var raw sql.RawBytes
		if err := rows.Scan(&s.id, &raw); err != nil {
			return nil, err
		}
		if s.blocks, err = decodeIDs[int64](raw); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// compactSegments removes the shelves of a mailbox whose blocks are mostly dissolved,
// and makes others of those that are left.
func compactSegments(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	sparse, err := queryInt64s(ctx, tx, sparseSegmentsQuery, mailbox)
	if err != nil || len(sparse) == 0 {
		return err
	}
	for _, id := range sparse {
		if _, err := tx.ExecContext(ctx, clearBlockSegmentQuery, mailbox, id); err != nil {
			return err
		}
		if err := deleteSegment(ctx, tx, id); err != nil {
			return err
		}
	}
	return buildSegments(ctx, tx, mailbox)
}

func deleteSegment(ctx context.Context, tx *sql.Tx, id int64) error {
	if _, err := tx.ExecContext(ctx, deleteSegmentQuery, id); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, deleteSegmentPagesQuery, id*fieldBuckets, (id+1)*fieldBuckets)
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func queryInt64s(ctx context.Context, q querier, query string, args ...any) (list []int64, err error) {
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
