// SPDX-License-Identifier: Apache-2.0

// Package search is the index behind SEARCH. It only narrows: it tells which
// messages surely lack a text, and the folders look at the others, so an
// answer never depends on how far the index has come, or on whether there is
// one.
//
// Of each message it keeps a signature of the sequences of three and four bytes
// in its texts, in a file of its own (SQLite, whatever engine the mail is kept in):
// each node has one, fills it in the background, and the database's writer
// never waits for it. The file is derived: deleted, it is made anew.
package search

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
	"github.com/mailstead/mailstead/internal/folder"
)

// schemaVersion is that of the file; one of another version is made anew. It changes
// with the tables, with how texts are folded, decoded and stripped of markup,
// and with bucketOf.
const schemaVersion = 7

// schema is what the file holds. Messages wait in search_tail until there are
// enough of a mailbox for a block.
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

// Options are what an Index works with.
type Options struct {
	Path    string // of the file
	Folders *folder.Store
	Now     func() time.Time
	Log     *slog.Logger
}

// Index narrows searches. It is safe for use by many goroutines; Fill,
// cover and Sweep are for one.
type Index struct {
	Options
	updatedMailboxes map[db.ID]bool // mailboxes with messages that fill has indexed, for cover
	indexedThroughAt time.Time      // when updateAllIndexedThrough last began
	updateRequests   chan db.ID     // mailboxes whose folders a search found not covered
	fileMu           sync.RWMutex   // held while the file is begun anew; guards lost
	unavailable      bool           // there is no file that could be read
	reader, writer   *sql.DB
	statements       map[string]*sql.Stmt // searchQueries, on reader
	damage           chan error           // a search found damage
}

// Open opens the file, or begins it anew if it is missing, damaged or of
// another version. If it can't, searches do without until Run can.
func Open(ctx context.Context, o Options) (*Index, error) {
	x := &Index{Options: o, damage: make(chan error, 1), updatedMailboxes: map[db.ID]bool{}, updateRequests: make(chan db.ID, 100)}
	err := x.openOrCreate(ctx)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), x.Close())
	}
	if x.unavailable = err != nil; x.unavailable {
		x.Log.Error("searches do without the search index", "error", err)
	}
	return x, nil
}

// openOrCreate opens the file, or begins it anew if that is the remedy.
func (x *Index) openOrCreate(ctx context.Context) error {
	err := x.open(ctx)
	if isDamageError(err) {
		err = x.create(ctx)
	}
	return err
}

// create begins an empty file.
func (x *Index) create(ctx context.Context) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(x.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("beginning the search index anew: %w", err)
		}
	}
	return x.open(ctx)
}

// errDamaged is of a file that does not hold what was written.
var errDamaged = errors.New("the search index is damaged")

func damageError(what string) error { return fmt.Errorf("%w: %s", errDamaged, what) }

func isDamageError(err error) bool {
	var s *sqlite.Error
	if errors.As(err, &s) {
		switch s.Code() & 0xff {
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR: // the last: a table is not as it was made
			return true
		}
		return s.Code() == sqlite3.SQLITE_IOERR_READ // a page of the disk is bad
	}
	return errors.Is(err, errDamaged)
}

// mailDBError is an error of the database that the mail is in. What it says of that,
// which may be SQLite too, is no damage of the index.
type mailDBError struct{ error }

func wrapMailDBError(err error) error {
	if err == nil {
		return nil
	}
	return mailDBError{err}
}

// repair begins the file anew if that is the remedy for an error, or opens it if
// it could not be opened before. If it can't, searches do without until the next
// try.
func (x *Index) repair(ctx context.Context, err error) error {
	if !isDamageError(err) && !x.unavailable {
		return err
	}
	x.fileMu.Lock()
	defer x.fileMu.Unlock()
	_ = x.Close() // what it held is given up
	if isDamageError(err) {
		x.Log.Warn("the search index is damaged and made anew", "error", err)
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
	if err := db.RestrictPermissions(x.Path); err != nil { // before anything connects
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

// initSchema makes the tables in an empty file, and declines one of another
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

// ReleaseMemory gives back the memory of its caches; they fill again with use.
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

// doc is a message that is indexed.
type doc struct {
	id, mailbox db.ID
	signature   *signature
}
