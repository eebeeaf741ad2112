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

// sessionSettings are the settings of each connection, unless the URL sets them.
var sessionSettings = map[string]string{
	"application_name":   "mailstead",
	"synchronous_commit": "on",
	// The defaults of the server or the role may not suit: statements are written for
	// this isolation, they have their own time limit (maxTxTime) except in migrations,
	// and the listening connection is idle for long.
	"default_transaction_isolation": "read committed",
	"statement_timeout":             "0",
	"idle_session_timeout":          "0",
	// A transaction that hangs holds locks that others need.
	"idle_in_transaction_session_timeout": "30s",
	"lock_timeout":                        "20s",
	// Every query finds its rows by an index, for any arguments: planning
	// it for them costs more than running it.
	"plan_cache_mode":   "force_generic_plan",
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"jit":               "off",
	// An incremental sort would order a list by a prefix of its key, and sort all rows of
	// that prefix.
	"enable_incremental_sort": "off",
}

var errPooler = errors.New("a connection pooler stands before PostgreSQL that does not pass the settings of a session on: let the database's URL name the server itself")

// checkSession returns an error unless a new connection has the requested settings and its
// database is encoded as UTF-8 (LATIN1 can't store Greek, for example). A pooler may drop
// the settings. Then mail could be acknowledged before it is flushed, if that is the server's
// default; most poolers lose notifications too.
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
		// The server may format the URL's own settings differently, so they are not compared.
		if want := sessionSettings[name]; asked[name] == want && value != want {
			return fmt.Errorf("%w (%s is %q, not %q)", errPooler, name, value, want)
		}
		return nil
	})
	return err
}

// checkSessionOrClose is checkSession for callers that don't close a connection after an error.
func checkSessionOrClose(ctx context.Context, conn *pgx.Conn) error {
	err := checkSession(ctx, conn)
	if err != nil {
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	return nil
}

// explainConnectError adds what to do if the server rejected a connection for its settings.
func explainConnectError(err error) error {
	switch state := sqlState(err); {
	case state == "08P01": // protocol_violation: an unsupported startup parameter
		return fmt.Errorf("%w (%w)", errPooler, err)
	case state == "42704" && strings.Contains(err.Error(), "idle_session_timeout"): // which came with 14
		return fmt.Errorf("the server is too old: PostgreSQL 14 or a newer one is needed (%w)", err)
	}
	return err
}
