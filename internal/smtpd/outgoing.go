// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
)

// Outgoing is the Receiver of the submission doors.
type Outgoing struct{ Outbox *outbound.Outbox }

// Begin refuses a MAIL FROM that is not the mailbox's own, or not on a domain
// that the key may send from.
func (r *Outgoing) Begin(ctx context.Context, e Envelope) (Transaction, error) {
	s := &submission{outbox: r.Outbox, mailbox: e.Mailbox, key: e.Key, Submission: outbound.Submission{From: e.From, Ret: e.Ret, EnvID: e.EnvID, RequireTLS: e.RequireTLS}}
	if e.Key.Key != 0 {
		return s, r.Outbox.MaySend(ctx, e.Key, e.From)
	}
	return s, r.Outbox.MaySubmit(ctx, e.Mailbox, e.From)
}

type submission struct {
	outbound.Submission
	outbox  *outbound.Outbox
	mailbox mailbox.Mailbox
	key     account.Principal
}

// Recipient takes any address: whether it exists its own host will say.
func (s *submission) Recipient(_ context.Context, to address.Address, wants Wants) error {
	s.To = append(s.To, outbound.Rcpt{Address: to, Notify: wants.Notify, Original: wants.Original})
	return nil
}

// Message queues the message.
func (s *submission) Message(ctx context.Context, r message.Received, body io.Reader) (db.ID, error) {
	s.Received = r
	if s.key.Key != 0 {
		return s.outbox.SubmitByKey(ctx, s.key, s.Submission, body)
	}
	return s.outbox.Submit(ctx, s.mailbox, s.Submission, body)
}
