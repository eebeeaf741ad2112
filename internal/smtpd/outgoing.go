// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
)

// Outgoing is the Receiver of the submission doors.
type Outgoing struct{ Outbox *outbound.Outbox }

// Begin refuses a MAIL FROM that is not the mailbox's own.
func (r *Outgoing) Begin(ctx context.Context, e Envelope) (Transaction, error) {
	if err := r.Outbox.MaySubmit(ctx, e.Mailbox, e.From); err != nil {
		return nil, err
	}
	return &submission{outbox: r.Outbox, mailbox: e.Mailbox, s: outbound.Submission{From: e.From, Ret: e.Ret, EnvID: e.EnvID}}, nil
}

type submission struct {
	outbox  *outbound.Outbox
	mailbox mailbox.Mailbox
	s       outbound.Submission
}

// Recipient takes any address: whether it exists its own host will say.
func (s *submission) Recipient(_ context.Context, to address.Address, wants Wants) error {
	s.s.To = append(s.s.To, outbound.Rcpt{Address: to, Notify: wants.Notify, Original: wants.Original})
	return nil
}

// Message queues the message.
func (s *submission) Message(ctx context.Context, r message.Received, body io.Reader) (db.ID, error) {
	s.s.Received = r
	return s.outbox.Submit(ctx, s.mailbox, s.s, body)
}
