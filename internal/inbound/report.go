// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/summary"
)

// handleReport records in the queue what a message to a return path reports about its delivery. A
// report without a failure only adds a remark. A message to an unsubscribe address unsubscribes its
// recipient.
func (i *Service) handleReport(ctx context.Context, r returnPath, s *spooledMessage) error {
	if r.unsubscribes {
		return i.unsubscribe(ctx, r, s)
	}
	told, err := i.parseReport(ctx, s)
	if err != nil {
		return err
	}
	switch told.Kind {
	case bounce.Failure:
	case bounce.Complaint:
		return i.recordComplaint(ctx, r, told)
	default:
		return i.addRemark(ctx, r, told, s)
	}
	d, err := i.reportedDelivery(ctx, r)
	if err != nil {
		return err
	}
	to := told.RecipientFor(d.Recipient)
	if to == nil {
		return i.addRemark(ctx, r, told, s)
	}
	here, err := i.isFiled(ctx, r.message, r.n)
	if err != nil {
		return err
	}
	report := queue.Report{Code: to.Code, Enhanced: to.Enhanced, Text: to.Diagnostic, Remote: to.Remote, Bounce: to.Classification}
	// A message that was filed here and has a failure report was forwarded from here. Days later
	// its filing row is gone, but the delivery's outcome remains.
	report.Bounce.Suppress = to.Suppress && !r.forwarded && !here && d.Remote != LocalRemote
	changed, err := i.Queue.RecordBounce(ctx, r.message, r.n, report)
	if fault.Is(err, fault.NotFound) || err == nil && !changed {
		changed, err = i.recordPastBounce(ctx, r, report, told)
	}
	if err == nil {
		i.Log.Info("a report of failure", "message", r.message, "n", r.n, "type", to.Type, "subtype", to.Subtype, "status", to.Enhanced, "changed", changed)
	}
	return err
}

// RecordForwardBounce records that the forward of a delivered message failed. It doesn't suppress
// the recipient, since local mailboxes may have received the message as well. Recording a failure
// again changes nothing.
func (i *Service) RecordForwardBounce(ctx context.Context, message db.ID, n int, report *ServiceMessage) error {
	return i.handleReport(ctx, returnPath{message: message, n: n, forwarded: true}, report.spooled(0))
}

// addRemark adds an entry to the timeline for a message that changes nothing else: a delay report
// or an automatic reply.
func (i *Service) addRemark(ctx context.Context, r returnPath, told *bounce.Report, s *spooledMessage) (err error) {
	subject := summary.CleanText(s.header.Decoded("Subject"), 200)
	news := false
	switch {
	case told.Kind == bounce.AutoReply:
		news, err = i.Queue.AddRemark(ctx, r.message, r.n, queue.StageAutoReply, s.header.MessageID(), queue.Report{Text: subject})
	case told.Kind == bounce.Delay && len(told.Recipients) > 0:
		var d queue.DeliveryStatus
		if d, err = i.reportedDelivery(ctx, r); err != nil {
			return err
		}
		to := told.RecipientFor(d.Recipient)
		if to == nil {
			break
		}
		said := queue.Report{Code: to.Code, Enhanced: to.Enhanced, Text: to.Diagnostic, Remote: to.Remote}
		news, err = i.Queue.AddRemark(ctx, r.message, r.n, queue.StageDelay, s.header.MessageID(), said)
	}
	if err == nil {
		i.Log.Info("a message to a return path that reports no failure", "message", r.message, "n", r.n, "kind", told.Kind, "subject", subject, "news", news)
	}
	return err
}

// parseReport parses the first bounce.MaxBytes of a message as a report.
func (i *Service) parseReport(ctx context.Context, s *spooledMessage) (*bounce.Report, error) {
	r, err := s.blob.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	return bounce.Read(io.NewSectionReader(r, 0, bounce.MaxBytes))
}

// reportedDelivery returns the delivery that a report is about: each return path is for one
// recipient. The result is empty if the delivery is gone.
func (i *Service) reportedDelivery(ctx context.Context, r returnPath) (queue.DeliveryStatus, error) {
	all, err := i.Queue.Deliveries(ctx, r.message)
	for _, d := range all {
		if d.N == r.n {
			return d, nil
		}
	}
	return queue.DeliveryStatus{}, err
}

// recordPastBounce records a report about a message that was deleted meanwhile (retention). Anybody
// who received the message knows its return path, but could name any address in a report. Only the
// address of the delivery itself is accepted.
func (i *Service) recordPastBounce(ctx context.Context, r returnPath, said queue.Report, told *bounce.Report) (suppressed bool, err error) {
	var named []address.Address
	for _, to := range told.Recipients {
		for _, text := range []string{to.Original, to.Address} {
			if a, err := address.Parse(text); err == nil && told.RecipientFor(text) != nil {
				named = append(named, a)
			}
		}
	}
	account, to, err := i.Outbox.PrunedRecipient(ctx, r.message, r.n, named)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return i.Queue.RecordBounceOfDeleted(ctx, account, r.message, r.n, to, said)
}
