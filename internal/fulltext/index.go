// SPDX-License-Identifier: Apache-2.0

// Package fulltext is the index behind SEARCH. It is only a prefilter: it tells which messages
// certainly lack a text, and package search examines the others. So the results never depend on how
// far indexing has come, or on whether there is an index.
//
// For each message it stores a signature of the sequences of three and four bytes in its texts. The
// index is a separate SQLite file on each node, whichever engine stores the mail. Each node fills
// its own in the background, and the database's writer never waits for it. The file is derived
// data: if deleted, it is rebuilt.
package fulltext

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mailstead/mailstead/internal/db"
)

// schemaVersion is the version of the file; a file with another version is rebuilt. It changes with
// the tables, with how texts are folded, decoded and stripped of markup, and with bucketOf.
const schemaVersion = 7

// schema creates the tables of the file. Messages wait in the write buffer (search_tail) until a
// mailbox has enough for a block.
const schema = `
CREATE TABLE search_state (
  pass INTEGER PRIMARY KEY,
  upto INTEGER NOT NULL               -- the last message that the pass has seen
);
INSERT INTO search_state (pass, upto) VALUES (0, 0), (1, 0), (2, 0);
-- Messages that the first pass has indexed and the second has not yet seen.
CREATE TABLE search_late (message INTEGER PRIMARY KEY);
-- Folders of which all messages with UIDs up to one are indexed.
CREATE TABLE search_folder (
  folder  INTEGER PRIMARY KEY,
  mailbox INTEGER NOT NULL,
  upto    INTEGER NOT NULL
);
CREATE INDEX search_folder_mailbox ON search_folder (mailbox);
CREATE TABLE search_tail (
  message INTEGER PRIMARY KEY,
  mailbox INTEGER NOT NULL,
  sig     BLOB NOT NULL
);
CREATE INDEX search_tail_mailbox ON search_tail (mailbox);
CREATE TABLE search_bundle (
  id      INTEGER PRIMARY KEY,
  mailbox INTEGER NOT NULL,
  docs    BLOB NOT NULL               -- the fields of several in the tail
);
CREATE INDEX search_bundle_mailbox ON search_bundle (mailbox);
-- The ids of blocks are not given again: shelves name those that are dissolved.
CREATE TABLE search_block (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  mailbox INTEGER NOT NULL,
  shelf   INTEGER NOT NULL,           -- that it stands in; 0 for none
  lo      INTEGER NOT NULL,           -- the lowest and highest id in it
  hi      INTEGER NOT NULL,
  ids     BLOB NOT NULL
);
CREATE INDEX search_block_mailbox ON search_block (mailbox, lo);
CREATE INDEX search_block_shelf ON search_block (mailbox, shelf);
CREATE TABLE search_slice (
  id   INTEGER PRIMARY KEY,           -- the block, times rows per block, plus the row
  bits BLOB NOT NULL
);
CREATE TABLE search_shelf (
  id      INTEGER PRIMARY KEY,
  mailbox INTEGER NOT NULL,
  level   INTEGER NOT NULL,
  blocks  BLOB NOT NULL               -- their ids, in their order on it
);
CREATE INDEX search_shelf_mailbox ON search_shelf (mailbox, level);
CREATE TABLE search_field (
  id   INTEGER PRIMARY KEY,           -- the shelf, times buckets of fields, plus the bucket
  bits BLOB NOT NULL
);
`

// Options are the dependencies of an Index.
type Options struct {
	Path string // of the file
	Now  func() time.Time
	Log  *slog.Logger
}

// Index prefilters searches. It implements search.Index and is safe for concurrent use. An Indexer
// fills it.
type Index struct {
	Options
	updateRequests chan db.ID   // mailboxes for which a search requested an update of indexed-through UIDs
	fileMu         sync.RWMutex // held while the file is recreated; guards unavailable
	unavailable    bool         // whether no file could be opened
	reader, writer *sql.DB
	statements     map[string]*sql.Stmt // searchQueries, on reader
	damage         chan error           // damage that a search found
}

// Open opens the file, or recreates it if it is missing, damaged or of another version. If it
// can't, searches work without the index until Indexer.Run can.
func Open(ctx context.Context, o Options) (*Index, error) {
	x := &Index{Options: o, damage: make(chan error, 1), updateRequests: make(chan db.ID, 100)}
	err := x.openOrCreate(ctx)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), x.Close())
	}
	if x.unavailable = err != nil; x.unavailable {
		x.Log.Error("searches do without the search index", "error", err)
	}
	return x, nil
}

// openOrCreate opens the file, or recreates it if that fixes the error.
func (x *Index) openOrCreate(ctx context.Context) error {
	err := x.open(ctx)
	if isDamageError(err) {
		err = x.create(ctx)
	}
	return err
}

// create creates an empty file.
func (x *Index) create(ctx context.Context) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(x.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rebuilding the search index: %w", err)
		}
	}
	return x.open(ctx)
}

// errDamaged is returned for a file that does not contain what was written.
var errDamaged = errors.New("the search index is damaged")

func damageError(what string) error { return fmt.Errorf("%w: %s", errDamaged, what) }

func isDamageError(err error) bool {
	var s *sqlite.Error
	if errors.As(err, &s) {
		switch s.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR: // SQLITE_ERROR: a table was altered
			return true
		}
		return s.Code() == sqlite3.SQLITE_IOERR_READ // a disk sector is bad
	}
	return errors.Is(err, errDamaged)
}

// mailDBError is an error of the database that stores the mail. That may be SQLite too, but its
// errors are not damage of the index.
type mailDBError struct{ error }

func wrapMailDBError(err error) error {
	if err == nil {
		return nil
	}
	return mailDBError{err}
}

// repair recreates the file if that fixes an error, or opens it if it could not be opened before.
// If it can't, searches work without the index until the next attempt.
func (x *Index) repair(ctx context.Context, err error) error {
	if !isDamageError(err) && !x.unavailable {
		return err
	}
	x.fileMu.Lock()
	defer x.fileMu.Unlock()
	_ = x.Close() // its contents are abandoned
	if isDamageError(err) {
		x.Log.Warn("the search index is damaged and is rebuilt", "error", err)
		err = x.create(ctx)
	} else {
		err = x.openOrCreate(ctx)
	}
	x.unavailable = err != nil
	return err
}

func (x *Index) open(ctx context.Context) (err error) {
	dsn := func(extra string) string {
		v := url.Values{"_pragma": {"page_size(8192)", "busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "temp_store(2)",
			"journal_size_limit(16777216)", extra}}
		return "file:" + (&url.URL{Path: x.Path}).EscapedPath() + "?" + v.Encode()
	}
	if x.writer, err = sql.Open("sqlite", dsn("cache_size(-4000)")); err != nil {
		return fmt.Errorf("opening the search index: %w", err)
	}
	x.writer.SetMaxOpenConns(1)
	if x.reader, err = sql.Open("sqlite", dsn("query_only(1)")); err != nil {
		return errors.Join(err, x.writer.Close())
	}
	x.reader.SetMaxOpenConns(4)
	x.reader.SetMaxIdleConns(2)
	if err := db.RestrictPermissions(x.Path); err != nil { // before any connection
		return errors.Join(fmt.Errorf("opening the search index: %w", err), x.Close())
	}
	if err := x.initSchema(ctx); err != nil {
		return errors.Join(err, x.Close())
	}
	x.statements = map[string]*sql.Stmt{}
	for _, query := range searchQueries {
		if x.statements[query], err = x.reader.PrepareContext(ctx, query); err != nil { //nolint:sqlclosecheck // it ends with the reader
			return errors.Join(err, x.Close())
		}
	}
	return nil
}

// initSchema creates the tables in an empty file. It returns an error for a file of another
// version.
func (x *Index) initSchema(ctx context.Context) error {
	var found int
	if err := x.writer.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil {
		return fmt.Errorf("opening the search index: %w", err)
	}
	if found == schemaVersion {
		return nil
	}
	return x.write(ctx, func(tx *sql.Tx) error {
		if found != 0 {
			return damageError("it is of another version")
		}
		if _, err := tx.ExecContext(ctx, schema); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
		return err
	})
}

// ReleaseMemory frees the caches, which fill again with use.
func (x *Index) ReleaseMemory(ctx context.Context) error {
	x.fileMu.RLock()
	defer x.fileMu.RUnlock()
	if x.unavailable {
		return nil
	}
	return errors.Join(db.ShrinkPoolMemory(ctx, x.reader), db.ShrinkPoolMemory(ctx, x.writer))
}

// Close closes the file.
func (x *Index) Close() error { return errors.Join(x.reader.Close(), x.writer.Close()) }

func (x *Index) write(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := x.writer.BeginTx(ctx, nil)
	if err == nil {
		if err = f(tx); err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err != nil {
		return fmt.Errorf("writing the search index: %w", err)
	}
	return nil
}

// doc is a message to index.
type doc struct {
	id, mailbox db.ID
	signature   *signature
}
