// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/suppression"
)

// suppressStatement returns the statement that adds the recipient of a delivery to the account's
// suppression list, for the commit of the outcome. It returns false for mail that suppresses
// nothing: mail that a mailbox submitted or that the service wrote.
func (q *Queue) suppressStatement(s *StatusChange, n int, why suppression.Reason, diagnostic string) (db.Statement, bool) {
	if !s.API || s.Private {
		return db.Statement{}, false
	}
	return q.o.Suppressions.AddStatement(suppression.Entry{
		Account: s.Account, Address: s.Recipient, Reason: why, Message: s.ID, Delivery: n, Diagnostic: diagnostic,
	})
}

// suppressScheduledQuery ends a scheduled delivery whose recipient was added to the list since it
// was accepted.
var suppressScheduledQuery = db.SQL(`UPDATE delivery SET state = 'suppressed', lease = NULL, hold = 0, sequence = $4, updated_at = $5, reply = $6
	WHERE message = $1 AND n = $2 AND lease = $3 AND sequence = $7 AND state = 'scheduled'`)

// suppressionReason returns the reason why the recipient of a due scheduled delivery gets nothing;
// "" if it is sent. Up to 30 days pass between a send and its due time: recipients who complain or
// unsubscribe in between must get no mail.
func (q *Queue) suppressionReason(ctx context.Context, d *Delivery, about MessageInfo) (suppression.Reason, error) {
	if !about.API {
		return "", nil
	}
	a, err := address.Parse(d.Recipient)
	if err != nil {
		return "", nil //nolint:nilerr // the host that it is for may judge it
	}
	blocked, err := q.o.Suppressions.Blocked(ctx, d.Account, []address.Address{a}, d.offersUnsubscribe)
	return blocked[a.Key()], err
}

func suppressedReply(why suppression.Reason) string {
	return "The recipient is on the account's suppression list (" + string(why) + ")."
}
