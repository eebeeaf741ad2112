// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"
)

// DefaultMaxWait is how long a read or write waits for PostgreSQL while it does not answer,
// unless Options.MaxWait is set.
const DefaultMaxWait = 10 * time.Second

// availability tracks whether the PostgreSQL server answers. While it does not, each caller
// waits for maxWait, as a failover may be under way. When the server has been down for longer
// than that, callers wait for a fifth of it.
type availability struct {
	maxWait   time.Duration
	config    *pgx.ConnConfig
	downSince atomic.Pointer[time.Time] // when it first failed to answer; nil while it answers
	probes    singleflight.Group
}

// deadline returns when a caller that began at asked gives up, unless the server answers.
func (p *availability) deadline(asked time.Time) time.Time {
	wait := p.maxWait
	if since := p.downSince.Load(); since != nil && time.Since(*since) > p.maxWait {
		wait = p.maxWait / 5
	}
	return p.minDeadline(asked.Add(wait))
}

// minDeadline returns end, but leaves a tenth of maxWait for a caller that waited in a queue.
func (p *availability) minDeadline(end time.Time) time.Time {
	if short := time.Now().Add(p.maxWait / 10); short.After(end) {
		return short
	}
	return end
}

// isDown reports whether the server has stopped answering.
func (p *availability) isDown() bool { return p.downSince.Load() != nil }

func (p *availability) markUp() {
	if p.isDown() {
		p.downSince.Store(nil)
	}
}

func (p *availability) markDown() {
	now := time.Now()
	p.downSince.CompareAndSwap(nil, &now)
}

// probe reads the server's incarnation over a new connection, and records whether the server
// answered. Concurrent callers share one probe.
func (p *availability) probe() (life string, err error) {
	answer, err, _ := p.probes.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), p.maxWait/5)
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
		if err != nil {
			return "", err
		}
		defer conn.Close(ctx) //nolint:errcheck // it was asked
		if err := loadIncarnation(ctx, conn); err != nil {
			return "", err
		}
		return incarnationOf(conn), nil
	})
	if err != nil {
		p.markDown()
		return "", err
	}
	p.markUp()
	return answer.(string), nil
}

// watch returns a context for requests over conn. It ends after maxTxTime. From until on, watch
// probes the server over new connections, and ends the context if the server does not answer or
// has another incarnation than conn's. So a slow statement alone is not interrupted.
func (e *postgresEngine) watch(ctx context.Context, conn *pgx.Conn, until time.Time) (context.Context, func()) {
	ctx, gone := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, maxTxTime, errNotResponding)
	life := incarnationOf(conn)
	look := time.AfterFunc(time.Until(until), func() {
		for ctx.Err() == nil {
			now, err := e.availability.probe()
			another := err == nil && life != "" && now != "" && life != now
			switch {
			case err != nil:
				gone(errNotResponding)
			case another:
				e.pool.Reset()
				e.batcherPool.Reset()
				gone(errFailover)
			}
			sleep(ctx, e.availability.maxWait/10)
		}
	})
	return ctx, func() {
		look.Stop()
		cancel()
		gone(nil)
	}
}

// Causes with which watch ends a context.
var (
	errNotResponding = errors.New("PostgreSQL does not answer")
	errFailover      = errors.New("another PostgreSQL server has taken over")
)

// newConnLostError wraps the error of a lost connection, with the cause of the context of watch.
func newConnLostError(ctx context.Context, err error) *connLostError {
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &connLostError{cause: err}
}

// acquire takes a connection from a pool, and waits for one until the given time.
func (e *postgresEngine) acquire(ctx context.Context, pool *pgxpool.Pool, until time.Time) (*pgxpool.Conn, error) {
	bound, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	conn, err := pool.Acquire(bound)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err() // the caller has gone: that says nothing about the server
	case unreachable(err):
		e.availability.markDown()
	case bound.Err() != nil && ctx.Err() == nil:
		_, _ = e.availability.probe() // all connections may be in use
	}
	return nil, &connLostError{cause: err}
}

// unreachable reports whether err says that the server can't be reached, or is starting or
// shutting down.
func unreachable(err error) bool {
	var failed *pgconn.ConnectError
	switch sqlState(err) {
	case "57P01", "57P02", "57P03":
		return true
	}
	return errors.As(err, &failed)
}

// shouldRetry reports whether to retry after the n-th failure: the database rolled the
// transaction back in favor of another, or the server is down and the caller still waits.
func shouldRetry(err error, n int, until time.Time) bool {
	var cut *connLostError
	switch sqlState(err) {
	case "40001", "40P01", "55P03", codeStalePlan:
		return n < maxTries
	}
	return (errors.As(err, &cut) || unreachable(err)) && time.Now().Before(until)
}
