// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresEngine works through pgx's own interface, whose batches send many
// statements in one round trip.
type postgresEngine struct {
	pool  *pgxpool.Pool
	log   *slog.Logger
	fatal func(error)
}

// Lanes on PostgreSQL, and connections for everything else.
const (
	postgresLanes = 4
	postgresConns = 16
	// maxTries bounds how often a transaction is repeated on request of
	// the database (deadlock, serialisation, lost connection).
	maxTries = 8
)

func openPostgres(ctx context.Context, url string, o Options) (*postgresEngine, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database's URL is not valid; it looks like postgres://user:password@host:5432/name")
	}
	cfg.MaxConns = max(cfg.MaxConns, postgresLanes+postgresConns)
	// A transaction that hangs holds locks that others need.
	for name, value := range map[string]string{
		"application_name":                    "mailstead",
		"idle_in_transaction_session_timeout": "30s",
		"lock_timeout":                        "20s",
		"synchronous_commit":                  "on",
	} {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	conn := stdlib.OpenDB(*cfg.ConnConfig)
	err = errors.Join(migrate(ctx, Postgres, conn), conn.Close())
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	return &postgresEngine{pool: pool, log: o.Log, fatal: o.Fatal}, nil
}

func (e *postgresEngine) lanes() int { return postgresLanes }

func (e *postgresEngine) ping(ctx context.Context) error { return e.pool.Ping(ctx) }

func (e *postgresEngine) close() error {
	e.pool.Close()
	return nil
}

func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

func (e *postgresEngine) conflict(err error) bool { return sqlState(err) == "23505" }

// again reports whether the transaction may simply be repeated: the database
// rolled it back for another's sake, or is going away.
func again(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03", "57P01", "57P02", "57P03":
		return true
	}
	return false
}

func (e *postgresEngine) each(ctx context.Context, s Statement, f func(Row) error) error {
	rows, err := e.pool.Query(ctx, s.query.postgres, s.args...)
	if err != nil {
		return describe(s.query, err)
	}
	_, err = readPgRows(rows, f)
	if err != nil && !errors.Is(err, errStop) {
		return describe(s.query, err)
	}
	return err
}

// readPgRows returns how many rows were changed or read.
func readPgRows(rows pgx.Rows, f func(Row) error) (int64, error) {
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return 0, err
		}
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), rows.Err()
}

// unsure is an error after COMMIT was sent: the connection was lost and the
// transaction xid may or may not have been committed.
type unsure struct {
	xid   uint64
	cause error
}

func (u *unsure) Error() string {
	return "the connection was lost during the commit: " + u.cause.Error()
}
func (u *unsure) Unwrap() error { return u.cause }

// repeat runs try until it succeeds, fails for good, or was tried too often.
// After an unsure commit it first asks PostgreSQL what became of it, so that
// nothing is done twice and nobody is told a wrong result.
func (e *postgresEngine) repeat(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		var u *unsure
		if errors.As(err, &u) {
			committed, lookup := e.committed(ctx, u.xid)
			if lookup != nil {
				return errors.Join(err, lookup)
			}
			if committed {
				return nil
			}
		} else if !again(err) && !pgconn.SafeToRetry(err) {
			return err
		}
		if n == maxTries || ctx.Err() != nil {
			return err
		}
		e.log.Debug("repeating a transaction", "try", n, "error", err)
		wait(ctx, time.Duration(n*n)*(5*time.Millisecond+rand.N(5*time.Millisecond)))
	}
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// committed asks what became of a transaction. While its old session still
// has it in hand there is no answer yet, so it waits, up to a minute.
func (e *postgresEngine) committed(ctx context.Context, xid uint64) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for {
		var status *string
		err := e.pool.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, fmt.Sprint(xid)).Scan(&status)
		switch {
		case err == nil && status == nil:
			return false, errors.New("PostgreSQL no longer knows what became of the transaction")
		case err == nil && *status == "committed":
			return true, nil
		case err == nil && *status == "aborted":
			return false, nil
		case ctx.Err() != nil:
			return false, fmt.Errorf("asking what became of the transaction: %w", errors.Join(err, ctx.Err()))
		}
		wait(ctx, 50*time.Millisecond)
	}
}

func (e *postgresEngine) tx(ctx context.Context, f func(session) error) error {
	return e.repeat(ctx, func() error {
		conn, err := e.pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("waiting for a connection: %w", err)
		}
		defer conn.Release()
		// What began is carried through or rolled back, never cut off.
		ctx := context.WithoutCancel(ctx)
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		s := &pgSession{tx: tx}
		if err := f(s); err != nil {
			// When this fails the pool drops the connection, and with it
			// PostgreSQL drops the transaction.
			_ = tx.Rollback(ctx)
			return err
		}
		if s.xid == 0 { // it changed nothing
			return tx.Commit(ctx)
		}
		return e.commit(ctx, tx, s.xid)
	})
}

func (e *postgresEngine) commit(ctx context.Context, tx pgx.Tx, xid uint64) error {
	err := tx.Commit(ctx)
	if err == nil || sqlState(err) != "" || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	return &unsure{xid: xid, cause: err}
}

// pgSession is an ordinary transaction.
type pgSession struct {
	tx  pgx.Tx
	xid uint64
}

func (s *pgSession) run(ctx context.Context, st Statement, f func(Row) error) (int64, error) {
	if s.xid == 0 && !st.query.reads {
		if err := s.tx.QueryRow(ctx, currentXid).Scan(&s.xid); err != nil {
			return 0, err
		}
	}
	rows, err := s.tx.Query(ctx, st.query.postgres, st.args...)
	if err != nil {
		return 0, describe(st.query, err)
	}
	if f == nil {
		f = func(Row) error { return nil }
	}
	n, err := readPgRows(rows, f)
	if err != nil {
		return n, describe(st.query, err)
	}
	return n, nil
}

// currentXid also makes the transaction get its number now.
const currentXid = `SELECT pg_current_xact_id()::text::bigint`
