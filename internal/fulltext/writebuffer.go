// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// The write buffer of a mailbox holds its messages that are in no block, each with its signature. A
// page holds a second copy of the fields of several messages, because a search of a field reads
// those of all.
const (
	insertBufferedQuery = `INSERT INTO search_tail (message, mailbox, sig) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	countBufferQuery    = `SELECT COUNT(*) FROM search_tail WHERE mailbox = ?`
	firstBufferedQuery  = `SELECT message, sig FROM search_tail WHERE mailbox = ? ORDER BY message LIMIT ?`
	deleteBufferedQuery = `DELETE FROM search_tail WHERE message = ? RETURNING mailbox`
	trimBufferQuery     = `DELETE FROM search_tail WHERE mailbox = ? AND message <= ?`

	lastBufferPageQuery    = `SELECT id, docs FROM search_bundle WHERE mailbox = ? ORDER BY id DESC LIMIT 1`
	insertBufferPageQuery  = `INSERT INTO search_bundle (mailbox, docs) VALUES (?, ?)`
	updateBufferPageQuery  = `UPDATE search_bundle SET docs = ? WHERE id = ?`
	deleteBufferPagesQuery = `DELETE FROM search_bundle WHERE mailbox = ?`
)

// A page stores the id and the fields of each message. Eight field buckets share a bit, and nothing
// is packed. Thirty messages fill a page of the file.
const (
	bufferEntryWords = 2_048 / 64
	bufferEntryBytes = 8 + 8*bufferEntryWords
	bufferPageDocs   = 30
)

// appendBufferEntry appends a message to a page.
func appendBufferEntry(to []byte, d doc) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(d.id))
	var folded [bufferEntryWords]uint64
	for part := range slices.Chunk(d.signature[:fieldBuckets/64], bufferEntryWords) {
		bitset(folded[:]).or(part)
	}
	for _, w := range folded {
		to = binary.LittleEndian.AppendUint64(to, w)
	}
	return to
}

// eachBufferEntry calls f with the messages of a page.
func eachBufferEntry(row []byte, f func(id db.ID, fields bitset)) error {
	row, err := verifyRow(row)
	if err != nil {
		return err
	}
	if len(row)%bufferEntryBytes != 0 {
		return damageError("a bundle is cut off")
	}
	var fields [bufferEntryWords]uint64
	for one := range slices.Chunk(row, bufferEntryBytes) {
		for i := range fields {
			fields[i] = binary.LittleEndian.Uint64(one[8+8*i:])
		}
		f(db.ID(binary.LittleEndian.Uint64(one)), fields[:])
	}
	return nil
}

// addDocs adds messages to the write buffers of their mailboxes, and builds blocks from buffers
// that have enough.
func addDocs(ctx context.Context, tx *sql.Tx, docs []doc) error {
	added := map[db.ID][]doc{}
	for _, d := range docs {
		res, err := tx.ExecContext(ctx, insertBufferedQuery, d.id, d.mailbox, appendChecksum(appendSet(nil, d.signature[:])))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if n > 0 {
			added[d.mailbox] = append(added[d.mailbox], d)
		}
	}
	for mailbox, docs := range added {
		if err := addBufferPages(ctx, tx, mailbox, docs); err != nil {
			return err
		}
		if err := buildBlock(ctx, tx, mailbox); err != nil {
			return err
		}
	}
	return nil
}

// addBufferPages adds messages to the pages of a mailbox.
func addBufferPages(ctx context.Context, tx *sql.Tx, mailbox db.ID, docs []doc) error {
	var last int64
	var row []byte
	err := tx.QueryRowContext(ctx, lastBufferPageQuery, mailbox).Scan(&last, &row)
	if err == nil {
		row, err = verifyRow(row)
	} else if errors.Is(err, sql.ErrNoRows) {
		row, err = make([]byte, bufferPageDocs*bufferEntryBytes), nil // as if the last page were full
	}
	if err != nil {
		return err
	}
	add := func(row []byte, n int) []byte {
		for _, d := range docs[:n] {
			row = appendBufferEntry(row, d)
		}
		docs = docs[n:]
		return appendChecksum(row)
	}
	if capacity := min(bufferPageDocs-len(row)/bufferEntryBytes, len(docs)); capacity > 0 {
		if _, err := tx.ExecContext(ctx, updateBufferPageQuery, add(row, capacity), last); err != nil {
			return err
		}
	}
	for len(docs) > 0 {
		if _, err := tx.ExecContext(ctx, insertBufferPageQuery, mailbox, add(nil, min(bufferPageDocs, len(docs)))); err != nil {
			return err
		}
	}
	return nil
}

// rebuildBufferPages rebuilds the pages of a mailbox from the messages in its write buffer.
func rebuildBufferPages(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	if _, err := tx.ExecContext(ctx, deleteBufferPagesQuery, mailbox); err != nil {
		return err
	}
	docs, err := readBuffer(ctx, tx, mailbox)
	if err != nil {
		return err
	}
	return addBufferPages(ctx, tx, mailbox, docs)
}

// buildBlock builds a block from the first messages of a write buffer, if there are enough.
func buildBlock(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	var n int
	if err := tx.QueryRowContext(ctx, countBufferQuery, mailbox).Scan(&n); err != nil || n < blockDocs {
		return err
	}
	docs, err := readBuffer(ctx, tx, mailbox)
	if err != nil {
		return err
	}
	if err := writeBlock(ctx, tx, mailbox, docs, pagesPerBlock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, trimBufferQuery, mailbox, docs[len(docs)-1].id); err != nil {
		return err
	}
	if err := rebuildBufferPages(ctx, tx, mailbox); err != nil {
		return err
	}
	return buildSegments(ctx, tx, mailbox)
}

// deleteBuffered removes messages from the write buffers.
func deleteBuffered(ctx context.Context, tx *sql.Tx, ids []db.ID) error {
	left := map[db.ID]bool{}
	for _, id := range ids {
		var mailbox db.ID
		err := tx.QueryRowContext(ctx, deleteBufferedQuery, id).Scan(&mailbox)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		left[mailbox] = true
	}
	for mailbox := range left {
		if err := rebuildBufferPages(ctx, tx, mailbox); err != nil {
			return err
		}
	}
	return nil
}

// readBuffer reads the first messages of a write buffer, as many as a block has.
func readBuffer(ctx context.Context, tx *sql.Tx, mailbox db.ID) (docs []doc, err error) {
	var sig signature
	err = eachBuffered(ctx, tx, firstBufferedQuery, sig[:], func(id db.ID) {
		own := sig
		docs = append(docs, doc{id, mailbox, &own})
	}, mailbox, blockDocs)
	return docs, err
}

// eachBuffered calls f with each buffered message that a query returns, with its signature in sig.
func eachBuffered(ctx context.Context, q querier, query string, sig bitset, f func(id db.ID), args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	var id db.ID
	var row sql.RawBytes
	into := []any{&id, &row}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		clear(sig)
		if err := sig.decodeRow(row); err != nil {
			return err
		}
		f(id)
	}
	return rows.Err()
}
