// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
)

// Capture is the courier of the local sandbox: it takes all mail as delivered
// and sends it nowhere, but keeps what a host would have got, for its outbox.
type Capture struct {
	DB    *db.DB
	Blobs *blob.Store
	Log   *slog.Logger

	taken atomic.Int64
}

var _ queue.Courier = (*Capture)(nil)

// MaxCaptured is how many messages the outbox of an account keeps, about: the
// oldest go first.
const MaxCaptured = 1000

// pruneEvery is after how many messages it is looked for those beyond that.
const pruneEvery = 50

// perCapture is how many messages that wait make another run worth while, so
// that the commits of several come together.
const perCapture, maxCaptureRuns = 4, 16

// Runs is that of queue.Courier.
func (c *Capture) Runs(waiting int) int { return min(1+waiting/perCapture, maxCaptureRuns) }

// Carry takes all that waits.
func (c *Capture) Carry(ctx context.Context, r *queue.Run) {
	for m := r.Next(); m != nil; m = r.Next() {
		o := queue.Outcome{
			State: queue.Delivered, Code: 250, Enhanced: "2.0.0", Reply: "captured in the sandbox; nothing left this machine",
			Stage: "local", Remote: "sandbox",
		}
		if err := c.Keep(ctx, m); err != nil {
			c.Log.Error("a message could not be captured", "message", m.Mail.ID, "error", err)
			o.State, o.Code, o.Enhanced, o.Reply = queue.Deferred, 451, "4.3.0", "the sandbox could not keep the message"
		}
		r.Done(m, o)
	}
}

var insertCaptured = db.SQL(`INSERT INTO captured (id, account, domain, message, sender, recipients, blob, size, structure)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)

// Keep stores a consignment as it would have gone out: with its signatures.
func (c *Capture) Keep(ctx context.Context, m *queue.Consignment) error {
	body, err := m.Mail.Body(ctx)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	w := c.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	both := io.MultiWriter(w, &scan)
	if _, err := both.Write(m.Mail.Head); err != nil {
		return err
	}
	if _, err := io.Copy(both, body); err != nil {
		return err
	}
	b, err := w.Finish()
	if err != nil {
		return err
	}
	structure, err := scan.Finish().MarshalBinary()
	if err != nil {
		return err
	}
	to := make([]string, len(m.To))
	for i, d := range m.To {
		to[i] = d.Recipient
	}
	recipients, err := json.Marshal(to)
	if err != nil {
		return err
	}
	insert := insertCaptured.With(c.DB.NewID(), m.Mail.Account, m.Mail.Domain, m.Mail.ID, m.From, string(recipients), b.ID, b.Size, structure)
	err = c.DB.Write(ctx, m.Mail.Account, &db.Job{Apply: func(q *db.Batch) {
		q.Queue(b.Insert())
		q.Queue(insert)
	}})
	if err == nil && c.taken.Add(1)%pruneEvery == 0 {
		// The message is kept: to try again would keep it twice.
		if err := c.prune(ctx, m.Mail.Account); err != nil {
			c.Log.Error("pruning the sandbox's outbox failed", "account", m.Mail.Account, "error", err)
		}
	}
	return err
}
