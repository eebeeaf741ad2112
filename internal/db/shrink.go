// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Shrink gives back the memory of SQLite's page caches, up to 40 MB after much
// work; they fill again with use. PostgreSQL keeps none in this process.
func (d *DB) Shrink(ctx context.Context) error {
	e, ok := d.engine.(*sqliteEngine)
	if !ok {
		return nil
	}
	if err := e.takeTurn(ctx); err != nil {
		return err
	}
	_, err := e.writer.conn.ExecContext(context.WithoutCancel(ctx), shrinkMemory)
	e.passTurn()
	if err != nil {
		err = fmt.Errorf("shrinking the writer's cache: %w", err)
	}
	return errors.Join(err, ShrinkPool(ctx, e.readers))
}

const shrinkMemory = "PRAGMA shrink_memory"

// ShrinkPool does so for all connections of a pool of SQLite connections.
func ShrinkPool(ctx context.Context, pool *sql.DB) (err error) {
	for range pool.Stats().OpenConnections {
		conn, open := pool.Conn(ctx)
		if open != nil {
			return errors.Join(err, fmt.Errorf("shrinking caches: %w", open))
		}
		defer conn.Close() //nolint:errcheck,gocritic // kept until all were had, each once
		_, shrunk := conn.ExecContext(ctx, shrinkMemory)
		err = errors.Join(err, shrunk)
	}
	return err
}
