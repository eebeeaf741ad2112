// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"
)

// DefaultOutageWait is how long a read or write waits for PostgreSQL while it does not answer,
// unless Options.OutageWait is set.
const DefaultOutageWait = 10 * time.Second

// minProbeTime is the shortest time that a probe gets for one server.
const minProbeTime = time.Second

// availability tracks whether the PostgreSQL server answers. While it does not, each caller
// waits for outageWait, as a failover may be under way. When the server has been down for longer
// than that, callers wait for a fifth of it.
type availability struct {
	outageWait time.Duration
	config     *pgx.ConnConfig
	downSince  atomic.Pointer[time.Time] // when it first failed to answer; nil while it answers

	// replaced is called when a new connection shows that another server, or another incarnation
	// of it, answers: connections to the former one may be dead without notice.
	replaced func()
	mu       sync.Mutex
	latest   string // incarnation that answered last
	probes   singleflight.Group
	lastTime time.Time // of the last probe
	lastErr  error
}

// deadline returns when a caller that began at asked gives up, unless the server answers.
func (p *availability) deadline(asked time.Time) time.Time {
	wait := p.outageWait
	if since := p.downSince.Load(); since != nil && time.Since(*since) > p.outageWait {
		wait = p.outageWait / 5
	}
	return p.minDeadline(asked.Add(wait))
}

// minDeadline returns end, but leaves a tenth of outageWait for a caller that waited in a queue.
func (p *availability) minDeadline(end time.Time) time.Time {
	if short := time.Now().Add(p.outageWait / 10); short.After(end) {
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

// probeTimeout is how long a probe may take: the URL may name several servers, which are tried in
// turn.
func (p *availability) probeTimeout() time.Duration {
	return p.timeoutPerServer() * time.Duration(1+len(p.config.Fallbacks))
}

func (p *availability) timeoutPerServer() time.Duration {
	return max(p.outageWait/5, minProbeTime)
}

// probe connects to the server, and records whether it answers. Callers share a probe with all
// who ask within a tenth of outageWait.
func (p *availability) probe() error {
	_, err, _ := p.probes.Do("", func() (any, error) {
		p.mu.Lock()
		recent, err := time.Since(p.lastTime) < p.outageWait/10, p.lastErr
		p.mu.Unlock()
		if recent {
			return nil, err
		}
		if err = p.tryConnect(); err != nil {
			p.markDown()
		} else {
			p.markUp()
		}
		p.mu.Lock()
		p.lastTime, p.lastErr = time.Now(), err
		p.mu.Unlock()
		return nil, err
	})
	return err
}

func (p *availability) tryConnect() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.probeTimeout())
	defer cancel()
	config := p.config.Copy()
	config.ConnectTimeout = p.timeoutPerServer()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = loadIncarnation(ctx, conn)
		p.observe(incarnationOf(conn))
		_ = conn.Close(ctx) // it has answered
	}
	if err != nil && sqlState(err) != "" && !unreachable(err) {
		return nil // it answers, if only that there are too many connections
	}
	return err
}

// observe notes the incarnation of the server to which a new connection was made.
func (p *availability) observe(incarnation string) {
	if incarnation == "" {
		return // of a standby
	}
	p.mu.Lock()
	former := p.latest
	p.latest = incarnation
	p.mu.Unlock()
	if former != "" && former != incarnation {
		p.replaced()
	}
}

// isReplaced reports whether another incarnation than the given one answered last.
func (p *availability) isReplaced(incarnation string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return incarnation != "" && p.latest != "" && incarnation != p.latest
}

// watchedContext returns a context for requests over conn, or for waiting for a connection if conn
// is nil. It ends after maxTxTime. At until it ends if the server does not answer a new connection
// either, or if another server than conn's answers. So a slow statement alone is not interrupted,
// and neither is a caller who waits while all connections are in use.
func (e *postgresEngine) watchedContext(ctx context.Context, conn *pgx.Conn, until time.Time) (context.Context, func()) {
	ctx, gone := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, maxTxTime, errNotResponding)
	incarnation := ""
	if conn != nil {
		incarnation = incarnationOf(conn)
	}
	look := time.AfterFunc(time.Until(until)-min(e.availability.timeoutPerServer(), e.availability.outageWait/2), func() {
		for ctx.Err() == nil {
			switch err := e.availability.probe(); {
			case err != nil && time.Now().Before(until): // it may be back in time
				sleep(ctx, min(time.Until(until), e.availability.outageWait/10))
				continue
			case err != nil:
				gone(errNotResponding)
			case e.availability.isReplaced(incarnation):
				gone(errFailover)
			}
			sleep(ctx, e.availability.outageWait/10)
		}
	})
	return ctx, func() {
		look.Stop()
		cancel()
		gone(nil)
	}
}

// isServerGone reports whether watch has ended a context because of the server.
func isServerGone(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errNotResponding) || errors.Is(cause, errFailover)
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

// callerDeadline returns the earlier of until and the deadline of the caller's context, but at
// least the end of a short try.
func (p *availability) callerDeadline(ctx context.Context, until time.Time) time.Time {
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	return p.minDeadline(until)
}

// acquire takes a connection from a pool. It waits for one, from until on only while the server
// answers. The caller returns it with release.
func (e *postgresEngine) acquire(ctx context.Context, pool *pgxpool.Pool, until time.Time) (*pgxpool.Conn, error) {
	bound, end := e.watchedContext(ctx, nil, e.availability.callerDeadline(ctx, until))
	defer end()
	conn, err := pool.Acquire(bound)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err() // the caller has gone: that says nothing about the server
	case unreachable(err):
		e.availability.markDown()
	}
	return nil, newConnLostError(bound, err)
}

// release returns a connection to its pool. A closed one leaves the pool at once: the pool would
// wait for its end, and for the cancel request that pgx sends to a server that may be gone.
func release(conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() {
		conn.Hijack()
		return
	}
	conn.Release()
}

// unreachable reports whether err says that the server can't be reached, or is starting or
// shutting down.
func unreachable(err error) bool {
	switch sqlState(err) {
	case "57P01", "57P02", "57P03":
		return true
	case "":
		var failed *pgconn.ConnectError
		return errors.As(err, &failed)
	}
	return false // it answers, such as that the password is wrong
}

// shouldRetry reports whether to retry after the n-th failure: the database rolled the
// transaction back in favor of another, or the connection was lost and the caller still waits.
// After until there is one more try if the server answers: a process that was suspended finds
// that its connections were closed meanwhile.
func (e *postgresEngine) shouldRetry(err error, n int, until time.Time) bool {
	var cut *connLostError
	switch sqlState(err) {
	case "40001", "40P01", "55P03", codeStalePlan:
		return n < maxTries
	}
	if !errors.As(err, &cut) && !unreachable(err) {
		return false
	}
	return time.Now().Before(until) || n == 1 && e.availability.probe() == nil
}
