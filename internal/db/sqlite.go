// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteEngine has one connection that writes, and a few that read. WAL lets
// them read while it writes; synchronous=FULL makes a commit wait for fsync.
type sqliteEngine struct {
	writer  *sqliteConn
	turn    chan struct{} // holds one token: the right to write
	first   chan struct{} // takes the token to who is not to wait for a crowd
	readers *sql.DB
	stmts   sync.Map // *Query → *sql.Stmt on readers
	pool    *sql.DB  // of the writer, for migrations
	log     *slog.Logger
	fatal   func(error)
	limits  walLimits

	dirty   chan struct{} // something was committed
	closing context.Context
	end     context.CancelFunc
	ended   chan struct{} // checkpoints are over
}

// busyPatience is how long to wait for another process that has the database
// locked.
const busyPatience = 10 * time.Second

func openSQLite(ctx context.Context, path string, o Options) (*sqliteEngine, error) {
	limits := o.wal
	if limits == (walLimits{}) {
		limits = defaultWAL()
	}
	journal := "WAL"
	if o.Copy {
		journal = "DELETE"
	}
	dsn := func(patience time.Duration, extra ...string) string {
		v := url.Values{"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()), "journal_mode(" + journal + ")", "synchronous(FULL)",
			"foreign_keys(1)", "wal_autocheckpoint(0)", "temp_store(2)",
			fmt.Sprintf("journal_size_limit(%d)", limits.hold*4096),
		}}
		v["_pragma"] = append(v["_pragma"], extra...)
		return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
	}
	if err := Private(path); err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	w, err := sql.Open("sqlite", dsn(busyPatience, "cache_size(-16000)"))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	w.SetMaxOpenConns(1)
	if err := migrate(ctx, SQLite, w, o.Log); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	conn, err := w.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), w.Close())
	}
	r, err := sql.Open("sqlite", dsn(busyPatience, "query_only(1)", "cache_size(-4000)"))
	if err != nil {
		return nil, errors.Join(err, conn.Close(), w.Close())
	}
	n := max(4, runtime.NumCPU())
	r.SetMaxOpenConns(n)
	r.SetMaxIdleConns(n)
	e := &sqliteEngine{
		writer:  &sqliteConn{conn: conn, stmts: map[*Query]*sql.Stmt{}},
		turn:    make(chan struct{}, 1),
		first:   make(chan struct{}),
		readers: r, pool: w, log: o.Log, fatal: o.Fatal, limits: limits,
		dirty: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	e.closing, e.end = context.WithCancel(context.Background())
	e.turn <- struct{}{}
	if o.Copy {
		close(e.ended)
	} else {
		go e.checkpoints(dsn(holdFor, "cache_size(-1000)"))
	}
	return e, nil
}

func (e *sqliteEngine) away() bool { return false }

func (e *sqliteEngine) lanes() int { return 1 }

func (e *sqliteEngine) ping(ctx context.Context) error { return e.readers.PingContext(ctx) }

// close ends with the writer, which copies the WAL back into the database.
func (e *sqliteEngine) close() error {
	e.end()
	<-e.ended
	<-e.turn // and keep it
	return errors.Join(e.readers.Close(), e.writer.close(), e.pool.Close())
}

func (e *sqliteEngine) conflict(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) &&
		(se.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || se.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

func (e *sqliteEngine) each(ctx context.Context, s Statement, f func(Row) error) error {
	if e.closing.Err() != nil {
		return ErrClosed
	}
	stmt, ok := e.stmts.Load(s.query)
	if !ok {
		made, err := e.readers.PrepareContext(ctx, s.query.sqlite)
		if err != nil {
			return describe(s.query, err)
		}
		var raced bool
		if stmt, raced = e.stmts.LoadOrStore(s.query, made); raced {
			made.Close() //nolint:errcheck // never used
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	// A read is short: ctx is looked at between its rows, as watching it would
	// take two goroutines, which cost a third of reading a row by its key.
	rows, err := stmt.(*sql.Stmt).QueryContext(context.Background(), s.args...)
	if err != nil {
		return describe(s.query, err)
	}
	n, err := readRows(rows, func(r Row) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return f(r)
	})
	if took := time.Since(began); took > longRead {
		e.log.Warn("a read held its transaction too long, which makes the write-ahead log grow",
			"query", s.query.name(), "took", took, "rows", n)
	}
	if err != nil && !errors.Is(err, errStop) {
		return describe(s.query, err)
	}
	return err
}

// longRead is how long a read transaction may live.
const longRead = time.Second

func readRows(rows *sql.Rows, f func(Row) error) (n int64, err error) {
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		n++
		if err := f(sqliteRow{rows}); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// sqliteRow gives out the bytes that the driver has made for the row alone, of
// which database/sql would make a copy.
type sqliteRow struct{ *sql.Rows }

// Scan reads the row.
func (r sqliteRow) Scan(dst ...any) error {
	for i := range dst {
		if b, ok := dst[i].(*[]byte); ok {
			dst[i] = (*ownBytes)(b)
		}
	}
	return r.Rows.Scan(dst...)
}

type ownBytes []byte

// Scan takes over what the driver has made.
func (b *ownBytes) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*b = nil
	case []byte:
		*b = src
	case string:
		*b = []byte(src)
	default:
		return fmt.Errorf("%T instead of bytes", src)
	}
	return nil
}

// tx waits for its turn to write, then runs f between BEGIN and COMMIT.
func (e *sqliteEngine) tx(ctx context.Context, f func(session) error) error {
	return e.inTurn(ctx, nil, f)
}

// vital waits for who has the turn now, and for none of those who want it too.
func (e *sqliteEngine) vital(ctx context.Context, f func(session) error) error {
	return e.inTurn(ctx, e.first, f)
}

func (e *sqliteEngine) inTurn(ctx context.Context, first <-chan struct{}, f func(session) error) error {
	if err := e.takeTurn(ctx, first); err != nil {
		return err
	}
	defer e.passTurn()
	return e.transaction(f)
}

func (e *sqliteEngine) takeTurn(ctx context.Context, first <-chan struct{}) error {
	select {
	case <-e.turn:
		return nil
	case <-first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closing.Done():
		return ErrClosed
	}
}

func (e *sqliteEngine) passTurn() {
	select {
	case e.first <- struct{}{}:
	default:
		e.turn <- struct{}{}
	}
}

// transaction runs on the writer, whose turn the caller has. Another process
// may hold the database's own lock: BEGIN waits for it, up to busy_timeout.
func (e *sqliteEngine) transaction(f func(session) error) (err error) {
	if err := e.writer.control(begin); err != nil {
		return &shared{fmt.Errorf("begin: %w", e.check(err))}
	}
	committed := false
	defer func() {
		if !committed { // also when f panics
			// SQLite may have rolled back by itself already (disk full,
			// I/O error); that this fails then is as it should be.
			_ = e.writer.control(rollback)
		}
	}()
	if err := f(e.writer); err != nil {
		return e.check(err)
	}
	if err := e.writer.control(commit); err != nil {
		return fmt.Errorf("commit: %w", e.check(err))
	}
	committed = true
	select {
	case e.dirty <- struct{}{}:
	default:
	}
	return nil
}

// check ends the process when an fsync failed: the kernel may have dropped
// the pages, and a second fsync would report success.
func (e *sqliteEngine) check(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && (se.Code() == sqlite3.SQLITE_IOERR_FSYNC || se.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC) {
		e.fatal(err)
	}
	return err
}

func (e *sqliteEngine) batch(jobs []*pending) {
	<-e.turn // the lanes end before close takes it for good
	defer e.passTurn()
	commitTogether(jobs, func(jobs []*pending) error {
		return e.transaction(func(s session) error {
			for _, p := range jobs {
				p.err, p.changed = nil, false
			}
			if err := step(s, jobs, func(j *Job) func(*Batch) { return j.Guard }); err != nil {
				return err
			}
			return step(s, jobs, func(j *Job) func(*Batch) { return j.Apply })
		})
	})
}

func step(s session, jobs []*pending, of func(*Job) func(*Batch)) error {
	var b Batch
	for _, p := range jobs {
		queue := of(p.job)
		if queue == nil || p.err != nil {
			continue
		}
		b.queued = b.queued[:0]
		p.collect(queue, &b)
		if err := p.taint(); err != nil {
			return err
		}
		if err := runQueued(s, p, b.queued); err != nil {
			return err
		}
	}
	return nil
}

// runQueued runs a step of one job, until it declines.
func runQueued(s session, p *pending, queued []*Queued) error {
	for _, q := range queued {
		read, declined := q.reader()
		n, err := s.run(q.Statement, read)
		if err != nil {
			return err
		}
		if err := p.judge(q, n, *declined); err != nil || p.err != nil {
			return err
		}
	}
	return nil
}

// sqliteConn is the writing connection with its prepared statements.
type sqliteConn struct {
	conn  *sql.Conn
	stmts map[*Query]*sql.Stmt
}

var begin, commit, rollback = SQL("BEGIN IMMEDIATE"), SQL("COMMIT"), SQL("ROLLBACK")

func (c *sqliteConn) control(q *Query) error {
	_, err := c.run(q.With(), nil)
	return err
}

func (c *sqliteConn) prepare(q *Query) (*sql.Stmt, error) {
	if stmt, ok := c.stmts[q]; ok {
		return stmt, nil
	}
	stmt, err := c.conn.PrepareContext(context.Background(), q.sqlite)
	if err != nil {
		return nil, describe(q, err)
	}
	c.stmts[q] = stmt
	return stmt, nil
}

func (c *sqliteConn) run(s Statement, f func(Row) error) (int64, error) {
	stmt, err := c.prepare(s.query)
	if err != nil {
		return 0, err
	}
	// What began is carried through or rolled back, never cut off.
	ctx := context.Background()
	if f == nil && s.query.reads {
		// RowsAffected would tell of the last statement that wrote.
		f = func(Row) error { return nil }
	}
	if f == nil {
		res, err := stmt.ExecContext(ctx, s.args...)
		if err != nil {
			return 0, describe(s.query, err)
		}
		return res.RowsAffected()
	}
	rows, err := stmt.QueryContext(ctx, s.args...)
	if err != nil {
		return 0, describe(s.query, err)
	}
	n, err := readRows(rows, f)
	if err != nil {
		return n, describe(s.query, err)
	}
	return n, nil
}

func (c *sqliteConn) close() error {
	for _, stmt := range c.stmts {
		stmt.Close() //nolint:errcheck // the connection goes too
	}
	return c.conn.Close()
}
