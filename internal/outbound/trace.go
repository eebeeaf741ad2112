// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/thread"
)

// A trace is what is left of a message after Prune. It holds neither what the
// message said nor to whom: only whoever names a recipient can find out that
// it was one.

var (
	insertTrace = db.SQL(`INSERT INTO outbound_trace (id, account, domain, reference, thread_id, message_id, recipients)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING`)
	traceByID   = db.SQL(`SELECT account, domain, thread_id, message_id, recipients FROM outbound_trace WHERE id = $1`)
	pruneTraces = db.SQL(`DELETE FROM outbound_trace WHERE id IN (SELECT id FROM outbound_trace WHERE id < $1 ORDER BY id LIMIT $2)`)
)

// markSize is how many bytes stand for a recipient.
const markSize = 8

func (o *Outbox) traceOf(p *past) db.Statement {
	marks := []byte{}
	if p.mailbox == 0 && !p.private { // nobody else's recipients are suppressed
		marks = o.marks(p.id, p.recipients)
	}
	return insertTrace.With(p.id, p.account, p.domain, thread.Key(p.messageID), p.thread, p.messageID, marks)
}

func (o *Outbox) marks(message db.ID, to []queue.Record) []byte {
	marks := make([]byte, 0, markSize*len(to))
	for _, d := range to {
		a, err := address.Parse(d.Recipient)
		if err != nil {
			marks = append(marks, make([]byte, markSize)...)
			continue
		}
		marks = append(marks, o.mark(message, a)...)
	}
	return marks
}

// mark is how a recipient of a message is recognised: the same one has another
// mark in every message.
func (o *Outbox) mark(message db.ID, a address.Address) []byte {
	h := hmac.New(sha256.New, o.Key.Sub("recipients of deleted messages"))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(message)))
	h.Write([]byte(a.Key()))
	return h.Sum(nil)[:markSize]
}

// trace is what the row has.
type trace struct {
	queue.About
	marks []byte
}

func (o *Outbox) loadTrace(ctx context.Context, id db.ID) (t trace, err error) {
	err = o.DB.One(ctx, traceByID.With(id), &t.Account, &t.Domain, &t.ThreadID, &t.MessageID, &t.marks)
	if errors.Is(err, db.ErrNoRow) {
		err = gone()
	}
	t.API = len(t.marks) > 0
	return t, err
}

func (o *Outbox) describePast(ctx context.Context, id db.ID) (queue.About, error) {
	t, err := o.loadTrace(ctx, id)
	return t.About, err
}

// Past finds out which of some addresses a delivery of API mail was for that
// Prune has deleted, and the account that sent it. It is fault.NotFound if none
// was, and when not even a trace is left.
func (o *Outbox) Past(ctx context.Context, message db.ID, n int, of []address.Address) (account db.ID, to address.Address, err error) {
	t, err := o.loadTrace(ctx, message)
	if err != nil {
		return 0, to, err
	}
	marks := t.marks
	if n >= 0 && n < len(marks)/markSize {
		mark := marks[n*markSize : (n+1)*markSize]
		for _, a := range of {
			if subtle.ConstantTimeCompare(mark, o.mark(message, a)) == 1 {
				return t.Account, a, nil
			}
		}
	}
	return 0, to, fault.New(fault.NotFound, "no_recipient", "This was no recipient of the message.")
}

// PruneTraces deletes, in one commit, at most limit traces of messages that were
// accepted before a time, and returns how many; 0: there are no more.
func (o *Outbox) PruneTraces(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := o.DB.Exec(ctx, pruneTraces.With(db.FirstID(before), limit))
	return int(deleted), err
}
