// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/jackc/pgx/v5"
)

const incarnationKey = "server life"

var (
	incarnationQuery    = SQL(`SELECT name FROM server_incarnation WHERE id = 1`)
	addIncarnationQuery = SQL(`INSERT INTO server_incarnation (id, name) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`)
)

// loadIncarnation stores the server's incarnation with a new connection. A connection ends with
// the incarnation. Transaction ids are only unique within one: after a crash or a failover the
// server forgets the last ids and assigns them again.
func loadIncarnation(ctx context.Context, conn *pgx.Conn) error {
	var name string
	read := func() error { return conn.QueryRow(ctx, incarnationQuery.postgres).Scan(&name) }
	err := read()
	if errors.Is(err, pgx.ErrNoRows) {
		if _, err = conn.Exec(ctx, addIncarnationQuery.postgres, rand.Text()); err == nil {
			err = read()
		}
	}
	if err != nil && conn.IsClosed() {
		return err
	}
	conn.PgConn().CustomData()[incarnationKey] = name // "" on a standby, which can't add it
	return nil
}

// incarnationOf returns the server's incarnation at the start of a connection; "" if unknown.
func incarnationOf(conn *pgx.Conn) string {
	name, _ := conn.PgConn().CustomData()[incarnationKey].(string)
	return name
}
