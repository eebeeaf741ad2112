// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sessionSettings are what each connection sets unless the URL does.
var sessionSettings = map[string]string{
	"application_name":   "mailstead",
	"synchronous_commit": "on",
	// What the server sets for others, or for this role, may not suit: statements
	// are made for this isolation, have a bound of their own (maxTxTime) but for
	// migrations, and who listens is idle for long.
	"default_transaction_isolation": "read committed",
	"statement_timeout":             "0",
	"idle_session_timeout":          "0",
	// A transaction that hangs holds locks that others need.
	"idle_in_transaction_session_timeout": "30s",
	"lock_timeout":                        "20s",
	// Every query finds its rows by an index, whatever the arguments: to
	// plan it anew for them costs more than to run it.
	"plan_cache_mode":   "force_generic_plan",
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"jit":               "off",
	// It would order a list by a part of its key, and sort all of that part.
	"enable_incremental_sort": "off",
}

var errPooler = errors.New("a connection pooler stands before PostgreSQL that does not pass the settings of a session on: let the database's URL name the server itself")

// checkSession reports whether a new connection is to a database that can hold every text
// (what is written in Greek does not go into LATIN1), and has the settings that it
// asked for. Behind a pooler that was told to drop them mail would be acknowledged
// before it is flushed, where the server's default says so; most poolers lose
// notifications too.
func checkSession(ctx context.Context, conn *pgx.Conn) error {
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database keeps its text as %s: make another by CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and name that one", encoding)
	}
	rows, err := conn.Query(ctx, `SELECT name, current_setting(name) FROM unnest($1::text[]) AS name`,
		pgx.QueryExecModeSimpleProtocol, slices.Collect(maps.Keys(sessionSettings)))
	if err != nil {
		return err
	}
	asked := conn.Config().RuntimeParams
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		// What the URL sets may be written in other ways.
		if want := sessionSettings[name]; asked[name] == want && value != want {
			return fmt.Errorf("%w (%s is %q, not %q)", errPooler, name, value, want)
		}
		return nil
	})
	return err
}

// checkSessionOrClose is settled, for what does not close a connection that is not.
func checkSessionOrClose(ctx context.Context, conn *pgx.Conn) error {
	err := checkSession(ctx, conn)
	if err != nil {
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

// explainConnectError says what to do about a connection that is refused for its settings.
func explainConnectError(err error) error {
	switch state := sqlState(err); {
	case state == "08P01": // protocol_violation: an unsupported startup parameter
		return fmt.Errorf("%w (%w)", errPooler, err)
	case state == "42704" && strings.Contains(err.Error(), "idle_session_timeout"): // which came with 14
		return fmt.Errorf("the server is too old: PostgreSQL 14 or a newer one is needed (%w)", err)
	}
	return err
}
