// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

// Document is a message to index.
type Document struct {
	ID        db.ID
	Mailbox   db.ID
	blob      db.ID
	envelope  []byte
	structure []byte
}

var documentsQuery = db.SQL(`SELECT id, mailbox, blob, envelope, structure FROM message WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)

// Documents returns at most limit messages with ids between after and before, both excluded,
// in the order of their ids. Messages with lower ids may be committed later.
func Documents(ctx context.Context, d *db.DB, after, before db.ID, limit int) ([]Document, error) {
	return db.All(ctx, d, documentsQuery.With(after, before, limit), func(r db.Row) (m Document, err error) {
		return m, r.Scan(&m.ID, &m.Mailbox, &m.blob, &m.envelope, &m.structure)
	})
}

// textOverlap is by how many bytes the pieces of a text overlap.
const textOverlap = 3

// ErrMessageDeleted is returned for a message that is deleted.
var ErrMessageDeleted = errors.New("the message is gone")

// EachText calls f with the texts of a message that Search searches, folded as it compares them. A
// long text comes in pieces that overlap by 3 bytes, so that each sequence of 4 bytes is in one
// piece. complete is false if BodyText exceeded limit bytes.
func EachText(ctx context.Context, folders *folder.Folders, m Document, limit int, f func(kind TextKind, text []byte)) (complete bool, err error) {
	b, err := folders.Blobs.Load(ctx, m.blob)
	if errors.Is(err, blob.ErrNotExist) { // deleted together with it, or lost
		if there, failed := folders.ExistingMessages(ctx, []db.ID{m.ID}); failed == nil && !there[m.ID] {
			return false, ErrMessageDeleted
		}
	}
	if err != nil {
		return false, err
	}
	r, err := b.Open(ctx)
	if err != nil {
		return false, err
	}
	defer r.Close() //nolint:errcheck // nothing was written
	t, err := newTextScanner(ctx, r, m.structure, make([]byte, min(textBuffer, max(b.Size, 1<<10))))
	if err != nil {
		return false, fmt.Errorf("scanning message %s: %w", m.ID, err)
	}
	complete = t.eachText(m.envelope, limit, f)
	return complete, t.err
}

// eachText calls f as EachText does.
func (t *textScanner) eachText(envelope []byte, limit int, f func(kind TextKind, text []byte)) (complete bool) {
	for k := range message.EnvelopeFieldCount {
		f(k, []byte(fold(message.EnvelopeText(envelope, k))))
	}
	for field := range t.header(&t.index.Parts[0]).Fields() {
		f(HeaderText, []byte(fold(fieldText(field))))
		if k := searchableField(field.Name); k >= 0 {
			f(k, []byte(fold(field.Decoded())))
		}
	}
	return t.eachBodyText(limit, f)
}

// eachBodyText calls f with the texts that InBody searches, up to limit bytes.
func (t *textScanner) eachBodyText(limit int, f func(kind TextKind, text []byte)) (complete bool) {
	give := func(text []byte) (more bool) {
		limit -= len(text)
		if limit >= 0 {
			f(BodyText, text)
		}
		return limit >= 0
	}
	for r := range t.bodyTexts() {
		t.fail(eachFoldedWindow(r, textOverlap, t.buf, give))
		if limit < 0 {
			return false
		}
	}
	return true
}
