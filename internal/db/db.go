// SPDX-License-Identifier: Apache-2.0

// Package db stores all state in SQLite or PostgreSQL, with one SQL text per query for both.
// Ordinary writes use Tx. Frequent ones (accepting and filing mail, delivery outcomes, flags)
// use Write, whose batchers commit the mutations of many callers together. Both return only
// after the commit is on disk, and return to each caller the result of its own write.
package db

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Engine is one of the two databases.
type Engine int

// The engines.
const (
	SQLite Engine = iota
	Postgres
)

// String returns the engine's name.
func (e Engine) String() string { return [...]string{"sqlite", "postgres"}[e] }

// ErrNoRow is returned by One when there is no row.
var ErrNoRow = errors.New("no row")

// Row is a row that is being read.
type Row interface{ Scan(dst ...any) error }

// Reader runs statements that return rows: the database itself, or a
// transaction.
type Reader interface {
	// Each calls f for every row. Meanwhile it holds a read transaction,
	// which must not live longer than a second: f must not wait for
	// anything, and the statement must bound its rows (at most 1,000, or
	// MaxPageSize of a list). A read that takes longer is logged.
	Each(ctx context.Context, s Statement, f func(Row) error) error
	// One scans the first row, or returns ErrNoRow.
	One(ctx context.Context, s Statement, dst ...any) error
}

// engine is the part that differs between SQLite and PostgreSQL.
type engine interface {
	each(ctx context.Context, s Statement, f func(Row) error) error
	tx(ctx context.Context, f func(txSession) error) error
	// priorityTx is tx that does not queue behind ordinary transactions. It serves one caller at
	// a time.
	priorityTx(ctx context.Context, f func(txSession) error) error
	commitBatch(jobs []*pendingWrite) // answers every job
	batcherCount() int
	isDown() bool // whether the database has stopped answering
	isUniqueViolation(error) bool
	ping(ctx context.Context) error
	close() error
}

// txSession is a connection inside a transaction.
type txSession interface {
	// run executes s; f, if not nil, is called for every row. It returns
	// how many rows were changed or read.
	run(s Statement, f func(Row) error) (int64, error)
}

// DB is an open database. It is safe for use by many goroutines.
type DB struct {
	engine
	kind     Engine
	ids      idGenerator
	batchers []*batcher
	log      *slog.Logger
	now      func() time.Time

	outageWait time.Duration
}

const defaultIdleTimeout = 5 * time.Second

// Options are the options of Open.
type Options struct {
	// URL is "sqlite:PATH" of the database file or "postgres://…".
	URL string
	// Log receives warnings, for example about a growing WAL.
	Log *slog.Logger
	// Fatal is called when an fsync failed: the kernel may have dropped
	// pages, so the process must end. The default logs and exits.
	Fatal func(error)
	Now   func() time.Time // the clock for ids
	// IdleTimeout is how long a connection to PostgreSQL may be silent before it is checked, and
	// how long a check may take; 0 means 5 s.
	IdleTimeout time.Duration
	// OutageWait is how long a read or write waits for PostgreSQL while it does not answer, before
	// it fails with a fault.Unavailable; 0 means DefaultOutageWait. A write whose connection is
	// lost during the commit waits as long again, to find out its outcome.
	OutageWait time.Duration
	// MaxConns is the maximum of connections to PostgreSQL, at least MinConns; 0 means 24, or 8 more
	// than there are processors.
	MaxConns int

	// Exclusive is for a SQLite file that only this process uses. It turns the write-ahead log
	// off, which some network file systems don't support.
	Exclusive bool

	wal walLimits // for SQLite; zero means the default
}

// Open opens the database and brings its schema up to date.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) {
			o.Log.Error("a write could not be made durable; ending the process", "error", err)
			os.Exit(1)
		}
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.OutageWait <= 0 {
		o.OutageWait = DefaultOutageWait
	}
	d := &DB{log: o.Log, now: o.Now, outageWait: o.OutageWait}
	d.ids.now = o.Now
	var err error
	switch path, isFile := strings.CutPrefix(o.URL, "sqlite:"); {
	case isFile:
		d.kind = SQLite
		d.engine, err = openSQLite(ctx, path, o)
	case strings.HasPrefix(o.URL, "postgres://"), strings.HasPrefix(o.URL, "postgresql://"):
		d.kind = Postgres
		d.engine, err = openPostgres(ctx, o.URL, o)
	default:
		err = errors.New(`the database must be "sqlite" or a postgres:// URL`)
	}
	if err != nil {
		return nil, err
	}
	for range d.batcherCount() {
		d.batchers = append(d.batchers, startBatcher(d.engine))
	}
	return d, nil
}

// Close commits the queued mutations and closes the database.
func (d *DB) Close() error {
	for _, l := range d.batchers {
		l.stop()
	}
	return d.close()
}

// Engine returns the database's engine.
func (d *DB) Engine() Engine { return d.kind }

// Ping returns an error if the database does not answer.
func (d *DB) Ping(ctx context.Context) error { return d.ping(ctx) }

// Now returns the time of Options.Now.
func (d *DB) Now() time.Time { return d.now() }

// NewID returns a new unique id.
func (d *DB) NewID() ID { return d.ids.next() }

// IsConflict reports whether err says that a unique key is already taken.
func (d *DB) IsConflict(err error) bool { return err != nil && d.isUniqueViolation(err) }

// Each calls f for every row that s returns. While the database can't be reached it
// returns a fault.Unavailable.
func (d *DB) Each(ctx context.Context, s Statement, f func(Row) error) error {
	return asUnavailable(d.each(ctx, s, f))
}

// One scans the first row that s returns, or returns ErrNoRow.
func (d *DB) One(ctx context.Context, s Statement, dst ...any) error {
	return scanOne(func(f func(Row) error) error { return d.Each(ctx, s, f) }, dst)
}

// errStop ends the reading of rows early.
var errStop = errors.New("stop")

func scanOne(each func(func(Row) error) error, dst []any) error {
	found := false
	err := each(func(r Row) error {
		if err := r.Scan(dst...); err != nil {
			return err
		}
		found = true
		return errStop
	})
	switch {
	case err != nil && !errors.Is(err, errStop):
		return err
	case !found:
		return ErrNoRow
	}
	return nil
}

// WithExtra returns a row whose Scan also reads extra, after the columns that its caller reads.
func WithExtra(r Row, extra ...any) Row { return rowWithExtra{r, extra} }

type rowWithExtra struct {
	Row
	extra []any
}

func (r rowWithExtra) Scan(dst ...any) error { return r.Row.Scan(append(dst, r.extra...)...) }

// IfNoRow replaces ErrNoRow by another error, which may be nil.
func IfNoRow(err, other error) error {
	if errors.Is(err, ErrNoRow) {
		return other
	}
	return err
}

// Find returns the row that a statement reads, or the error none if there is no row.
func Find[T any](ctx context.Context, r Reader, s Statement, none error, scan func(Row) (T, error)) (T, error) {
	list, err := All(ctx, r, s, scan)
	if err != nil || len(list) == 0 {
		return *new(T), cmp.Or(err, none)
	}
	return list[0], nil
}

// Exists reports whether a statement returns a row.
func Exists(ctx context.Context, r Reader, s Statement) (found bool, err error) {
	err = r.Each(ctx, s, func(Row) error {
		found = true
		return nil
	})
	return found, err
}

// All calls scan for every row and returns the results.
func All[T any](ctx context.Context, r Reader, s Statement, scan func(Row) (T, error)) ([]T, error) {
	var all []T
	err := r.Each(ctx, s, func(row Row) error {
		t, err := scan(row)
		if err == nil {
			all = append(all, t)
		}
		return err
	})
	return all, err
}
