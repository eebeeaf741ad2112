// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// A server whose disk is full may end while it commits, and one that is away
// can't be asked: callers throw nothing away that may have been committed.
func TestUnknownIsNoOutage(t *testing.T) {
	for _, cause := range []error{
		&pgconn.PgError{Severity: "PANIC", Code: "53100"},
		&pgconn.PgError{Severity: "FATAL", Code: "57P03"},
		&pgconn.ConnectError{},
	} {
		if err := db.Outage(cause); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%T alone: %v", cause, err)
		}
		err := db.Outage(fmt.Errorf("%w: %w", db.ErrUnknown, errors.Join(errors.New("cut"), cause)))
		if kind := fault.KindOf(err); !errors.Is(err, db.ErrUnknown) || kind != fault.Internal {
			t.Errorf("%T while committing is of kind %v", cause, kind)
		}
	}
}
