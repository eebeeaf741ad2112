// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgTx is a transaction on a connection of PostgreSQL.
type pgTx struct {
	ctx      context.Context
	conn     *pgx.Conn
	xid      uint64 // transaction id, for looking up the outcome
	finished bool   // whether COMMIT was answered
}

// begin returns a batch that opens a transaction and reads its id.
func (s *pgTx) begin() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	b.Queue(`SELECT pg_current_xact_id()::text::bigint`).QueryRow(func(r pgx.Row) error { return r.Scan(&s.xid) })
	return b
}

// send runs the queued statements in one round trip.
func (s *pgTx) send(b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	err := s.conn.SendBatch(s.ctx, b).Close()
	if err != nil && s.conn.IsClosed() {
		return newConnLostError(s.ctx, err)
	}
	return err
}

// commit runs the queued statements, then commits, in one round trip.
func (s *pgTx) commit(b *pgx.Batch) error {
	var tag string
	b.Queue("COMMIT").Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	err := s.conn.SendBatch(s.ctx, b).Close()
	switch {
	case tag == "COMMIT":
		s.finished = true
		return nil // even if the connection failed afterwards
	case err != nil && s.conn.IsClosed():
		// Even an error from the server, for example 57P01, does not say
		// whether it came before or after the commit.
		cut := newConnLostError(s.ctx, err)
		cut.committing, cut.xid, cut.incarnation = true, s.xid, incarnationOf(s.conn)
		return cut
	case err != nil:
		return err
	}
	s.finished = true
	return errors.New("PostgreSQL rolled the transaction back")
}

// rollback rolls the transaction back. If that fails it closes the connection, which makes
// PostgreSQL drop the transaction.
func (s *pgTx) rollback() {
	if s.finished || s.conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 5*time.Second)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = s.conn.Close(ctx)
	}
}

// run executes a statement of an ordinary transaction.
func (s *pgTx) run(st Statement, f func(Row) error) (n int64, err error) {
	if f == nil {
		f = func(Row) error { return nil }
	}
	rows, err := s.conn.Query(s.ctx, st.query.postgres, st.args...)
	if err == nil {
		n, err = eachPgRow(rows, f)
	}
	switch {
	case err == nil:
		return n, nil
	case s.conn.IsClosed():
		return 0, newConnLostError(s.ctx, wrapQueryError(st.query, err))
	}
	return n, wrapQueryError(st.query, err)
}

func (e *postgresEngine) tx(ctx context.Context, f func(txSession) error) error {
	return e.txOnPool(ctx, e.pool, f)
}

func (e *postgresEngine) priorityTx(ctx context.Context, f func(txSession) error) error {
	return e.txOnPool(ctx, e.batcherPool, f)
}

func (e *postgresEngine) txOnPool(ctx context.Context, pool *pgxpool.Pool, f func(txSession) error) error {
	return e.retryTx(ctx, pool, time.Now(), func(s *pgTx) error {
		if err := s.send(s.begin()); err != nil {
			return err
		}
		if err := f(s); err != nil {
			return err
		}
		return s.commit(&pgx.Batch{})
	})
}

// connLostError is the error of a connection that could not be acquired or was lost.
type connLostError struct {
	cause       error
	committing  bool // whether COMMIT was sent: transaction xid may be committed or not
	xid         uint64
	incarnation string // server's incarnation, in which xid is valid
}

func (l *connLostError) Error() string { return l.cause.Error() }
func (l *connLostError) Unwrap() error { return l.cause }

// retryTx runs carry on a connection of the pool. It retries when the database rolled the
// transaction back in favor of another and, until the deadline of a caller that began at asked,
// when the connection was lost. After a loss during COMMIT it first looks up the outcome.
func (e *postgresEngine) retryTx(ctx context.Context, pool *pgxpool.Pool, asked time.Time, carry func(*pgTx) error) error {
	until := e.availability.deadline(asked)
	for n := 1; ; n++ {
		err := e.tryTx(ctx, pool, until, carry)
		var cut *connLostError
		switch {
		case err == nil:
			return nil
		case e.closed.Load():
			if errors.As(err, &cut) && cut.committing {
				err = errors.Join(ErrCommitUnknown, err) // no connection is left for the lookup
			}
			return &batchError{errors.Join(ErrClosed, err)}
		case errors.As(err, &cut):
			if cut.committing {
				switch committed, lookup := e.wasCommitted(ctx, cut.xid, cut.incarnation); {
				case lookup != nil:
					return &batchError{fmt.Errorf("%w: %w", ErrCommitUnknown, errors.Join(err, lookup))}
				case committed:
					return nil
				}
			}
			err = &batchError{err}
		}
		if ctx.Err() != nil || !e.shouldRetry(err, n, until) {
			return err
		}
		resetStaleConns(pool, err)
		e.log.Debug("repeating a transaction", "try", n, "error", err)
		sleep(ctx, backoff(n))
	}
}

func (e *postgresEngine) tryTx(ctx context.Context, pool *pgxpool.Pool, until time.Time, carry func(*pgTx) error) error {
	conn, err := e.acquire(ctx, pool, until)
	if err != nil {
		return fmt.Errorf("waiting for a connection: %w", err)
	}
	defer release(conn)
	// A transaction that has begun is completed or rolled back. It is interrupted only if
	// the server does not answer.
	ctx, end := e.watchedContext(context.WithoutCancel(ctx), conn.Conn(), e.availability.callerDeadline(ctx, until))
	defer end()
	s := &pgTx{ctx: ctx, conn: conn.Conn()}
	defer s.rollback() // also when carry panics
	err = carry(s)
	var cut *connLostError
	switch {
	case err != nil && isServerGone(ctx) && !errors.As(err, &cut): // between two round trips
		closeNow(s.conn)
		return newConnLostError(ctx, err)
	case !s.conn.IsClosed() && ctx.Err() == nil:
		e.availability.markUp()
	}
	return err
}

// closeNow closes a connection without a word to the server, which may be gone.
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = conn.Close(ctx)
}

// backoff returns how long to wait after the n-th try: at most half a second.
func backoff(n int) time.Duration {
	n = min(n, 7)
	return time.Duration(n*n) * (5*time.Millisecond + rand.N(5*time.Millisecond))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// wasCommitted looks up the outcome of a transaction. While the old session is still executing
// it, there is no outcome yet. So wasCommitted waits up to a minute, or gives up earlier if the
// server does not answer at all. In another incarnation of the server the transaction exists only
// if it was committed, and its id may by now belong to another one.
func (e *postgresEngine) wasCommitted(ctx context.Context, xid uint64, life string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	until := e.availability.deadline(time.Now())
	for n := 1; ; n++ {
		status, now, err := e.xactStatus(ctx, until, xid)
		another := life != "" && now != "" && now != life
		switch {
		case err == nil && status == "":
			return false, errors.New("PostgreSQL no longer knows what became of the transaction")
		case err == nil && status == "committed" && life == now && life != "":
			return true, nil
		case err == nil && status == "committed":
			return false, errors.New("PostgreSQL may have given the number of the transaction to another, after a crash or a failover")
		case err == nil && (status == "aborted" || another):
			return false, nil
		case another && sqlState(err) == "22023": // an id that has not been assigned yet
			return false, nil
		case ctx.Err() != nil, time.Now().After(until):
			return false, fmt.Errorf("asking what became of the transaction: %w", errors.Join(err, ctx.Err()))
		case err == nil:
			until = e.availability.deadline(time.Now())
		}
		sleep(ctx, backoff(n))
	}
}

// xactStatus returns PostgreSQL's status of a transaction, "" if it no longer knows it, and the
// incarnation of the server that answered.
func (e *postgresEngine) xactStatus(ctx context.Context, until time.Time, xid uint64) (status, life string, err error) {
	conn, err := e.acquire(ctx, e.pool, until)
	if err != nil {
		return "", "", err
	}
	defer release(conn)
	ctx, end := e.watchedContext(ctx, conn.Conn(), e.availability.minDeadline(until))
	defer end()
	err = conn.QueryRow(ctx, `SELECT COALESCE(pg_xact_status($1::text::xid8), '')`, fmt.Sprint(xid)).Scan(&status)
	return status, incarnationOf(conn.Conn()), err
}
