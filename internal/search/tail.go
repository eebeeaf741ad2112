// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// The tail of a mailbox is its messages that are in no block. Each has its
// signature there; the fields of several stand once more in a bundle, as a search
// by a field reads those of all.
const (
	insertTail = `INSERT INTO search_tail (message, mailbox, sig) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`
	countTail  = `SELECT COUNT(*) FROM search_tail WHERE mailbox = ?`
	firstTail  = `SELECT message, sig FROM search_tail WHERE mailbox = ? ORDER BY message LIMIT ?`
	deleteTail = `DELETE FROM search_tail WHERE message = ? RETURNING mailbox`
	cutTail    = `DELETE FROM search_tail WHERE mailbox = ? AND message <= ?`

	lastBundle    = `SELECT id, docs FROM search_bundle WHERE mailbox = ? ORDER BY id DESC LIMIT 1`
	insertBundle  = `INSERT INTO search_bundle (mailbox, docs) VALUES (?, ?)`
	updateBundle  = `UPDATE search_bundle SET docs = ? WHERE id = ?`
	deleteBundles = `DELETE FROM search_bundle WHERE mailbox = ?`
)

// In a bundle stand the id of each message and its fields: of those eight buckets
// are one, and nothing is packed. Thirty messages fill a page of the file.
const (
	bundleWords = 2_048 / 64
	bundleDoc   = 8 + 8*bundleWords
	bundleDocs  = 30
)

// appendBundled appends a message to what will be a bundle.
func appendBundled(to []byte, d doc) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(d.id))
	var folded [bundleWords]uint64
	for part := range slices.Chunk(d.sig[:fieldBuckets/64], bundleWords) {
		set(folded[:]).or(part)
	}
	for _, w := range folded {
		to = binary.LittleEndian.AppendUint64(to, w)
	}
	return to
}

// eachBundled calls f with the messages in a bundle.
func eachBundled(row []byte, f func(id db.ID, fields set)) error {
	row, err := opened(row)
	if err != nil {
		return err
	}
	if len(row)%bundleDoc != 0 {
		return damaged("a bundle is cut off")
	}
	var fields [bundleWords]uint64
	for one := range slices.Chunk(row, bundleDoc) {
		for i := range fields {
			fields[i] = binary.LittleEndian.Uint64(one[8+8*i:])
		}
		f(db.ID(binary.LittleEndian.Uint64(one)), fields[:])
	}
	return nil
}

// addDocs puts messages into the tails of their mailboxes, and makes blocks of
// those that are long enough.
func addDocs(ctx context.Context, tx *sql.Tx, docs []doc) error {
	added := map[db.ID][]doc{}
	for _, d := range docs {
		res, err := tx.ExecContext(ctx, insertTail, d.id, d.mailbox, sealed(appendPacked(nil, d.sig[:])))
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
		if err := bundle(ctx, tx, mailbox, docs); err != nil {
			return err
		}
		if err := makeBlock(ctx, tx, mailbox); err != nil {
			return err
		}
	}
	return nil
}

// bundle adds messages to the bundles of a mailbox.
func bundle(ctx context.Context, tx *sql.Tx, mailbox db.ID, docs []doc) error {
	var last int64
	var row []byte
	err := tx.QueryRowContext(ctx, lastBundle, mailbox).Scan(&last, &row)
	if err == nil {
		row, err = opened(row)
	} else if errors.Is(err, sql.ErrNoRows) {
		row, err = make([]byte, bundleDocs*bundleDoc), nil // as full as one can be
	}
	if err != nil {
		return err
	}
	add := func(row []byte, n int) []byte {
		for _, d := range docs[:n] {
			row = appendBundled(row, d)
		}
		docs = docs[n:]
		return sealed(row)
	}
	if room := min(bundleDocs-len(row)/bundleDoc, len(docs)); room > 0 {
		if _, err := tx.ExecContext(ctx, updateBundle, add(row, room), last); err != nil {
			return err
		}
	}
	for len(docs) > 0 {
		if _, err := tx.ExecContext(ctx, insertBundle, mailbox, add(nil, min(bundleDocs, len(docs)))); err != nil {
			return err
		}
	}
	return nil
}

// bundleAnew makes the bundles of a mailbox of what is left in its tail.
func bundleAnew(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	if _, err := tx.ExecContext(ctx, deleteBundles, mailbox); err != nil {
		return err
	}
	docs, err := tailOf(ctx, tx, mailbox)
	if err != nil {
		return err
	}
	return bundle(ctx, tx, mailbox, docs)
}

// makeBlock makes a block of the first messages in a tail, if there are enough.
func makeBlock(ctx context.Context, tx *sql.Tx, mailbox db.ID) error {
	var n int
	if err := tx.QueryRowContext(ctx, countTail, mailbox).Scan(&n); err != nil || n < blockDocs {
		return err
	}
	docs, err := tailOf(ctx, tx, mailbox)
	if err != nil {
		return err
	}
	if err := addBlock(ctx, tx, mailbox, docs, rowsPerBlock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, cutTail, mailbox, docs[len(docs)-1].id); err != nil {
		return err
	}
	if err := bundleAnew(ctx, tx, mailbox); err != nil {
		return err
	}
	return makeShelves(ctx, tx, mailbox)
}

// removeTail takes messages out of the tails.
func removeTail(ctx context.Context, tx *sql.Tx, ids []db.ID) error {
	left := map[db.ID]bool{}
	for _, id := range ids {
		var mailbox db.ID
		err := tx.QueryRowContext(ctx, deleteTail, id).Scan(&mailbox)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		left[mailbox] = true
	}
	for mailbox := range left {
		if err := bundleAnew(ctx, tx, mailbox); err != nil {
			return err
		}
	}
	return nil
}

// tailOf reads the first messages of a tail, as many as a block has.
func tailOf(ctx context.Context, tx *sql.Tx, mailbox db.ID) (docs []doc, err error) {
	var sig signature
	err = eachInTail(ctx, tx, firstTail, sig[:], func(id db.ID) {
		own := sig
		docs = append(docs, doc{id, mailbox, &own})
	}, mailbox, blockDocs)
	return docs, err
}

// eachInTail calls f with the messages that a query finds in a tail, and the
// signature of each in sig.
func eachInTail(ctx context.Context, q querier, query string, sig set, f func(id db.ID), args ...any) error {
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
		if err := sig.loadRow(row); err != nil {
			return err
		}
		f(id)
	}
	return rows.Err()
}
