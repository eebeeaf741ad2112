// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
)

const (
	// noticeInterval is the time between checks for delayed mail, and for notices whose signal was
	// lost.
	noticeInterval = 30 * time.Second
	// noticeBatch is the number of notices per round.
	noticeBatch = 1000
	// noticeRetryDelay is how long an internal error postpones notices.
	noticeRetryDelay = time.Minute
	// noticeDelivery marks rows of the filing table that have the id of a notice instead of a
	// message.
	noticeDelivery = -1
)

// RunSenderReports reports the outcome of submissions to their senders until ctx ends. It turns the
// queue's notices into reports in the senders' mailboxes (RFC 3464), exactly once, even across
// crashes. Every node runs it; the leader job "notices" makes sure that one node works at a time.
func (i *Service) RunSenderReports(ctx context.Context) error {
	sub := i.Hub.Subscribe(notify.Key{Kind: notify.SenderNotice})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, i.SendSenderReports, func(err error) { i.Log.Error("telling senders failed", "error", err) })
	return nil
}

// SendSenderReports does one round: it adds notices for delayed mail and files the pending reports.
// It returns the time until the next round.
func (i *Service) SendSenderReports(ctx context.Context) (again time.Duration, err error) {
	late, err := i.Queue.HasDelayed(ctx)
	if err != nil {
		return noticeInterval, err
	}
	messages, more, err := i.Queue.MessagesToNotify(ctx, noticeBatch)
	if err != nil || !late && len(messages) == 0 {
		return noticeInterval, err
	}
	if err := i.Node.AcquireLeaderJob(ctx, "notices"); errors.Is(err, lease.ErrNotLeader) {
		return noticeInterval, nil
	} else if err != nil {
		return noticeInterval, err
	}
	again = noticeInterval
	if late {
		// New notices trigger another round.
		switch more, err := i.Queue.AddDelayNotices(ctx); {
		case err != nil:
			return noticeInterval, err
		case more:
			return 0, nil
		}
	}
	for _, id := range messages {
		told, wait, err := i.reportMessage(ctx, id)
		if ctx.Err() != nil {
			return noticeInterval, nil //nolint:nilerr // it was told to end
		}
		if err != nil {
			i.Log.Error("a sender could not be told what became of a message", "message", id, "error", err)
		}
		if again = min(again, wait); more && told {
			again = 0
		}
	}
	return again, nil
}

// reportMessage files one report of all the notices of a message. It returns the time until the
// message may have more notices.
func (i *Service) reportMessage(ctx context.Context, id db.ID) (told bool, again time.Duration, err error) {
	all, ready, at, err := i.Queue.Notices(ctx, id)
	if err != nil || len(all) == 0 {
		return false, noticeInterval, err
	}
	if !ready {
		return false, max(at.Sub(i.Now()), time.Millisecond), nil
	}
	err = i.fileReport(ctx, id, all)
	switch {
	case err == nil:
		return true, noticeInterval, nil
	case i.db.IsConflict(err):
		return false, time.Second, nil // another node reported some of the notices; retry for the rest
	}
	return false, noticeInterval, errors.Join(err, i.Queue.PostponeNotices(ctx, all, i.Now().Add(noticeRetryDelay)))
}

// fileReport files the report, or drops it if it has no recipient.
func (i *Service) fileReport(ctx context.Context, id db.ID, all []queue.Notice) error {
	m, err := i.Outbox.SubmissionInfo(ctx, id)
	if err == nil && isSRS(m.Sender) {
		return i.sendReportBack(ctx, m, all)
	}
	var to mailbox.Recipient
	if err == nil {
		to, err = i.senderMailbox(ctx, m)
		if m.ForwardDomain != 0 && fault.Is(err, fault.NotFound) {
			return i.sendRemoteReport(ctx, m, all)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return i.dropNotices(ctx, id, all, err)
	}
	if err != nil {
		return err
	}
	s, err := i.createReport(ctx, &m, all, false)
	if err != nil {
		return err
	}
	in, err := i.buildCopy(ctx, s, to, nil, "", m.Sender)
	if err != nil {
		return err
	}
	in.Statements = i.Queue.DeleteNoticeStatements(all)
	for _, n := range all {
		in.Statements = append(in.Statements, addFilingQuery.With(n.ID, noticeDelivery, db.Micros(i.Now())))
	}
	_, err = i.Folders.Deliver(ctx, in)
	if err == nil {
		i.Log.Info("a sender was told what became of a message", "message", id, "mailbox", to.Mailbox, "notices", len(all))
	}
	return err
}

// dropNotices drops notices that can't be delivered. It leaves an event for the account and a log
// line for the operator.
func (i *Service) dropNotices(ctx context.Context, message db.ID, all []queue.Notice, reason error) error {
	if err := i.Queue.FailNotices(ctx, message, all); err != nil {
		return err
	}
	i.Log.Warn("a sender is not told what became of a message", "message", message, "notices", len(all), "reason", reason)
	return nil
}

// senderMailbox returns the mailbox of a message's sender. If the sender's address belongs to
// another account by now, or to none, it returns the mailbox that submitted the message: an account
// that lost a domain can still read its mail.
func (i *Service) senderMailbox(ctx context.Context, m outbound.SubmissionInfo) (mailbox.Recipient, error) {
	from, err := address.Parse(m.Sender)
	if err != nil {
		return mailbox.Recipient{}, fault.Wrap(err, fault.NotFound, mailbox.CodeNoMailbox, "The sender's address can't be read.")
	}
	if secret.IsReturnPath(from.Local) { // not a mailbox, even if a catch-all would accept it
		return mailbox.Recipient{}, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "An application sent the message.")
	}
	route, err := i.Mailboxes.Route(ctx, from)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return mailbox.Recipient{}, err
	}
	// If an alias leads to several mailboxes, only the one that submitted the message gets the
	// report.
	for _, to := range route.Mailboxes {
		if to.Mailbox == m.Mailbox || (len(route.Mailboxes) == 1 || m.Mailbox == 0) && to.Account == m.Account {
			return to, nil
		}
	}
	box, err := i.Mailboxes.Get(ctx, m.Account, m.Mailbox)
	return mailbox.Recipient{Mailbox: box.ID, Account: box.Account, Domain: box.Domain, Address: box.Address}, err
}
