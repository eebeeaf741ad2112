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

// sqliteEngine has one writing connection and a few reading ones. WAL lets them read while it
// writes; synchronous=FULL makes a commit wait for fsync.
type sqliteEngine struct {
	writer        *sqliteWriter
	writeToken    chan struct{} // holds one token: the right to write
	priorityToken chan struct{} // passes the token to a priorityTx first
	readers       *sql.DB
	stmts         sync.Map // *Query → *sql.Stmt on readers
	writerPool    *sql.DB  // writer's pool, for migrations
	log           *slog.Logger
	fatal         func(error)
	walLimits     walLimits

	dirty           chan struct{} // signals that something was committed
	closing         context.Context
	stopCheckpoints context.CancelFunc
	checkpointsDone chan struct{} // closed when checkpoints have ended
}

// busyTimeout is how long to wait for another process that has the database
// locked.
const busyTimeout = 10 * time.Second

func openSQLite(ctx context.Context, path string, o Options) (*sqliteEngine, error) {
	limits := o.wal
	if limits == (walLimits{}) {
		limits = defaultWALLimits()
	}
	journal := "WAL"
	if o.Exclusive {
		journal = "DELETE"
	}
	dsn := func(patience time.Duration, extra ...string) string {
		v := url.Values{"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()), "journal_mode(" + journal + ")", "synchronous(FULL)",
			"foreign_keys(1)", "wal_autocheckpoint(0)", "temp_store(2)",
			fmt.Sprintf("journal_size_limit(%d)", limits.restart*4096),
		}}
		v["_pragma"] = append(v["_pragma"], extra...)
		return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + v.Encode()
	}
	if err := RestrictPermissions(path); err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	w, err := sql.Open("sqlite", dsn(busyTimeout, "cache_size(-16000)"))
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
	r, err := sql.Open("sqlite", dsn(busyTimeout, "query_only(1)", "cache_size(-4000)"))
	if err != nil {
		return nil, errors.Join(err, conn.Close(), w.Close())
	}
	n := max(4, runtime.NumCPU())
	r.SetMaxOpenConns(n)
	r.SetMaxIdleConns(n)
	e := &sqliteEngine{
		writer:        &sqliteWriter{conn: conn, stmts: map[*Query]*sql.Stmt{}},
		writeToken:    make(chan struct{}, 1),
		priorityToken: make(chan struct{}),
		readers:       r, writerPool: w, log: o.Log, fatal: o.Fatal, walLimits: limits,
		dirty: make(chan struct{}, 1), checkpointsDone: make(chan struct{}),
	}
	e.closing, e.stopCheckpoints = context.WithCancel(context.Background())
	e.writeToken <- struct{}{}
	if o.Exclusive {
		close(e.checkpointsDone)
	} else {
		go e.runCheckpoints(dsn(restartTimeout, "cache_size(-1000)"))
	}
	return e, nil
}

func (e *sqliteEngine) isDown() bool { return false }

func (e *sqliteEngine) batcherCount() int { return 1 }

func (e *sqliteEngine) ping(ctx context.Context) error { return e.readers.PingContext(ctx) }

// close closes the writer last, as that copies the WAL back into the database.
func (e *sqliteEngine) close() error {
	e.stopCheckpoints()
	<-e.checkpointsDone
	<-e.writeToken // and keep it
	return errors.Join(e.readers.Close(), e.writer.close(), e.writerPool.Close())
}

func (e *sqliteEngine) isUniqueViolation(err error) bool {
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
			return wrapQueryError(s.query, err)
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
	// A read is short, so ctx is only checked between rows: watching it would take two
	// goroutines, which cost a third of reading a row by its key.
	rows, err := stmt.(*sql.Stmt).QueryContext(context.Background(), s.args...)
	if err != nil {
		return wrapQueryError(s.query, err)
	}
	n, err := readRows(rows, func(r Row) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return f(r)
	})
	if took := time.Since(began); took > slowReadThreshold {
		e.log.Warn("a read held its transaction too long, which makes the write-ahead log grow",
			"query", s.query.name(), "took", took, "rows", n)
	}
	if err != nil && !errors.Is(err, errStop) {
		return wrapQueryError(s.query, err)
	}
	return err
}

// slowReadThreshold is how long a read transaction may last without a warning.
const slowReadThreshold = time.Second

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

// sqliteRow passes on the bytes that the driver allocated for the row, which database/sql would
// copy.
type sqliteRow struct{ *sql.Rows }

// Scan reads the row.
func (r sqliteRow) Scan(dst ...any) error {
	for i := range dst {
		if b, ok := dst[i].(*[]byte); ok {
			dst[i] = (*rawBytes)(b)
		}
	}
	return r.Rows.Scan(dst...)
}

type rawBytes []byte

// Scan keeps the driver's bytes without a copy.
func (b *rawBytes) Scan(src any) error {
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
func (e *sqliteEngine) tx(ctx context.Context, f func(txSession) error) error {
	return e.withWriter(ctx, nil, f)
}

// priorityTx only waits for the current writer, not for those that are queued.
func (e *sqliteEngine) priorityTx(ctx context.Context, f func(txSession) error) error {
	return e.withWriter(ctx, e.priorityToken, f)
}

func (e *sqliteEngine) withWriter(ctx context.Context, first <-chan struct{}, f func(txSession) error) error {
	if err := e.lockWriter(ctx, first); err != nil {
		return err
	}
	defer e.unlockWriter()
	return e.transaction(f)
}

func (e *sqliteEngine) lockWriter(ctx context.Context, first <-chan struct{}) error {
	select {
	case <-e.writeToken:
		return nil
	case <-first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closing.Done():
		return ErrClosed
	}
}

func (e *sqliteEngine) unlockWriter() {
	select {
	case e.priorityToken <- struct{}{}:
	default:
		e.writeToken <- struct{}{}
	}
}

// transaction runs f on the writer, whose token the caller holds. Another process may hold the
// database's own lock: BEGIN waits for it, up to busy_timeout.
func (e *sqliteEngine) transaction(f func(txSession) error) (err error) {
	if err := e.writer.exec(beginQuery); err != nil {
		return &batchError{fmt.Errorf("begin: %w", e.exitIfFsyncFailed(err))}
	}
	committed := false
	defer func() {
		if !committed { // also when f panics
			// SQLite may already have rolled back by itself (disk full,
			// I/O error). Then this fails, which is harmless.
			_ = e.writer.exec(rollbackQuery)
		}
	}()
	if err := f(e.writer); err != nil {
		return e.exitIfFsyncFailed(err)
	}
	if err := e.writer.exec(commitQuery); err != nil {
		return fmt.Errorf("commit: %w", e.exitIfFsyncFailed(err))
	}
	committed = true
	select {
	case e.dirty <- struct{}{}:
	default:
	}
	return nil
}

// exitIfFsyncFailed ends the process when an fsync failed: the kernel may have dropped
// the pages, and a second fsync would report success.
func (e *sqliteEngine) exitIfFsyncFailed(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && (se.Code() == sqlite3.SQLITE_IOERR_FSYNC || se.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC) {
		e.fatal(err)
	}
	return err
}

func (e *sqliteEngine) commitBatch(jobs []*pendingWrite) {
	<-e.writeToken // batchers stop before close takes it for good
	defer e.unlockWriter()
	commitWithBisection(jobs, func(jobs []*pendingWrite) error {
		return e.transaction(func(s txSession) error {
			for _, p := range jobs {
				p.err, p.changed = nil, false
			}
			if err := runStep(s, jobs, func(j *Mutation) func(*Batch) { return j.Guard }); err != nil {
				return err
			}
			return runStep(s, jobs, func(j *Mutation) func(*Batch) { return j.Apply })
		})
	})
}

func runStep(s txSession, jobs []*pendingWrite, of func(*Mutation) func(*Batch)) error {
	var b Batch
	for _, p := range jobs {
		queue := of(p.mutation)
		if queue == nil || p.err != nil {
			continue
		}
		b.statements = b.statements[:0]
		p.collect(queue, &b)
		if err := p.checkTaint(); err != nil {
			return err
		}
		if err := runStatements(s, p, b.statements); err != nil {
			return err
		}
	}
	return nil
}

// runStatements runs one step of a mutation, until it declines.
func runStatements(s txSession, p *pendingWrite, queued []*QueuedStatement) error {
	for _, q := range queued {
		read, declined := q.reader()
		n, err := s.run(q.Statement, read)
		if err != nil {
			return err
		}
		if err := p.recordResult(q, n, *declined); err != nil || p.err != nil {
			return err
		}
	}
	return nil
}

// sqliteWriter is the writing connection with its prepared statements.
type sqliteWriter struct {
	conn  *sql.Conn
	stmts map[*Query]*sql.Stmt
}

var beginQuery, commitQuery, rollbackQuery = SQL("BEGIN IMMEDIATE"), SQL("COMMIT"), SQL("ROLLBACK")

func (c *sqliteWriter) exec(q *Query) error {
	_, err := c.run(q.With(), nil)
	return err
}

func (c *sqliteWriter) prepare(q *Query) (*sql.Stmt, error) {
	if stmt, ok := c.stmts[q]; ok {
		return stmt, nil
	}
	stmt, err := c.conn.PrepareContext(context.Background(), q.sqlite)
	if err != nil {
		return nil, wrapQueryError(q, err)
	}
	c.stmts[q] = stmt
	return stmt, nil
}

func (c *sqliteWriter) run(s Statement, f func(Row) error) (int64, error) {
	stmt, err := c.prepare(s.query)
	if err != nil {
		return 0, err
	}
	// A transaction that has begun is completed or rolled back, never interrupted.
	ctx := context.Background()
	if f == nil && s.query.readOnly {
		// RowsAffected would return the count of the last statement that wrote.
		f = func(Row) error { return nil }
	}
	if f == nil {
		res, err := stmt.ExecContext(ctx, s.args...)
		if err != nil {
			return 0, wrapQueryError(s.query, err)
		}
		return res.RowsAffected()
	}
	rows, err := stmt.QueryContext(ctx, s.args...)
	if err != nil {
		return 0, wrapQueryError(s.query, err)
	}
	n, err := readRows(rows, f)
	if err != nil {
		return n, wrapQueryError(s.query, err)
	}
	return n, nil
}

func (c *sqliteWriter) close() error {
	for _, stmt := range c.stmts {
		stmt.Close() //nolint:errcheck // the connection goes too
	}
	return c.conn.Close()
}
