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
	incarnationQuery    = SQL(`SELECT name FROM server_life WHERE id = 1`)
	addIncarnationQuery = SQL(`INSERT INTO server_life (id, name) VALUES (1, $1) ON CONFLICT (id) DO NOTHING`)
)

// loadIncarnation notes in which life of the server a new connection began. A
// connection ends with that life; the numbers of transactions, of which the last
// are forgotten with a crash or a failover and given out again, count within it.
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
	conn.PgConn().CustomData()[incarnationKey] = name // "" of a standby, which can't tell
	return nil
}

// incarnationOf returns the life of the server in which a connection began; "" if that
// is not known.
func incarnationOf(conn *pgx.Conn) string {
	name, _ := conn.PgConn().CustomData()[incarnationKey].(string)
	return name
}
