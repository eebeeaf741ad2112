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

// asUnavailable turns an error by which a read or write was refused as a whole, for a time,
// into a fault.Unavailable: whoever asked may ask again. ErrCommitUnknown stays what
// it is, whatever cut the connection: what was written may be there.
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

// codeUnavailable is the code of the fault while the database can't be reached.
const codeUnavailable = "database_unavailable"

// outageRetryAfter is when callers are to ask again then: a failover takes seconds.
const outageRetryAfter = 5 * time.Second
