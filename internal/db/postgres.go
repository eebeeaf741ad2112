// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresEngine uses pgx's own interface, whose batches send many statements in one round
// trip.
type postgresEngine struct {
	pool *pgxpool.Pool
	// batcherPool is reserved for the batchers and PriorityTx, so that they
	// don't wait behind ordinary transactions.
	batcherPool *pgxpool.Pool
	log         *slog.Logger
	// idleTimeout is how long the listening connection may be quiet before a ping.
	idleTimeout  time.Duration
	availability availability
	closed       atomic.Bool
}

// Limits of the PostgreSQL engine.
const (
	postgresBatchers = 4
	postgresPoolSize = 16
	// reservedConns is the number of connections outside the pool: those of batcherPool, the
	// listening one, one that applies migrations, and one that finds out whether the server answers.
	reservedConns = postgresBatchers + 4
	// MinConns is the minimum of Options.MaxConns.
	MinConns = reservedConns + 4
	// maxTries is how often a transaction is tried when the database asks to
	// repeat it (deadlock, serialization). The waits between add up to a second.
	maxTries = 8
	// maxTxTime bounds one transaction, from BEGIN to the answer to COMMIT, one
	// read, and one notification of other nodes: a server that stops answering
	// must not block a batcher or a leader job forever.
	maxTxTime = time.Minute
	// minPrepareTimeout is the minimum time for preparing an existing connection
	// for use, as the idle timeout may be too short for that.
	minPrepareTimeout = 2 * time.Second
)

var errURL = errors.New("the database's URL is not valid; it looks like postgres://user:password@host:5432/name")

// parsePostgres parses a URL, and adds sessionSettings. Errors don't repeat the URL, as it may
// hold a password.
func parsePostgres(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	if cfg.ConnConfig.RuntimeParams["synchronous_commit"] == "off" {
		return nil, errors.New("the database's URL sets synchronous_commit=off: mail that was accepted could be lost")
	}
	for name, value := range sessionSettings {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	return cfg, nil
}

func openPostgres(ctx context.Context, url string, o Options) (*postgresEngine, error) {
	cfg, err := parsePostgres(url)
	if err != nil {
		return nil, err
	}
	e := &postgresEngine{log: o.Log, idleTimeout: o.IdleTimeout}
	e.availability.outageWait, e.availability.replaced = o.OutageWait, e.resetPools
	// The caller's ctx may have no deadline: a batcher's has none.
	ready := max(o.IdleTimeout, minPrepareTimeout)
	cfg.PrepareConn = func(ctx context.Context, c *pgx.Conn) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, ready)
		defer cancel()
		return replan(ctx, c, time.Now()) == nil, nil // a connection that fails is replaced
	}
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, ready)
		defer cancel()
		if err := checkSession(ctx, c); err != nil {
			return err
		}
		err := loadIncarnation(ctx, c)
		e.availability.observe(incarnationOf(c))
		return err
	}
	if cfg.PingTimeout <= 0 {
		cfg.PingTimeout = min(ready, e.availability.timeoutPerServer())
	}
	if cfg.ConnConfig.ConnectTimeout <= 0 {
		cfg.ConnConfig.ConnectTimeout = max(o.OutageWait/3, minProbeTime) // for each server that the URL names
	}
	conn := stdlib.OpenDB(*cfg.ConnConfig, stdlib.OptionAfterConnect(checkSessionOrClose))
	err = errors.Join(migrate(ctx, Postgres, conn, o.Log), conn.Close())
	if err != nil {
		return nil, explainConnectError(err)
	}
	batchers := cfg.Copy()
	if cfg.MaxConns = max(cfg.MaxConns, postgresPoolSize); o.MaxConns > 0 {
		cfg.MaxConns = int32(max(o.MaxConns, MinConns) - reservedConns)
	}
	batchers.MaxConns, batchers.MinConns, batchers.MinIdleConns = postgresBatchers+1, 0, 0
	e.availability.config = cfg.ConnConfig.Copy()
	if e.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	if e.batcherPool, err = pgxpool.NewWithConfig(ctx, batchers); err != nil {
		e.pool.Close()
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	return e, nil
}

// resetPools closes the idle connections, and the others when they are released.
func (e *postgresEngine) resetPools() {
	for _, pool := range []*pgxpool.Pool{e.pool, e.batcherPool} {
		if pool != nil { // while the engine is opened
			pool.Reset()
		}
	}
}

func (e *postgresEngine) batcherCount() int { return postgresBatchers }

func (e *postgresEngine) isDown() bool { return e.availability.isDown() }

func (e *postgresEngine) ping(ctx context.Context) error { return e.pool.Ping(ctx) }

func (e *postgresEngine) close() error {
	e.closed.Store(true)
	e.batcherPool.Close()
	e.pool.Close()
	return nil
}

func sqlState(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code
	}
	return ""
}

func (e *postgresEngine) isUniqueViolation(err error) bool { return sqlState(err) == "23505" }

// codeStalePlan is the SQLSTATE for a statement that was prepared before another node's migration
// changed the type of a column ("cached plan must not change result type").
const codeStalePlan = "0A000"

// resetStaleConns replaces all connections of a pool if their prepared statements may be outdated.
func resetStaleConns(pool *pgxpool.Pool, err error) {
	if sqlState(err) == codeStalePlan {
		pool.Reset()
	}
}

// each retries a read whose connection turns out to be dead, as all are after a restart of the
// server, unless f has already seen a row.
func (e *postgresEngine) each(ctx context.Context, s Statement, f func(Row) error) error {
	until := e.availability.deadline(time.Now())
	for n := 1; ; n++ {
		seen := false
		err := e.read(ctx, until, s, func(r Row) error {
			seen = true
			return f(r)
		})
		if err == nil || errors.Is(err, errStop) {
			return err
		}
		if e.closed.Load() {
			return ErrClosed
		}
		if seen || ctx.Err() != nil || !e.shouldRetry(err, n, until) {
			return wrapQueryError(s.query, err)
		}
		resetStaleConns(e.pool, err)
		sleep(ctx, backoff(n))
	}
}

func (e *postgresEngine) read(ctx context.Context, until time.Time, s Statement, f func(Row) error) error {
	conn, err := e.acquire(ctx, e.pool, until)
	if err != nil {
		return err
	}
	defer release(conn)
	bound, end := e.watchedContext(ctx, conn.Conn(), e.availability.callerDeadline(ctx, until))
	defer end()
	rows, err := conn.Query(bound, s.query.postgres, s.args...)
	if err == nil {
		_, err = eachPgRow(rows, f)
	}
	switch {
	case err != nil && (isServerGone(bound) || conn.Conn().IsClosed() && ctx.Err() == nil):
		closeNow(conn.Conn())
		return newConnLostError(bound, err)
	case bound.Err() == nil:
		e.availability.markUp()
	}
	return err
}

// eachPgRow calls f for every row, and returns how many rows were changed or read.
func eachPgRow(rows pgx.Rows, f func(Row) error) (int64, error) {
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return 0, err
		}
	}
	rows.Close()
	return rows.CommandTag().RowsAffected(), rows.Err()
}
