// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// sweepInterval is the pause after a complete sweep, firstSweepDelay the delay after a start,
	// and sweepBuffer how many buffered messages are checked at once.
	sweepInterval    = 6 * time.Hour
	firstSweepDelay  = 5 * time.Minute
	sweepBufferBatch = 500
	// sweepPass is the row of search_state that stores the progress. The write buffers come first,
	// with values below 0, then the blocks.
	sweepPass = 2
)

const (
	nextBufferedQuery     = `SELECT message FROM search_tail WHERE message > ? ORDER BY message LIMIT ?`
	nextBlockQuery        = `SELECT id, mailbox, ids FROM search_block WHERE id > ? ORDER BY id LIMIT 1`
	deleteBlockQuery      = `DELETE FROM search_block WHERE id = ?`
	deleteBlockPagesQuery = `DELETE FROM search_slice WHERE id >= ? AND id < ?`
)

// sweep checks some messages of the index, removes those that are deleted, and returns whether
// there are more to check. A block is dissolved once half of its messages are gone; the others
// return to the write buffer.
func (x *Indexer) sweep(ctx context.Context) (more bool, err error) {
	at, err := x.passProgress(ctx, sweepPass)
	if err != nil {
		return false, err
	}
	if at >= 0 {
		return x.sweepBlock(ctx, at)
	}
	return true, x.sweepBuffer(ctx, -at)
}

// sweepBuffer checks the buffered messages that follow after. After the last ones come the blocks.
func (x *Indexer) sweepBuffer(ctx context.Context, after db.ID) error {
	ids, err := x.queryIDs(ctx, nextBufferedQuery, after, sweepBufferBatch)
	if err != nil {
		return err
	}
	there, err := x.folders.ExistingMessages(ctx, ids)
	if err != nil {
		return wrapMailDBError(err)
	}
	var next db.ID // the first block
	if len(ids) > 0 {
		next = -ids[len(ids)-1]
	}
	return x.write(ctx, func(tx *sql.Tx) error {
		gone := slices.DeleteFunc(ids, func(id db.ID) bool { return there[id] })
		if err := deleteBuffered(ctx, tx, gone); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, setPassProgressQuery, next, sweepPass)
		return err
	})
}

func (x *Index) queryIDs(ctx context.Context, query string, args ...any) (ids []db.ID, err error) {
	rows, err := x.reader.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	for rows.Next() {
		var id db.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// sweepStart precedes every message. It is negative, so that the sweep starts with the write
// buffers.
const sweepStart = -1

// sweepBlock checks the block that follows after. After the last block the sweep starts again.
func (x *Indexer) sweepBlock(ctx context.Context, after db.ID) (more bool, err error) {
	var id int64
	var mailbox db.ID
	var raw []byte
	err = x.reader.QueryRowContext(ctx, nextBlockQuery, after).Scan(&id, &mailbox, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		if err := x.sweepIndexedThrough(ctx); err != nil {
			return false, err
		}
		return false, x.write(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, setPassProgressQuery, sweepStart, sweepPass)
			return err
		})
	}
	if err != nil {
		return false, err
	}
	ids, err := decodeIDs[db.ID](raw)
	if err != nil {
		return false, err
	}
	there, err := x.folders.ExistingMessages(ctx, ids)
	if err != nil {
		return false, wrapMailDBError(err)
	}
	keep := map[int]bool{}
	for n, id := range ids {
		if there[id] {
			keep[n] = true
		}
	}
	return true, x.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, setPassProgressQuery, id, sweepPass); err != nil || len(keep) > blockDocs/2 {
			return err
		}
		return dissolveBlock(ctx, tx, id, mailbox, ids, keep)
	})
}

// dissolveBlock moves the messages of a block that are in keep to the write buffer.
func dissolveBlock(ctx context.Context, tx *sql.Tx, id int64, mailbox db.ID, ids []db.ID, keep map[int]bool) error {
	all := newSets(buckets, blockWords)
	if err := blockSource(blockPagesQuery, id).copyInto(ctx, tx, 0, all, 0); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, deleteBlockQuery, id); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, deleteBlockPagesQuery, id*pagesPerBlock, (id+1)*pagesPerBlock); err != nil {
		return err
	}
	if err := compactSegments(ctx, tx, mailbox); err != nil {
		return err
	}
	var docs []doc
	for n, sig := range extractSignatures(all, keep) {
		docs = append(docs, doc{ids[n], mailbox, sig})
	}
	slices.SortFunc(docs, func(a, b doc) int { return int(a.id - b.id) })
	return addDocs(ctx, tx, docs)
}
