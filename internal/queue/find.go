// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// MaxDeliveriesOf is how many messages DeliveriesOf takes.
const MaxDeliveriesOf = 20

var (
	recordsOf = db.SQL(`SELECT n, recipient, kind, state, due_at, expires_at, COALESCE(tenure, 0), attempts,
			code, enhanced, reply, remote, updated_at, message
		FROM delivery WHERE message IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ORDER BY message, n`)
	inStateOlder = db.SQL(`SELECT DISTINCT message FROM delivery WHERE account = $1 AND state = $5 AND message > $2 AND message < $3
			AND state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
		ORDER BY message DESC LIMIT $4`)
	inStateNewer = db.SQL(`SELECT DISTINCT message FROM delivery WHERE account = $1 AND state = $5 AND message > $2 AND message < $3
			AND state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
		ORDER BY message LIMIT $4`)
)

// DeliveriesOf is Deliveries for at most MaxDeliveriesOf messages at once.
func (q *Queue) DeliveriesOf(ctx context.Context, messages []db.ID) (map[db.ID][]Record, error) {
	args := make([]any, MaxDeliveriesOf)
	for i := range args {
		args[i] = 0
		if i < len(messages) {
			args[i] = messages[i]
		}
	}
	rows, err := db.All(ctx, q.o.DB, recordsOf.With(args...), scanRecord)
	if err != nil {
		return nil, err
	}
	return q.inHand(rows), nil
}

// Listed reports whether InState finds deliveries in a state: the unusual ones.
func (s State) Listed() bool {
	switch s {
	case Scheduled, Deferred, Bounced, Complained, Suppressed, Failed, Cancelled:
		return true
	}
	return false
}

// InState returns at most limit messages of an account that have a delivery in
// one of the states that are Listed, of those between two ids: the newest first,
// or with up the oldest first.
func (q *Queue) InState(ctx context.Context, account db.ID, state State, lo, hi db.ID, up bool, limit int) ([]db.ID, error) {
	query := inStateOlder
	if up {
		query = inStateNewer
	}
	return db.All(ctx, q.o.DB, query.With(account, lo, hi, limit, string(state)), func(r db.Row) (id db.ID, err error) {
		return id, r.Scan(&id)
	})
}
