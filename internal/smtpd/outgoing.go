// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"errors"
	"io"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
)

// Outgoing is the Receiver of the submission doors.
type Outgoing struct{ Outbox *outbound.Outbox }

// Begin refuses a MAIL FROM that is not the mailbox's own, or not on a domain
// that the key may send from, and of whoever has sent as much as allowed.
func (r *Outgoing) Begin(ctx context.Context, e Envelope) (Transaction, error) {
	s := &submission{
		outbox: r.Outbox, mailbox: e.Mailbox, key: e.Key, who: limit.Who{Account: e.Mailbox.Account},
		Submission: outbound.Submission{From: e.From, Ret: e.Ret, EnvID: e.EnvID, RequireTLS: e.RequireTLS},
	}
	var err error
	if e.Key.Key != 0 {
		s.who = outbound.UserOf(e.Key)
		err = r.Outbox.MaySend(ctx, e.Key, e.From)
	} else {
		err = r.Outbox.MaySubmit(ctx, e.Mailbox, e.From)
	}
	if err == nil {
		err = r.Outbox.Limits.Check(ctx, s.who, 1, 1)
	}
	return s, err
}

type submission struct {
	outbound.Submission
	outbox  *outbound.Outbox
	mailbox mailbox.Mailbox
	key     account.Principal
	who     limit.Who
}

// Recipient takes any address while the limits allow one more: whether it exists
// its own host will say.
func (s *submission) Recipient(ctx context.Context, to address.Address, wants Wants) error {
	if err := s.outbox.Limits.Check(ctx, s.who, 1, len(s.To)+1); err != nil {
		return later(err)
	}
	s.To = append(s.To, outbound.Rcpt{Address: to, Notify: wants.Notify, Original: wants.Original})
	return nil
}

// later makes of a recipient who is too many for the whole window one who is too
// many for now: by itself the message can go there tomorrow.
func later(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Denied {
		return fault.New(fault.Limited, f.Code, "%s", f.Message)
	}
	return err
}

// Message queues the message.
func (s *submission) Message(ctx context.Context, r message.Received, body io.Reader) (db.ID, error) {
	s.Received = r
	if s.key.Key != 0 {
		return s.outbox.SubmitByKey(ctx, s.key, s.Submission, body)
	}
	return s.outbox.Submit(ctx, s.mailbox, s.Submission, body)
}
