// SPDX-License-Identifier: Apache-2.0

package db

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mailstead/mailstead/internal/fault"
)

// asUnavailable turns an error after which nothing was written, and which is temporary, into a
// fault.Unavailable: the caller may retry. ErrCommitUnknown stays unchanged, whatever broke the
// connection: the write may be there.
func asUnavailable(err error) error {
	var se *sqlite.Error
	var away *pgconn.ConnectError
	var cut *connLostError
	switch {
	case err == nil, errors.Is(err, ErrCommitUnknown):
		return err
	case errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_FULL, sqlState(err) == "53100":
		return fault.Wrap(err, fault.Unavailable, "storage_full", "The service has no room at the moment. Nothing was stored; try again later.")
	case errors.As(err, &away), errors.As(err, &cut), sqlState(err) == "53300", sqlState(err) == "57P03":
		f := fault.Wrap(err, fault.Unavailable, codeUnavailable, "The service can't reach its database at the moment. Nothing was changed; try again later.")
		f.RetryAfter = outageRetryAfter
		return f
	}
	return err
}

// codeUnavailable is the fault's code while the database can't be reached.
const codeUnavailable = "database_unavailable"

// outageRetryAfter is the fault's RetryAfter: a failover takes seconds.
const outageRetryAfter = 5 * time.Second
