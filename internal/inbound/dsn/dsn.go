// SPDX-License-Identifier: Apache-2.0

// Package dsn writes delivery status notifications (RFC 3464): it tells the senders of submitted
// and forwarded messages what became of them. Its Sender turns the queue's notices into messages.
package dsn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
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
	// noticeDelivery marks filing notes that have the id of a notice instead of a message.
	noticeDelivery = -1
)

// Sender sends delivery status notifications. All fields are required.
type Sender struct {
	Host      string // this service's name, which the notifications come from
	Key       *secret.Key
	DB        *db.DB
	Node      *lease.Node
	Hub       *notify.Hub
	Blobs     *blob.Store
	Mailboxes *mailbox.Mailboxes
	Domains   *domain.Domains
	Queue     *queue.Queue
	Outbox    *outbound.Outbox
	Inbound   *inbound.Service
	Now       func() time.Time
	Log       *slog.Logger
}

// Run notifies senders until ctx ends, exactly once of each outcome, even across crashes. Every
// node runs it; the leader job "notices" makes sure that one node works at a time.
func (s *Sender) Run(ctx context.Context) error {
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.SenderNotice})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, s.SendPending, func(err error) { s.Log.Error("telling senders failed", "error", err) })
	return nil
}

// SendPending does one round: it adds notices for delayed mail and sends the pending notifications.
// It returns the time until the next round.
func (s *Sender) SendPending(ctx context.Context) (again time.Duration, err error) {
	late, err := s.Queue.HasDelayed(ctx)
	if err != nil {
		return noticeInterval, err
	}
	messages, more, err := s.Queue.MessagesToNotify(ctx, noticeBatch)
	if err != nil || !late && len(messages) == 0 {
		return noticeInterval, err
	}
	if err := s.Node.AcquireLeaderJob(ctx, "notices"); errors.Is(err, lease.ErrNotLeader) {
		return noticeInterval, nil
	} else if err != nil {
		return noticeInterval, err
	}
	again = noticeInterval
	if late {
		// New notices trigger another round.
		switch more, err := s.Queue.AddDelayNotices(ctx); {
		case err != nil:
			return noticeInterval, err
		case more:
			return 0, nil
		}
	}
	for _, id := range messages {
		sent, wait, err := s.notifyAbout(ctx, id)
		if ctx.Err() != nil {
			return noticeInterval, nil //nolint:nilerr // it was told to end
		}
		if err != nil {
			s.Log.Error("a sender could not be told what became of a message", "message", id, "error", err)
		}
		if again = min(again, wait); more && sent {
			again = 0
		}
	}
	return again, nil
}

// notifyAbout sends one notification of all the notices of a message. It returns the time until the
// message may have more notices.
func (s *Sender) notifyAbout(ctx context.Context, id db.ID) (sent bool, again time.Duration, err error) {
	all, ready, at, err := s.Queue.Notices(ctx, id)
	if err != nil || len(all) == 0 {
		return false, noticeInterval, err
	}
	if !ready {
		return false, max(at.Sub(s.Now()), time.Millisecond), nil
	}
	err = s.send(ctx, id, all)
	switch {
	case err == nil:
		return true, noticeInterval, nil
	case s.DB.IsConflict(err):
		return false, time.Second, nil // another node sent some of the notices; retry for the rest
	}
	return false, noticeInterval, errors.Join(err, s.Queue.PostponeNotices(ctx, all, s.Now().Add(noticeRetryDelay)))
}

// send sends the notification, or drops it if it has no recipient.
func (s *Sender) send(ctx context.Context, id db.ID, all []queue.Notice) error {
	m, err := s.Outbox.SubmissionInfo(ctx, id)
	if err == nil && isSRS(m.Sender) {
		return s.sendToOriginalSender(ctx, m, all)
	}
	var to mailbox.Recipient
	if err == nil {
		to, err = s.senderMailbox(ctx, m)
		if m.ForwardDomain != 0 && fault.Is(err, fault.NotFound) {
			return s.sendElsewhere(ctx, m, all)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return s.drop(ctx, id, all, err)
	}
	if err != nil {
		return err
	}
	return s.file(ctx, m, all, to)
}

// file files the notification in the sender's mailbox.
func (s *Sender) file(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice, to mailbox.Recipient) error {
	n, err := s.write(ctx, &m, all, false)
	if err == nil {
		err = s.Inbound.FileServiceMessage(ctx, n, to, m.Sender, s.deleteNoticesMutation(all))
	}
	if err == nil {
		s.Log.Info("a sender was told what became of a message", "message", m.ID, "mailbox", to.Mailbox, "notices", len(all))
	}
	return err
}

// deleteNoticesMutation deletes notices in the commit of their notification. The commit fails with
// a conflict if another node sent one of them.
func (s *Sender) deleteNoticesMutation(all []queue.Notice) *db.Mutation {
	return &db.Mutation{Apply: func(b *db.Batch) {
		for _, q := range s.Queue.DeleteNoticeStatements(all) {
			b.Queue(q)
		}
		for _, n := range all {
			b.Queue(s.Inbound.FilingStatement(n.ID, noticeDelivery))
		}
	}}
}

// drop drops notices that can't be delivered. It leaves an event for the account and a log line for
// the operator.
func (s *Sender) drop(ctx context.Context, message db.ID, all []queue.Notice, reason error) error {
	if err := s.Queue.FailNotices(ctx, message, all); err != nil {
		return err
	}
	s.Log.Warn("a sender is not told what became of a message", "message", message, "notices", len(all), "reason", reason)
	return nil
}

// senderMailbox returns the mailbox of a message's sender. If the sender's address belongs to
// another account by now, or to none, it returns the mailbox that submitted the message: an account
// that lost a domain can still read its mail.
func (s *Sender) senderMailbox(ctx context.Context, m outbound.SubmissionInfo) (mailbox.Recipient, error) {
	from, err := address.Parse(m.Sender)
	if err != nil {
		return mailbox.Recipient{}, fault.Wrap(err, fault.NotFound, mailbox.CodeNoMailbox, "The sender's address can't be read.")
	}
	if secret.IsReturnOrUnsubscribePath(from.Local) { // not a mailbox, even if a catch-all would accept it
		return mailbox.Recipient{}, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "An application sent the message.")
	}
	route, err := s.Mailboxes.Route(ctx, from)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return mailbox.Recipient{}, err
	}
	// If an alias leads to several mailboxes, only the one that submitted the message gets the
	// notification.
	for _, to := range route.Mailboxes {
		if to.Mailbox == m.Mailbox || (len(route.Mailboxes) == 1 || m.Mailbox == 0) && to.Account == m.Account {
			return to, nil
		}
	}
	box, err := s.Mailboxes.Get(ctx, m.Account, m.Mailbox)
	return mailbox.Recipient{Mailbox: box.ID, Account: box.Account, Domain: box.Domain, Address: box.Address}, err
}
