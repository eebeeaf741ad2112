// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
)

// Accepted is the answer to a send.
type Accepted struct {
	ID         db.ID
	Status     queue.State
	MessageID  string
	ThreadID   string
	Recipients []AcceptedRecipient
	Metadata   json.RawMessage
	CreatedAt  time.Time
}

// AcceptedRecipient is one recipient of an accepted message.
type AcceptedRecipient struct {
	Email  string
	Type   string // to, cc, bcc
	Status queue.State
}

// Send accepts a message from the API. It returns after the commit, with a
// fault.Invalid that names every field at fault, or fault.Denied when the
// account may not send as from_email; then nothing was stored.
func (o *Outbox) Send(ctx context.Context, p account.Principal, s Send) (Accepted, error) {
	defer o.pace.accepting(o.Now)()
	l, err := s.read()
	if err != nil {
		return Accepted{}, err
	}
	sender, err := o.sender(ctx, p, l.from)
	if err != nil {
		return Accepted{}, err
	}
	now := o.Now().UTC()
	r := &row{
		id: o.DB.NewID(), account: p.Account, domain: sender.Domain, returnsTo: o.returnsTo(sender),
		from: l.from.String(), subject: s.Subject, thread: l.threadID, metadata: l.metadata,
		created: now, expires: now.Add(ExpiryAPI),
	}
	if r.thread == "" {
		r.thread = o.DB.NewID().String()
	}
	r.messageID = "<" + r.id.String() + "@" + l.from.Domain + ">"
	l.draft.Date, l.draft.MessageID = now, r.messageID
	b, err := o.compose(ctx, &l.draft, r)
	if err != nil {
		return Accepted{}, err
	}
	if err := o.commit(ctx, r, b, l.recipients); err != nil {
		return Accepted{}, err
	}
	a := Accepted{
		ID: r.id, Status: queue.Queued, MessageID: r.messageID, ThreadID: r.thread,
		Metadata: json.RawMessage(r.metadata), CreatedAt: now,
	}
	for _, to := range l.recipients {
		a.Recipients = append(a.Recipients, AcceptedRecipient{to.String(), to.kind, queue.Queued})
	}
	return a, nil
}

// sender finds out whether the principal may send as an address.
func (o *Outbox) sender(ctx context.Context, p account.Principal, from address.Address) (domain.Sender, error) {
	if p.Domain != "" && p.Domain != from.Domain {
		return domain.Sender{}, fault.New(fault.Denied, "sender_not_allowed", "This API key may send for another domain only.")
	}
	return o.Domains.Sender(ctx, p.Account, from.Domain)
}

// returnsTo is where bounces of API mail go: to the From domain itself where
// its MX and SPF are ours, so that SPF aligns (RFC 7489 §3.1.2), else to us.
func (o *Outbox) returnsTo(s domain.Sender) string {
	if s.Aligned {
		return s.Name
	}
	return "bounces." + o.Host
}

func (o *Outbox) compose(ctx context.Context, d *message.Draft, r *row) (*blob.Blob, error) {
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	composed, err := message.Compose(w, d)
	if err != nil {
		return nil, err
	}
	b, err := w.Finish()
	if err != nil {
		return nil, err
	}
	r.size, r.blob, r.utf8 = b.Size, b.ID, composed.NeedsUTF8
	return b, nil
}

// commit writes the message, its bytes and its deliveries in one commit.
func (o *Outbox) commit(ctx context.Context, r *row, b *blob.Blob, recipients []recipient) error {
	to := make([]queue.Recipient, len(recipients))
	for i, rcpt := range recipients {
		to[i] = queue.Recipient{Address: rcpt.String(), Kind: rcpt.kind, Destination: rcpt.Domain}
	}
	plan := o.Queue.Plan(queue.Message{About: r.about(), ID: r.id, ExpiresAt: r.expires}, to)
	err := o.DB.Write(ctx, r.account, &db.Job{
		Apply: func(batch *db.Batch) {
			batch.Queue(b.Insert())
			batch.Queue(r.insert())
			plan.Queue(batch)
		},
		AfterCommit: plan.Committed,
	})
	if err != nil {
		plan.Abandon()
	}
	return err
}

func (r *row) about() queue.About {
	return queue.About{
		Account: r.account, API: r.mailbox == 0, MessageID: r.messageID, ThreadID: r.thread, Metadata: json.RawMessage(r.metadata),
	}
}
