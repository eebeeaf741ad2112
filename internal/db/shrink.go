// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ShrinkMemory releases the memory of SQLite's page caches, up to 40 MB after much work; they
// fill again with use. With PostgreSQL there are none in this process.
func (d *DB) ShrinkMemory(ctx context.Context) error {
	e, ok := d.engine.(*sqliteEngine)
	if !ok {
		return nil
	}
	if err := e.lockWriter(ctx, nil); err != nil {
		return err
	}
	_, err := e.writer.conn.ExecContext(context.WithoutCancel(ctx), shrinkMemoryPragma)
	e.unlockWriter()
	if err != nil {
		err = fmt.Errorf("shrinking the writer's cache: %w", err)
	}
	return errors.Join(err, ShrinkPoolMemory(ctx, e.readers))
}

const (
	shrinkMemoryPragma = "PRAGMA shrink_memory"
	// shrinkTimeout bounds the wait for busy connections, during which the
	// free ones are not available to others.
	shrinkTimeout = time.Second
)

// ShrinkPoolMemory releases the page caches of all connections of a SQLite pool that are free, or
// become free within shrinkTimeout.
func ShrinkPoolMemory(ctx context.Context, pool *sql.DB) (err error) {
	soon, cancel := context.WithTimeout(ctx, shrinkTimeout)
	defer cancel()
	for range pool.Stats().OpenConnections {
		conn, busy := pool.Conn(soon)
		if ctx.Err() == nil && errors.Is(busy, context.DeadlineExceeded) {
			return err
		}
		if busy != nil {
			return errors.Join(err, fmt.Errorf("shrinking caches: %w", busy))
		}
		defer conn.Close() //nolint:errcheck,gocritic // kept until all were had, each once
		_, shrunk := conn.ExecContext(ctx, shrinkMemoryPragma)
		err = errors.Join(err, shrunk)
	}
	return err
}
