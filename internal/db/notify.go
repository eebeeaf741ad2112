// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// notifyChannel is the channel on which nodes notify each other of changes.
const notifyChannel = "mailstead"

// Notify sends payloads, each at most 8,000 bytes long, to the other nodes. With SQLite there
// are none, and it does nothing.
func (d *DB) Notify(ctx context.Context, payloads ...string) error {
	e, ok := d.engine.(*postgresEngine)
	if !ok {
		return nil
	}
	return e.retryTx(ctx, e.pool, time.Now(), func(s *pgTx) error {
		b := s.begin()
		for _, p := range payloads {
			b.Queue(`SELECT pg_notify($1, $2)`, notifyChannel, p)
		}
		if err := s.send(b); err != nil {
			return err
		}
		return s.commit(&pgx.Batch{})
	})
}

// Listen calls heard with the payloads of other nodes (and this one), until ctx ends. It calls
// missed after each new connection, as payloads may have been lost before.
func (d *DB) Listen(ctx context.Context, heard func(payload string), missed func()) error {
	e, ok := d.engine.(*postgresEngine)
	if !ok {
		<-ctx.Done()
		return nil
	}
	for {
		err := e.listen(ctx, heard, missed)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		e.log.Warn("the connection that listens to other nodes was lost", "error", err)
		sleep(ctx, time.Second)
	}
}

func (e *postgresEngine) listen(ctx context.Context, heard func(string), missed func()) error {
	start, cancel := context.WithTimeout(ctx, e.idleTimeout)
	defer cancel()
	conn, err := e.pool.Acquire(start)
	if err != nil {
		return err
	}
	// The pool must not hand a listening connection to others.
	own := conn.Hijack()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.idleTimeout)
		defer cancel()
		_ = own.Close(ctx) // nothing to lose
	}()
	if _, err := own.Exec(start, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	missed()
	for {
		if err := e.awaitNotification(ctx, own, heard); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// awaitNotification waits for the next notification. After idleTimeout without one it pings the
// server: a network that drops packets breaks no connection, and this node would go on
// accepting logins that have been revoked.
func (e *postgresEngine) awaitNotification(ctx context.Context, own *pgx.Conn, heard func(string)) error {
	quiet, cancel := context.WithTimeout(ctx, e.idleTimeout)
	defer cancel()
	n, err := own.WaitForNotification(quiet)
	switch {
	case err == nil:
		heard(n.Payload)
		return nil
	case quiet.Err() == nil || ctx.Err() != nil || own.IsClosed():
		return err
	}
	answer, cancel := context.WithTimeout(ctx, e.idleTimeout)
	defer cancel()
	return own.Ping(answer)
}
