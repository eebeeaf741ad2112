// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// A segment holds a second copy of the field buckets of several blocks of a mailbox, side by side:
// a search of a field reads one row for all of them. Four blocks make a segment of level 1, four of
// these make one of level 2 that replaces them, and so on. So a mailbox of a million messages has
// two large segments and some smaller ones, and a search reads few rows. Dissolved blocks leave
// gaps. The blocks of a segment that is mostly gaps move to smaller segments.
const (
	segmentFanout = 4
	maxLevel      = 5 // of 1,024 blocks
	noSegment     = 0 // for a block without a segment
	// copyBuckets is how many buckets are copied to a segment at once, so that all buckets of a
	// large one are never in memory together.
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
	// sparseSegmentsQuery finds the segments of which at most a quarter of the blocks is left.
	sparseSegmentsQuery = `SELECT s.id FROM search_shelf s WHERE s.mailbox = ?
		AND 4 * (SELECT COUNT(*) FROM search_block b WHERE b.mailbox = s.mailbox AND b.shelf = s.id) <= LENGTH(s.blocks) / 8`
)

// buildSegments builds segments from the blocks without a segment, as long as there are enough, and
// merges the levels.
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

// mergeLevels merges the segments of each level into one of the next, if there are enough.
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

// mergeSegments merges several segments into one, which replaces them.
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
	searchSegment, err := res.LastInsertId()
	if err != nil {
		return err
	}
	for _, id := range blocks {
		if _, err := tx.ExecContext(ctx, setBlockSegmentQuery, searchSegment, id); err != nil {
			return err
		}
	}
	insert, err := tx.PrepareContext(ctx, insertSegmentPageQuery)
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // what was written is told by each
	to := segmentSource(insertSegmentPageQuery, searchSegment, len(blocks))
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

// pageSource locates the buckets of a segment or block: bucketsPerPage are in a row (page), and
// each is a set of words words.
type pageSource struct {
	query          string
	firstPage      int64
	bucketsPerPage uint32
	words          int
}

// blockSource returns the source of a block's buckets.
func blockSource(query string, block int64) pageSource {
	return pageSource{query, block * pagesPerBlock, blockBucketsPerPage, blockWords}
}

// blockSources returns the sources of several blocks for a search.
func blockSources(blocks []int64) (all []pageSource) {
	for _, id := range blocks {
		all = append(all, blockSource(blockPagesByIDQuery, id))
	}
	return all
}

func totalSetWords(all []pageSource) (n int) {
	for _, s := range all {
		n += s.words
	}
	return n
}

// segmentSource returns the source of a segment's buckets. In a small segment, several share a row.
func segmentSource(query string, searchSegment int64, blocks int) pageSource {
	return pageSource{query, searchSegment * fieldBuckets, uint32(max(1, 2*blockBucketsPerPage/blocks)), blocks * blockWords}
}

func (s pageSource) page(bucket uint32) int64 { return s.firstPage + int64(bucket/s.bucketsPerPage) }

// copyInto reads the sets of consecutive buckets, all of whose rows must exist, into larger sets,
// starting at word at. The target words must be empty.
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

// eachSet calls f with each packed set in a row.
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

// segment is a segment read from the file.
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

// compactSegments removes the segments of a mailbox whose blocks are mostly dissolved, and builds
// new ones from the remaining blocks.
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
