// SPDX-License-Identifier: Apache-2.0

// Package blob keeps the bytes of messages. A small message stands in its
// database row and is committed with it. Of a larger one the row holds the
// head, and a file in the blob store the rest: the file is written and made
// durable first, under a fresh id, and lives as long as a row names it. Rows
// of several recipients may share a file.
package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// FileStore is a place for the bytes that don't fit in rows.
type FileStore interface {
	// Create begins a file; it counts only once Commit has returned.
	Create(ctx context.Context, name db.ID) (FileWriter, error)
	// Open reads a file. A file that is not there is fs.ErrNotExist.
	Open(ctx context.Context, name db.ID) (FileReader, error)
	// Delete removes a file; one that is not there is no error.
	Delete(ctx context.Context, name db.ID) error
	// Each calls f for every file that was committed before a time, and
	// removes what Create left behind before it without Commit or Abort. f
	// may delete the file.
	Each(ctx context.Context, before time.Time, f func(name db.ID) error) error
	// CheckOwner returns a fault.Conflict while the files are those of another database
	// too, which knows which of them have no row.
	CheckOwner() error
}

// FileWriter writes one file. Commit makes it durable; Abort throws it away
// and does nothing after Commit.
type FileWriter interface {
	io.Writer
	Commit() error
	Abort()
}

// FileReader reads parts of a file.
type FileReader interface {
	io.ReaderAt
	io.Closer
}

// MaxInline is the size up to which a message stands in its row.
const MaxInline = 64 << 10

// Store keeps blobs.
type Store struct {
	DB    *db.DB
	Files FileStore
	Now   func() time.Time

	unreferenced map[db.ID]time.Time // files that the last Sweep found without a row, and since when
}

// Blob is a blob that is complete and durable but for its row, which Insert
// makes in the transaction of what refers to it.
type Blob struct {
	ID   db.ID
	Size int64

	bytes []byte
	file  db.ID
	files FileStore
}

// Writer takes the bytes of a new blob. Call Finish or Abort.
type Writer struct {
	store *Store
	ctx   context.Context
	buf   []byte
	name  db.ID
	file  FileWriter
	size  int64
}

// Create begins a blob.
func (s *Store) Create(ctx context.Context) *Writer { return &Writer{store: s, ctx: ctx} }

// FromBytes makes a blob of bytes at hand; it keeps b.
func (s *Store) FromBytes(ctx context.Context, b []byte) (*Blob, error) {
	if len(b) <= MaxInline {
		return &Blob{ID: s.DB.NewID(), Size: int64(len(b)), bytes: b}, nil
	}
	w := s.Create(ctx)
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	return w.Finish()
}

// Write takes more bytes: in memory at first, in a file once they are many.
func (w *Writer) Write(p []byte) (int, error) {
	w.size += int64(len(p))
	if w.file == nil && len(w.buf)+len(p) <= MaxInline {
		w.buf = append(w.buf, p...)
		return len(p), nil
	}
	if w.file == nil {
		w.name = w.store.DB.NewID()
		file, err := w.store.Files.Create(w.ctx, w.name)
		if err != nil {
			return 0, wrapStoreError(err)
		}
		w.file = file
		if _, err := file.Write(w.buf); err != nil {
			return 0, wrapStoreError(err)
		}
		w.buf = nil
	}
	n, err := w.file.Write(p)
	return n, wrapStoreError(err)
}

// wrapStoreError says what could not be done; a full disk is a fault.Unavailable.
func wrapStoreError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(err, fault.Unavailable, "storage_full", "The service has no room at the moment. Nothing was stored; try again later.")
	}
	return fmt.Errorf("keeping a large message: %w", err)
}

// Size returns how many bytes were written so far.
func (w *Writer) Size() int64 { return w.size }

// Finish makes the bytes durable, but for those that come with the row.
func (w *Writer) Finish() (*Blob, error) {
	b := &Blob{ID: w.store.DB.NewID(), Size: w.size, bytes: w.buf, files: w.store.Files}
	if b.bytes == nil {
		b.bytes = []byte{}
	}
	if w.file != nil {
		if err := w.file.Commit(); err != nil {
			return nil, wrapStoreError(err)
		}
		b.file, w.file = w.name, nil
	}
	return b, nil
}

// Abort gives the blob up; after Finish it does nothing.
func (w *Writer) Abort() {
	if w.file != nil {
		w.file.Abort()
		w.file = nil
	}
}

// Prepend returns a blob of its own id that has head before b's bytes and
// shares b's file. b must have, or get in the same transaction or before, a row.
func (s *Store) Prepend(b *Blob, head []byte) *Blob {
	joined := make([]byte, 0, len(head)+len(b.bytes))
	joined = append(append(joined, head...), b.bytes...)
	return &Blob{ID: s.DB.NewID(), Size: b.Size + int64(len(head)), bytes: joined, file: b.file, files: b.files}
}

var (
	insertQuery    = db.SQL(`INSERT INTO blob (id, size, file, bytes) VALUES ($1, $2, $3, $4)`)
	findQuery      = db.SQL(`SELECT id, size, file, bytes FROM blob WHERE id = $1`)
	findGroupQuery = db.SQL(`SELECT id, size, file, bytes FROM blob
		WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	findIDQuery        = db.SQL(`SELECT id FROM blob WHERE id = $1`)
	deleteQuery        = db.SQL(`DELETE FROM blob WHERE id = $1`)
	fileReferenceQuery = db.SQL(`SELECT id FROM blob WHERE file = $1 AND file > 0 LIMIT 1`)
)

// InsertStatement makes the statement for the blob's row.
func (b *Blob) InsertStatement() db.Statement { return insertQuery.With(b.ID, b.Size, b.file, b.bytes) }

// DeleteStatement makes the statement that deletes a blob's row. Its file goes with
// the next sweep, if no other row names it.
func DeleteStatement(id db.ID) db.Statement { return deleteQuery.With(id) }

// ErrNotExist is returned by Load for an id without a row.
var ErrNotExist = errors.New("no such blob")

// errTruncated is of bytes that end too early: a message that lost its end must not
// pass for a shorter one.
var errTruncated = fmt.Errorf("the bytes of a message end too early: %w", io.ErrUnexpectedEOF)

// IsLost reports whether an error of loading, opening or reading a blob says that
// its bytes are gone, cut off or can't be read, as opposed to trouble that
// passes.
func IsLost(err error) bool {
	return errors.Is(err, ErrNotExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTruncated) || errors.Is(err, syscall.EIO)
}

// ScanTargets returns a blob that a query finds, and what to scan the id, size, file and
// bytes of its row into.
func (s *Store) ScanTargets() (*Blob, []any) {
	b := &Blob{files: s.Files}
	return b, []any{&b.ID, &b.Size, &b.file, &b.bytes}
}

// Load returns a stored blob.
func (s *Store) Load(ctx context.Context, id db.ID) (*Blob, error) {
	b, row := s.ScanTargets()
	read := func() error { return s.DB.One(ctx, findQuery.With(id), row...) }
	err := read()
	if err != nil && !errors.Is(err, db.ErrNoRow) && s.DB.One(ctx, findIDQuery.With(id), new(db.ID)) == nil {
		// The database is there: it may have been away, or the row is bad.
		if err = read(); err != nil && ctx.Err() == nil && !errors.Is(err, db.ErrNoRow) {
			err = fmt.Errorf("reading the row of blob %s: %w (%w)", id, syscall.EIO, err)
		}
	}
	if errors.Is(err, db.ErrNoRow) {
		err = ErrNotExist
	}
	return b, err
}

// Discard deletes the file of a blob that got no row and will get none. When
// that fails the sweep does it a day later.
func (b *Blob) Discard(ctx context.Context) {
	if b.file != 0 {
		_ = b.files.Delete(context.WithoutCancel(ctx), b.file)
	}
}

// loadBatchSize is how many blobs one query reads.
const loadBatchSize = 16

// LoadAll returns stored blobs in the order of their ids; one without a row, or
// whose row can't be read, is nil: Load says which. What stands in rows is in
// memory then, so ids should be few.
func (s *Store) LoadAll(ctx context.Context, ids []db.ID) ([]*Blob, error) {
	all := make([]*Blob, len(ids))
	for at := 0; at < len(ids); at += loadBatchSize {
		group := ids[at:min(at+loadBatchSize, len(ids))]
		var args [loadBatchSize]any
		for i := range args {
			args[i] = group[min(i, len(group)-1)]
		}
		err := s.DB.Each(ctx, findGroupQuery.With(args[:]...), func(r db.Row) error {
			b, row := s.ScanTargets()
			if err := r.Scan(row...); err != nil {
				return err
			}
			for i, id := range group {
				if id == b.ID {
					all[at+i] = b
				}
			}
			return nil
		})
		for i := 0; err != nil && i < len(group); i++ { // each by itself
			b, alone := s.Load(ctx, group[i])
			switch {
			case alone == nil:
				all[at+i] = b
			case !IsLost(alone):
				return nil, alone
			}
		}
	}
	return all, nil
}

// Reader reads a blob at any offset.
type Reader struct {
	head []byte
	file FileReader // nil if all is in head
	size int64
}

// Open begins to read. One that has lost its end is refused at once, while
// whoever reads can still say so. The caller must Close the Reader.
func (b *Blob) Open(ctx context.Context) (*Reader, error) {
	r := &Reader{head: b.bytes, size: b.Size}
	if b.file != 0 {
		f, err := b.files.Open(ctx, b.file)
		if err != nil {
			return nil, fmt.Errorf("reading blob %s: %w", b.ID, err)
		}
		r.file = f
	}
	if _, err := r.ReadAt(make([]byte, 1), max(0, b.Size-1)); err != nil && !errors.Is(err, io.EOF) {
		_ = r.Close() // only read
		return nil, fmt.Errorf("reading blob %s: %w", b.ID, err)
	}
	return r, nil
}

// Bytes returns all bytes of a blob that stands whole in its row, and whether it
// does.
func (b *Blob) Bytes() ([]byte, bool) { return b.bytes, b.file == 0 && int64(len(b.bytes)) == b.Size }

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return r.size }

// ReadAt reads as io.ReaderAt says.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := 0
	if off < int64(len(r.head)) {
		n = copy(p, r.head[off:])
	}
	if n == len(p) {
		return n, nil
	}
	err := io.EOF
	if r.file != nil {
		var m int
		m, err = r.file.ReadAt(p[n:], off+int64(n)-int64(len(r.head)))
		n += m
	}
	if errors.Is(err, io.EOF) && off+int64(n) < r.size {
		err = errTruncated
	}
	return n, err
}

// All returns a reader of everything.
func (r *Reader) All() io.Reader { return io.NewSectionReader(r, 0, r.size) }

// WriteTo writes everything to w.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	if r.file == nil {
		n, err := w.Write(r.head)
		return int64(n), err
	}
	return io.Copy(w, io.MultiReader(bytes.NewReader(r.head), io.NewSectionReader(r, int64(len(r.head)), r.size-int64(len(r.head)))))
}

// Close ends the reading.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
