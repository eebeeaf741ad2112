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
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/quota"
)

// SubmissionBackend is the Backend of the submission servers.
type SubmissionBackend struct{ Outbox *outbound.Outbox }

// Begin rejects a MAIL FROM that the mailbox or the key may not use, and a sender whose sending
// limit is used up.
func (r *SubmissionBackend) Begin(ctx context.Context, e Envelope) (Transaction, error) {
	s := &submissionTransaction{
		outbox: r.Outbox, mailbox: e.Mailbox, principal: e.Principal, quotaSubject: quota.Consumer{Account: e.Mailbox.Account},
		Submission: outbound.Submission{From: e.From, Ret: e.Ret, EnvID: e.EnvID, RequireTLS: e.RequireTLS},
	}
	var err error
	if e.Principal.Key != 0 {
		s.quotaSubject = outbound.KeyConsumer(e.Principal)
		err = r.Outbox.CheckKeySender(ctx, e.Principal, e.From)
	} else {
		err = r.Outbox.CheckMailboxSender(ctx, e.Mailbox, e.From)
	}
	if err == nil {
		err = r.Outbox.Limits.CheckSend(ctx, s.quotaSubject, 1, 1)
	}
	return s, err
}

type submissionTransaction struct {
	outbound.Submission
	outbox       *outbound.Outbox
	mailbox      mailbox.Mailbox
	principal    account.Principal
	quotaSubject quota.Consumer
}

// Recipient accepts any address while the sending limits allow one more. Whether the address exists
// is up to its own host.
func (s *submissionTransaction) AddRecipient(ctx context.Context, to address.Address, wants RcptOptions) error {
	if err := s.outbox.Limits.CheckSend(ctx, s.quotaSubject, 1, len(s.To)+1); err != nil {
		return asTemporary(err)
	}
	s.To = append(s.To, outbound.SubmissionRecipient{Address: to, Notify: wants.Notify, OriginalRecipient: wants.ORCPT})
	return nil
}

// asTemporary turns a rejection of a recipient that exceeds the whole window's limit into a
// temporary one: in a message by itself that recipient may be accepted later.
func asTemporary(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Denied {
		return fault.New(fault.RateLimited, f.Code, "%s", f.Message)
	}
	return err
}

// Message queues the message.
func (s *submissionTransaction) ReceiveMessage(ctx context.Context, r message.ReceivedField, body io.Reader) (db.ID, error) {
	s.Received = r
	if s.principal.Key != 0 {
		return s.outbox.SubmitByKey(ctx, s.principal, s.Submission, body)
	}
	return s.outbox.Submit(ctx, s.mailbox, s.Submission, body)
}
