// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/thread"
)

// A trace is the record that remains of a message after Prune. It contains neither the content nor
// the recipients; only a caller that names an address can find out whether it was a recipient.

var (
	insertTraceQuery = db.SQL(`INSERT INTO outbound_trace (id, account, domain, reference, thread_id, message_id, recipients)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING`)
	traceByIDQuery   = db.SQL(`SELECT account, domain, thread_id, message_id, recipients FROM outbound_trace WHERE id = $1`)
	pruneTracesQuery = db.SQL(`DELETE FROM outbound_trace WHERE id IN (SELECT id FROM outbound_trace WHERE id < $1 ORDER BY id LIMIT $2)`)
)

// recipientHashSize is the number of bytes in a recipient's hash.
const recipientHashSize = 8

func (o *Messages) insertTrace(p *expiredMessage) db.Statement {
	marks := []byte{}
	if p.mailbox == 0 && !p.private { // only API mail suppresses recipients
		marks = o.recipientHashes(p.id, p.recipients)
	}
	return insertTraceQuery.With(p.id, p.account, p.domain, thread.LookupKey(p.messageID), p.thread, p.messageID, marks)
}

func (o *Messages) recipientHashes(message db.ID, to []queue.DeliveryStatus) []byte {
	marks := make([]byte, 0, recipientHashSize*len(to))
	for _, d := range to {
		a, err := address.Parse(d.Recipient)
		if err != nil {
			marks = append(marks, make([]byte, recipientHashSize)...)
			continue
		}
		marks = append(marks, o.recipientHash(message, a)...)
	}
	return marks
}

// recipientHash returns the hash by which a recipient of a message is recognized. The same
// recipient has a different hash in every message.
func (o *Messages) recipientHash(message db.ID, a address.Address) []byte {
	h := hmac.New(sha256.New, o.Key.Subkey("recipients of deleted messages"))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(message)))
	h.Write([]byte(a.Key()))
	return h.Sum(nil)[:recipientHashSize]
}

// trace is a row of outbound_trace.
type trace struct {
	queue.MessageInfo
	recipientHashes []byte
}

func (o *Messages) loadTrace(ctx context.Context, id db.ID) (t trace, err error) {
	err = o.DB.One(ctx, traceByIDQuery.With(id), &t.Account, &t.Domain, &t.ThreadID, &t.MessageID, &t.recipientHashes)
	t.API = len(t.recipientHashes) > 0
	return t, db.IfNoRow(err, notFoundError())
}

func (o *Messages) prunedMessageInfo(ctx context.Context, id db.ID) (queue.MessageInfo, error) {
	t, err := o.loadTrace(ctx, id)
	return t.MessageInfo, err
}

// PrunedRecipient returns which of the addresses was the recipient of the nth delivery of a pruned
// API message, and the account that sent it. It returns fault.NotFound if none was, or if the trace
// is gone too.
func (o *Messages) PrunedRecipient(ctx context.Context, message db.ID, n int, of []address.Address) (account db.ID, to address.Address, err error) {
	t, err := o.loadTrace(ctx, message)
	if err != nil {
		return 0, to, err
	}
	marks := t.recipientHashes
	if n >= 0 && n < len(marks)/recipientHashSize {
		mark := marks[n*recipientHashSize : (n+1)*recipientHashSize]
		for _, a := range of {
			if subtle.ConstantTimeCompare(mark, o.recipientHash(message, a)) == 1 {
				return t.Account, a, nil
			}
		}
	}
	return 0, to, fault.New(fault.NotFound, "no_recipient", "This was no recipient of the message.")
}

// PruneTraces deletes, in one commit, at most limit traces of messages accepted before a time, and
// returns how many; 0 means that there are no more.
func (o *Messages) PruneTraces(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := o.DB.Exec(ctx, pruneTracesQuery.With(db.MinIDAt(before), limit))
	return int(deleted), err
}
