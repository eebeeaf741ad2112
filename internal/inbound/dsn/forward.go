// SPDX-License-Identifier: Apache-2.0

package dsn

import (
	"context"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
)

func isSRS(sender string) bool {
	a, err := address.Parse(sender)
	return err == nil && secret.IsSRS(a.Local)
}

// sendToOriginalSender sends the notification about a forwarded message to its original sender, in
// the name of the account that forwarded it. By now the path's domain may belong to another
// account, or to none.
func (s *Sender) sendToOriginalSender(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice) error {
	path, err := address.Parse(m.Sender)
	if err != nil {
		return err
	}
	to, err := s.Inbound.OriginalSender(ctx, m.Account, path, m.CreatedAt) // the delivery may have been held for weeks
	if fault.Is(err, fault.NotFound) {
		return s.drop(ctx, m.ID, all, err)
	}
	if err != nil {
		return err
	}
	m.Sender = to.String()
	return s.queue(ctx, m, all, to, inbound.AppendForwardFields(nil, path.String()))
}

// sendElsewhere sends the notification about a forwarded message to a sender without a mailbox in
// the forwarding account. The sender's mailbox may be in another account, or the sender may be the
// return path of API mail.
func (s *Sender) sendElsewhere(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice) error {
	to, err := address.Parse(m.Sender)
	if err != nil {
		return s.drop(ctx, m.ID, all, err)
	}
	if secret.IsReturnOrUnsubscribePath(to.Local) {
		return s.recordBounce(ctx, m, all, to)
	}
	if to.Local == inbound.PostmasterLocalPart && m.DomainLost { // the address may belong to another account by now
		return s.drop(ctx, m.ID, all, fault.New(fault.Denied, mailbox.CodeDomainNotHosted, "The account has lost the domain."))
	}
	return s.queue(ctx, m, all, to, nil)
}

// queue sends the notification through the queue, with the trace fields on top.
func (s *Sender) queue(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice, to address.Address, trace message.Header) error {
	n, err := s.write(ctx, &m, all, true)
	if err != nil {
		return err
	}
	utf8, eightBit := n.Index.RequiredExtensions()
	ready, err := s.Outbox.PrepareForward(ctx, outbound.ForwardRequest{
		Account: m.Account, Domain: m.ForwardDomain, Forwarder: m.ForwardDomain, To: []address.Address{to},
		Blob: s.Blobs.Prepend(n.Blob, trace), Header: n.Header, EightBit: eightBit, UTF8: utf8 || trace.EightBit(), RequireTLS: m.RequireTLS,
	})
	if fault.Is(err, fault.Denied) { // don't retry forever
		n.Blob.Discard(ctx)
		return s.drop(ctx, m.ID, all, err)
	}
	if err != nil {
		return err
	}
	defer ready.Cancel()
	err = s.DB.Write(ctx, ready.ID, db.Combine(ready.Mutation(), s.deleteNoticesMutation(all)))
	if ready.Finish(err) {
		s.Log.Info("a sender elsewhere is told what became of a message", "message", m.ID, "notification", ready.ID, "notices", len(all))
	}
	return err
}

// recordBounce turns the notification about a forwarded message into a bounce of the original
// delivery, wherever mail to its return path goes by now.
func (s *Sender) recordBounce(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice, to address.Address) error {
	id, n, ok := s.Key.ParseReturnPath(to.Local)
	if !ok {
		return s.drop(ctx, m.ID, all, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "The return path was not made by this service."))
	}
	report, err := s.write(ctx, &m, all, false)
	if err != nil {
		return err
	}
	defer report.Blob.Discard(ctx)
	if err := s.Inbound.RecordForwardBounce(ctx, db.ID(id), n, report); err != nil {
		return err
	}
	return s.Queue.DropNotices(ctx, all)
}
