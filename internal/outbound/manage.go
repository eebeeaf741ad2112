// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bufio"
	"context"
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// Cancel ends the scheduled, queued and deferred deliveries of a message and returns the message. A
// delivery that is being sent at this moment keeps its outcome. It returns fault.NotFound if the
// account has no such message, and fault.Conflict if there is nothing to cancel and nothing was
// cancelled before.
func (o *Outbox) Cancel(ctx context.Context, account, id db.ID) (Message, error) {
	return o.updateMessage(ctx, account, id, func(*row) error {
		_, err := o.Queue.Cancel(ctx, id)
		return err
	})
}

// Retry makes the failed and deferred deliveries of a message due now, and returns the message. It
// returns fault.NotFound if the account has no such message, and fault.Conflict if no delivery has
// failed or is deferred.
func (o *Outbox) Retry(ctx context.Context, account, id db.ID) (Message, error) {
	return o.updateMessage(ctx, account, id, func(*row) error {
		_, err := o.Queue.Retry(ctx, id)
		return err
	})
}

// Reschedule moves the scheduled deliveries of a message to another time, within the limits of
// normalizeSendAt, and moves their expiry with them. It returns the message. Errors are a
// fault.Invalid on send_at, fault.NotFound if the account has no such message, and fault.Conflict
// if nothing is scheduled any more.
func (o *Outbox) Reschedule(ctx context.Context, account, id db.ID, at time.Time) (Message, error) {
	now := o.Now().UTC()
	due, wrong := normalizeSendAt(at, now)
	if wrong != nil {
		var bad fault.FieldErrors
		bad.Add("send_at", wrong.Code, "%s", wrong.Message)
		return Message{}, bad.Err()
	}
	if due.IsZero() {
		due = now
	}
	if db.IsReadOnly(ctx) { // before any bytes are written
		return Message{}, db.ErrReadOnly
	}
	return o.updateMessage(ctx, account, id, func(r *row) error {
		expires := due.Add(ExpiryAPI)
		if r.mailbox != 0 {
			expires = due.Add(ExpirySubmission)
		}
		return o.reschedule(ctx, r, due, expires)
	})
}

func (o *Outbox) updateMessage(ctx context.Context, account, id db.ID, verb func(*row) error) (Message, error) {
	r, err := o.loadOwned(ctx, account, id)
	if err != nil {
		return Message{}, err
	}
	if err := verb(r); err != nil {
		return Message{}, err
	}
	return o.Get(ctx, account, id)
}

var rescheduleQuery = db.SQL(`UPDATE outbound_message SET blob = $3, size = $4, expires_at = $5 WHERE id = $1 AND blob = $2`)

var errRescheduled = fault.New(fault.Conflict, "rescheduled_meanwhile", "The message was rescheduled by another request at the same time.")

// reschedule moves a message and sets its Date to the time of sending, as on acceptance: a Date in
// the future, or long past, looks like spam.
func (o *Outbox) reschedule(ctx context.Context, r *row, due, expires time.Time) error {
	old, err := o.loadBlob(ctx, r)
	if err != nil {
		return err
	}
	dated, err := o.withDate(ctx, old, due)
	if err != nil {
		return err
	}
	err = o.Queue.Reschedule(ctx, r.id, due, expires, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, rescheduleQuery.With(r.id, old.ID, dated.ID, dated.Size, db.Micros(expires)), errRescheduled); err != nil {
			return err
		}
		return tx.Run(ctx, dated.InsertStatement(), blob.DeleteStatement(old.ID))
	})
	if fault.Is(err, fault.Conflict) {
		dated.Discard(ctx)
	}
	return err
}

// withDate copies a message and replaces its Date.
func (o *Outbox) withDate(ctx context.Context, old *blob.Blob, date time.Time) (*blob.Blob, error) {
	from, err := old.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer from.Close() //nolint:errcheck // only read
	in := bufio.NewReaderSize(from.All(), 32<<10)
	h, err := message.ReadHeader(in)
	if err != nil {
		return nil, err
	}
	var head []byte
	kept := 0
	for f := range h.Fields() {
		kept += len(f.Raw)
		if f.Is("Date") {
			head = append(head, "Date: "+date.Format(message.DateFormat)+"\r\n"...)
		} else {
			head = append(head, f.Raw...)
		}
	}
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	if _, err := w.Write(append(head, h[kept:]...)); err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, in); err != nil {
		return nil, err
	}
	return w.Finish()
}
