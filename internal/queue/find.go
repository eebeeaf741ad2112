// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// MaxDeliveriesOf is the maximum of messages per call of DeliveriesOf.
const MaxDeliveriesOf = 20

var (
	deliveriesOfQuery = db.SQL(`SELECT n, recipient, kind, state, due_at, expires_at, COALESCE(lease, 0), hold > 0, attempts,
			code, enhanced, reply, remote_host, updated_at, message
		FROM delivery WHERE message IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
		ORDER BY message, n`)
	inStateOlderQuery = db.SQL(`SELECT DISTINCT message FROM delivery WHERE account = $1 AND state = $5 AND message > $2 AND message < $3
			AND state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
		ORDER BY message DESC LIMIT $4`)
	inStateNewerQuery = db.SQL(`SELECT DISTINCT message FROM delivery WHERE account = $1 AND state = $5 AND message > $2 AND message < $3
			AND state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled')
		ORDER BY message LIMIT $4`)
	// openMessagesQuery counts all open deliveries, and lists the messages of one account that are
	// being sent or, unless $2, queued.
	openMessagesQuery = db.SQL(`WITH waiting AS (SELECT message, account, state, FALSE AS sent FROM delivery
			WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') ORDER BY due_at LIMIT 5000),
		held AS (SELECT message, account, state, TRUE AS sent FROM delivery WHERE lease IS NOT NULL ORDER BY lease, message, n LIMIT 5000),
		found AS (SELECT message, account, state, sent FROM waiting UNION ALL SELECT message, account, state, sent FROM held)
		SELECT CAST(0 AS BIGINT), COUNT(*) FROM found
		UNION ALL SELECT message, CAST(0 AS BIGINT) FROM (SELECT DISTINCT message FROM found
			WHERE account = $1 AND (sent OR NOT $2 AND state = 'queued') LIMIT 1000) AS own`)
)

// Limits of openMessagesQuery's result.
const (
	maxOpen        = 5000
	maxOpenAccount = 1000
)

// DeliveriesOf is like Deliveries, for at most MaxDeliveriesOf messages at once.
func (q *Queue) DeliveriesOf(ctx context.Context, messages []db.ID) (map[db.ID][]DeliveryStatus, error) {
	args := make([]any, MaxDeliveriesOf)
	for i := range args {
		args[i] = 0
		if i < len(messages) {
			args[i] = messages[i]
		}
	}
	rows, err := db.All(ctx, q.o.DB, deliveriesOfQuery.With(args...), scanDeliveryRow)
	if err != nil {
		return nil, err
	}
	return q.groupRows(rows), nil
}

// Indexed reports whether MessagesInState finds deliveries in the state. The index has only the
// less common states.
func (s State) Indexed() bool {
	switch s {
	case Scheduled, Deferred, Bounced, Complained, Suppressed, Failed, Cancelled:
		return true
	}
	return false
}

// QueuedOrSendingMessages returns, in no order, the messages of an account that may be Queued or
// Sending. ok is false if too many deliveries are open in all.
func (q *Queue) QueuedOrSendingMessages(ctx context.Context, account db.ID, state State) (messages []db.ID, ok bool, err error) {
	count := 0
	err = q.o.DB.Each(ctx, openMessagesQuery.With(account, state == Sending), func(r db.Row) error {
		var id db.ID
		var n int
		if err := r.Scan(&id, &n); err != nil {
			return err
		}
		if count += n; id != 0 {
			messages = append(messages, id)
		}
		return nil
	})
	return messages, err == nil && count < maxOpen && len(messages) < maxOpenAccount, err
}

// MessagesInState returns at most limit messages of an account that have a delivery in the given
// state, which must be Indexed, with ids between lo and hi. The newest come first, or the oldest if
// up is set.
func (q *Queue) MessagesInState(ctx context.Context, account db.ID, state State, lo, hi db.ID, up bool, limit int) ([]db.ID, error) {
	query := inStateOlderQuery
	if up {
		query = inStateNewerQuery
	}
	return db.All(ctx, q.o.DB, query.With(account, lo, hi, limit, string(state)), func(r db.Row) (id db.ID, err error) {
		return id, r.Scan(&id)
	})
}
