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
	readers *sql.DB
	stmts   sync.Map // *Query → *sql.Stmt on readers
	pool    *sql.DB  // of the writer, for migrations
	fatal   func(error)

	dirty chan struct{} // something was committed
	end   context.CancelFunc
	ended chan struct{}
}

func openSQLite(ctx context.Context, path string, o Options) (*sqliteEngine, error) {
	dsn := func(extra ...string) string {
		v := url.Values{"_pragma": {
			"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)",
			"foreign_keys(1)", "wal_autocheckpoint(0)", "temp_store(2)",
		}}
		v["_pragma"] = append(v["_pragma"], extra...)
		return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
	}
	w, err := sql.Open("sqlite", dsn("cache_size(-16000)"))
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	w.SetMaxOpenConns(1)
	if err := migrate(ctx, SQLite, w); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	conn, err := w.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), w.Close())
	}
	r, err := sql.Open("sqlite", dsn("query_only(1)", "cache_size(-4000)"))
	if err != nil {
		return nil, errors.Join(err, conn.Close(), w.Close())
	}
	n := max(4, runtime.NumCPU())
	r.SetMaxOpenConns(n)
	r.SetMaxIdleConns(n)
	run, end := context.WithCancel(context.Background())
	e := &sqliteEngine{
		writer:  &sqliteConn{conn: conn, stmts: map[*Query]*sql.Stmt{}},
		turn:    make(chan struct{}, 1),
		readers: r, pool: w, fatal: o.Fatal,
		dirty: make(chan struct{}, 1), end: end, ended: make(chan struct{}),
	}
	e.turn <- struct{}{}
	go e.checkpoints(run, dsn("cache_size(-1000)"), o.Log)
	return e, nil
}

func (e *sqliteEngine) lanes() int { return 1 }

func (e *sqliteEngine) ping(ctx context.Context) error { return e.readers.PingContext(ctx) }

func (e *sqliteEngine) close() error {
	e.end()
	<-e.ended
	<-e.turn
	err := e.writer.close()
	return errors.Join(err, e.pool.Close(), e.readers.Close())
}

func (e *sqliteEngine) conflict(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) &&
		(se.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || se.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
}

func (e *sqliteEngine) each(ctx context.Context, s Statement, f func(Row) error) error {
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
	rows, err := stmt.(*sql.Stmt).QueryContext(ctx, s.args...)
	if err != nil {
		return describe(s.query, err)
	}
	_, err = readRows(rows, f)
	if err != nil && !errors.Is(err, errStop) {
		return describe(s.query, err)
	}
	return err
}

func readRows(rows *sql.Rows, f func(Row) error) (n int64, err error) {
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		n++
		if err := f(rows); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// tx waits for its turn to write, then runs f between BEGIN and COMMIT.
func (e *sqliteEngine) tx(ctx context.Context, f func(session) error) error {
	select {
	case <-e.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { e.turn <- struct{}{} }()
	return e.transaction(f)
}

// transaction runs on the writer, whose turn the caller has.
func (e *sqliteEngine) transaction(f func(session) error) (err error) {
	ctx := context.Background()
	if err := e.writer.control(ctx, begin); err != nil {
		return fmt.Errorf("begin: %w", e.check(err))
	}
	committed := false
	defer func() {
		if !committed {
			// SQLite may have rolled back by itself already (disk full,
			// I/O error); that this fails then is as it should be.
			_ = e.writer.control(ctx, rollback)
		}
	}()
	if err := f(e.writer); err != nil {
		return e.check(err)
	}
	if err := e.writer.control(ctx, commit); err != nil {
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

func (e *sqliteEngine) batch(ctx context.Context, jobs []*pending) {
	<-e.turn
	defer func() { e.turn <- struct{}{} }()
	commitTogether(jobs, func(jobs []*pending) error {
		return e.transaction(func(s session) error {
			for _, p := range jobs {
				p.err = nil
			}
			if err := e.step(ctx, s, jobs, func(j *Job) func(*Batch) { return j.Guard }); err != nil {
				return err
			}
			return e.step(ctx, s, jobs, func(j *Job) func(*Batch) { return j.Apply })
		})
	})
}

func (e *sqliteEngine) step(ctx context.Context, s session, jobs []*pending, of func(*Job) func(*Batch)) error {
	var b Batch
	for _, p := range jobs {
		queue := of(p.job)
		if queue == nil || p.err != nil {
			continue
		}
		b.queued = b.queued[:0]
		queue(&b)
		if err := runQueued(ctx, s, p, b.queued); err != nil {
			return err
		}
	}
	return nil
}

// runQueued runs a step of one job. A job that declines before it changed
// anything has its err set; after a change, the transaction is tainted.
func runQueued(ctx context.Context, s session, p *pending, queued []*Queued) error {
	changed := false
	for _, q := range queued {
		var declined error
		var read func(Row) error
		if q.read != nil {
			read = func(r Row) error {
				if declined == nil {
					declined = q.read(r)
				}
				return nil
			}
		}
		n, err := s.run(ctx, q.Statement, read)
		if err != nil {
			return err
		}
		if !q.query.reads && n > 0 {
			changed = true
		}
		if p.err = firstError(declined, q.outcome(n)); p.err != nil {
			if changed {
				return errTainted
			}
			return nil
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

func (c *sqliteConn) control(ctx context.Context, q *Query) error {
	stmt, err := c.prepare(ctx, q)
	if err == nil {
		_, err = stmt.ExecContext(ctx)
	}
	return err
}

func (c *sqliteConn) prepare(ctx context.Context, q *Query) (*sql.Stmt, error) {
	if stmt, ok := c.stmts[q]; ok {
		return stmt, nil
	}
	stmt, err := c.conn.PrepareContext(ctx, q.sqlite)
	if err != nil {
		return nil, describe(q, err)
	}
	c.stmts[q] = stmt
	return stmt, nil
}

func (c *sqliteConn) run(ctx context.Context, s Statement, f func(Row) error) (int64, error) {
	stmt, err := c.prepare(ctx, s.query)
	if err != nil {
		return 0, err
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

// The WAL is copied back into the database once it has this many pages
// (16 MiB), and is an alarm at 256 MiB.
const (
	walPages      = 16 << 20 / 4096
	walAlarmPages = 256 << 20 / 4096
)

// checkpoints copies the WAL back in the background, so that no commit waits
// for it, and then has the writer finish the few pages that came meanwhile:
// only when all are copied does the next commit begin the WAL anew.
func (e *sqliteEngine) checkpoints(ctx context.Context, dsn string, log *slog.Logger) {
	defer close(e.ended)
	own, err := sql.Open("sqlite", dsn)
	if err != nil {
		log.Error("no checkpoints will be made", "error", err)
		return
	}
	defer own.Close() //nolint:errcheck // nothing is written through it
	own.SetMaxOpenConns(1)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-e.dirty:
		default:
			continue
		}
		pages, err := e.walPages(ctx)
		if err == nil && pages >= walPages {
			err = e.checkpoint(ctx, own)
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("checkpoint failed", "error", e.check(err))
		}
		if pages >= walAlarmPages {
			log.Warn("the write-ahead log grows: something holds a read transaction open", "pages", pages)
		}
	}
}

// walPages asks how much of the WAL has not been copied back yet.
func (e *sqliteEngine) walPages(ctx context.Context) (int, error) {
	busy, wal, copied := 0, 0, 0
	err := e.readers.QueryRowContext(ctx, "PRAGMA wal_checkpoint(NOOP)").Scan(&busy, &wal, &copied)
	return wal, err
}

func (e *sqliteEngine) checkpoint(ctx context.Context, own *sql.DB) error {
	var busy, wal, copied int
	if err := own.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &wal, &copied); err != nil {
		return err
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { e.turn <- struct{}{} }()
	return e.writer.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &wal, &copied)
}
