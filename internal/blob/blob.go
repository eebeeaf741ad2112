// SPDX-License-Identifier: Apache-2.0

// Package blob stores the bytes of messages. A small message is stored in its database row and
// committed with it. Of a larger message, the row holds the head and a file in the blob store the
// rest. The file is written and made durable first, under a new id, and exists as long as a row
// refers to it. Rows of several recipients may share a file.
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

// FileStore stores the bytes that don't fit in rows.
type FileStore interface {
	// Create begins a file. It exists only once Commit has returned.
	Create(ctx context.Context, name db.ID) (FileWriter, error)
	// Open opens a file for reading. It returns fs.ErrNotExist for a missing file.
	Open(ctx context.Context, name db.ID) (FileReader, error)
	// Delete deletes a file. A missing file is not an error.
	Delete(ctx context.Context, name db.ID) error
	// Each calls f for every file that was committed before a time. It also
	// deletes older leftovers of Create without Commit or Abort. f may delete
	// the file.
	Each(ctx context.Context, before time.Time, f func(name db.ID) error) error
	// CheckOwner returns a fault.Conflict while another database owns the files, as only
	// that one knows which of them have no row.
	CheckOwner() error
}

// FileWriter writes one file. Commit makes it durable. Abort discards it, and does nothing after
// Commit.
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

// MaxInline is the maximum size in bytes of a message that is stored in its row.
const MaxInline = 64 << 10

// Store stores blobs.
type Store struct {
	DB    *db.DB
	Files FileStore
	Now   func() time.Time

	unreferenced map[db.ID]time.Time // files that the last Sweep found without a row, and when first
}

// Blob is a complete blob. Its file is durable; its row is inserted, with InsertStatement, in the
// transaction that refers to it.
type Blob struct {
	ID   db.ID
	Size int64

	bytes []byte
	file  db.ID
	files FileStore
}

// Writer writes the bytes of a new blob. The caller must call Finish or Abort.
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

// FromBytes makes a blob of b, and keeps b.
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

// Write appends bytes: in memory first, and in a file above MaxInline.
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

// wrapStoreError wraps an error of the file store; a full disk is a fault.Unavailable.
func wrapStoreError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(err, fault.Unavailable, "storage_full", "The service has no room at the moment. Nothing was stored; try again later.")
	}
	return fmt.Errorf("keeping a large message: %w", err)
}

// Size returns the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// Finish makes the bytes durable, except for those that are stored in the row.
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

// Abort discards the blob. After Finish it does nothing.
func (w *Writer) Abort() {
	if w.file != nil {
		w.file.Abort()
		w.file = nil
	}
}

// Prepend returns a new blob, with head before b's bytes, that shares b's file. b's row must exist,
// or be inserted in the same transaction or earlier.
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

// InsertStatement returns the statement that inserts the blob's row.
func (b *Blob) InsertStatement() db.Statement { return insertQuery.With(b.ID, b.Size, b.file, b.bytes) }

// DeleteStatement returns the statement that deletes a blob's row. Sweep deletes its file later, if
// no other row refers to it.
func DeleteStatement(id db.ID) db.Statement { return deleteQuery.With(id) }

// ErrNotExist is returned by Load for an id without a row.
var ErrNotExist = errors.New("no such blob")

// errTruncated says that bytes end too early: a truncated message must not be read as a shorter
// one.
var errTruncated = fmt.Errorf("the bytes of a message end too early: %w", io.ErrUnexpectedEOF)

// IsLost reports whether an error of loading, opening or reading a blob says that its bytes are
// missing, truncated or unreadable, as opposed to a temporary error.
func IsLost(err error) bool {
	return errors.Is(err, ErrNotExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTruncated) || errors.Is(err, syscall.EIO)
}

// ScanTargets returns an empty blob, and the targets for scanning the id, size, file and bytes of
// its row.
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
		// The database answers now. Either it did not before, or the row is damaged.
		if err = read(); err != nil && ctx.Err() == nil && !errors.Is(err, db.ErrNoRow) {
			err = fmt.Errorf("reading the row of blob %s: %w (%w)", id, syscall.EIO, err)
		}
	}
	if errors.Is(err, db.ErrNoRow) {
		err = ErrNotExist
	}
	return b, err
}

// Discard deletes the file of a blob without a row. If that fails, Sweep deletes it a day later.
func (b *Blob) Discard(ctx context.Context) {
	if b.file != 0 {
		_ = b.files.Delete(context.WithoutCancel(ctx), b.file)
	}
}

// LoadAll returns stored blobs in the order of ids. A blob without a row, or with an unreadable
// row, is nil; Load returns which. The bytes in the rows are in memory then, so pass few ids.
func (s *Store) LoadAll(ctx context.Context, ids []db.ID) ([]*Blob, error) {
	all := make([]*Blob, len(ids))
	for at := 0; at < len(ids); at += db.InListSize {
		group := ids[at:min(at+db.InListSize, len(ids))]
		err := s.DB.Each(ctx, findGroupQuery.With(db.InListArgs(len(group), func(i int) any { return group[i] })...), func(r db.Row) error {
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
		for i := 0; err != nil && i < len(group); i++ { // each separately
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
	file FileReader // nil if all bytes are in head
	size int64
}

// Open opens the blob for reading. It returns an error for a truncated blob at once, while the
// caller can still report it. The caller must close the Reader.
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
		_ = r.Close() // it only reads
		return nil, fmt.Errorf("reading blob %s: %w", b.ID, err)
	}
	return r, nil
}

// Bytes returns all bytes of a blob if they are in its row, and whether they are.
func (b *Blob) Bytes() ([]byte, bool) { return b.bytes, b.file == 0 && int64(len(b.bytes)) == b.Size }

// Size returns the blob's length in bytes.
func (r *Reader) Size() int64 { return r.size }

// ReadAt implements io.ReaderAt.
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

// All returns a reader of all bytes.
func (r *Reader) All() io.Reader { return io.NewSectionReader(r, 0, r.size) }

// WriteTo writes all bytes to w.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	if r.file == nil {
		n, err := w.Write(r.head)
		return int64(n), err
	}
	return io.Copy(w, io.MultiReader(bytes.NewReader(r.head), io.NewSectionReader(r, int64(len(r.head)), r.size-int64(len(r.head)))))
}

// Close closes the file, if any.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
