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

// MaxWait is how long a read or write waits for PostgreSQL while it does not
// answer, unless Options say otherwise.
const MaxWait = 10 * time.Second

// presence is what the engine knows of whether the server answers. While it does
// not, each caller waits for MaxWait, as a failover may be under way. When it has
// been away for longer than that, callers wait for a fifth of it.
type presence struct {
	maxWait time.Duration
	server  *pgx.ConnConfig
	since   atomic.Pointer[time.Time] // when it was first missed; nil while it answers
	asking  singleflight.Group
}

// until is when a caller who asked at a moment gives up, unless the server answers.
func (p *presence) until(asked time.Time) time.Time {
	wait := p.maxWait
	if since := p.since.Load(); since != nil && time.Since(*since) > p.maxWait {
		wait = p.maxWait / 5
	}
	return p.orShortly(asked.Add(wait))
}

// orShortly returns end, or the end of a short try: what waited for its turn gets one.
func (p *presence) orShortly(end time.Time) time.Time {
	if short := time.Now().Add(p.maxWait / 10); short.After(end) {
		return short
	}
	return end
}

// away reports whether the server was missed, and has not answered since.
func (p *presence) away() bool { return p.since.Load() != nil }

func (p *presence) answered() {
	if p.away() {
		p.since.Store(nil)
	}
}

func (p *presence) missed() {
	now := time.Now()
	p.since.CompareAndSwap(nil, &now)
}

// ask asks the server for its life over a new connection, and notes whether it
// answered. All who want to know share one question.
func (p *presence) ask() (life string, err error) {
	answer, err, _ := p.asking.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), p.maxWait/5)
		defer cancel()
		conn, err := pgx.ConnectConfig(ctx, p.server.Copy())
		if err != nil {
			return "", err
		}
		defer conn.Close(ctx) //nolint:errcheck // it was asked
		if err := learnLife(ctx, conn); err != nil {
			return "", err
		}
		return lifeOf(conn), nil
	})
	if err != nil {
		p.missed()
		return "", err
	}
	p.answered()
	return answer.(string), nil
}

// watch returns a context for what is asked of the server over conn. It ends after
// maxTxTime. It ends earlier, from a moment on, if the server does not answer a new
// connection either, or is another than conn's: a statement that takes long is
// left alone.
func (e *postgresEngine) watch(ctx context.Context, conn *pgx.Conn, until time.Time) (context.Context, func()) {
	ctx, gone := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, maxTxTime, errSilent)
	life := lifeOf(conn)
	look := time.AfterFunc(time.Until(until), func() {
		for ctx.Err() == nil {
			now, err := e.presence.ask()
			another := err == nil && life != "" && now != "" && life != now
			switch {
			case err != nil:
				gone(errSilent)
			case another:
				e.pool.Reset()
				e.lanePool.Reset()
				gone(errReplaced)
			}
			wait(ctx, e.presence.maxWait/10)
		}
	})
	return ctx, func() {
		look.Stop()
		cancel()
		gone(nil)
	}
}

// Why what was asked of the server was given up.
var (
	errSilent   = errors.New("PostgreSQL does not answer")
	errReplaced = errors.New("another PostgreSQL server has taken over")
)

// lostWith is a connection that was lost with an error, in a context of watch.
func lostWith(ctx context.Context, err error) *lost {
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return &lost{cause: err}
}

// acquire takes a connection from a pool, and waits for one until a moment.
func (e *postgresEngine) acquire(ctx context.Context, pool *pgxpool.Pool, until time.Time) (*pgxpool.Conn, error) {
	bound, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	conn, err := pool.Acquire(bound)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err() // nobody waits any more: that says nothing of the server
	case unreachable(err):
		e.presence.missed()
	case bound.Err() != nil && ctx.Err() == nil:
		_, _ = e.presence.ask() // all connections may be in use
	}
	return nil, &lost{cause: err}
}

// unreachable reports whether err says that the server can't be reached, or is
// starting or ending.
func unreachable(err error) bool {
	var failed *pgconn.ConnectError
	switch sqlState(err) {
	case "57P01", "57P02", "57P03":
		return true
	}
	return errors.As(err, &failed)
}

// again reports whether what failed the n-th time may be tried once more: the
// database rolled it back for another's sake, or the server is away and its caller
// still waits for it.
func again(err error, n int, until time.Time) bool {
	var cut *lost
	switch sqlState(err) {
	case "40001", "40P01", "55P03", outdated:
		return n < maxTries
	}
	return (errors.As(err, &cut) || unreachable(err)) && time.Now().Before(until)
}
