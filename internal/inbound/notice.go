// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// noticeLook is how often it is looked for mail that has become late, and
	// for notices whose signal was lost.
	noticeLook = 30 * time.Second
	// noticeChunk is how many notices are looked at in one round.
	noticeChunk = 1000
	// noticeRest is how long trouble of our own puts notices off.
	noticeRest = time.Minute
	// noticeN marks, in filing, what is a notice's id and no message's.
	noticeN = -1
)

// RunNotices tells the senders of submissions what became of their mail until
// ctx ends: what the queue noted is filed as a report into their mailboxes
// (RFC 3464), once, whatever ends or breaks meanwhile. Every node runs it; the
// duty "notices" lets one at a time work.
func (i *Inbound) RunNotices(ctx context.Context) error {
	sub := i.Hub.Subscribe(signal.Key{Kind: signal.Notice})
	defer sub.Close()
	signal.Repeat(ctx, sub.C, i.TellSenders, func(err error) { i.Log.Error("telling senders failed", "error", err) })
	return nil
}

// TellSenders does one round of that: it notes what has become late, and files
// what is to be told. It returns after how long to look again.
func (i *Inbound) TellSenders(ctx context.Context) (again time.Duration, err error) {
	late, err := i.Queue.AnyLate(ctx)
	if err != nil {
		return noticeLook, err
	}
	messages, more, err := i.Queue.ToTell(ctx, noticeChunk)
	if err != nil || !late && len(messages) == 0 {
		return noticeLook, err
	}
	mine := false
	err = i.db.Tx(ctx, func(tx *db.Tx) (err error) {
		mine, err = i.Node.Duty(ctx, tx, "notices")
		return err
	})
	if err != nil || !mine {
		return noticeLook, err
	}
	again = noticeLook
	if late {
		// What it finds wakes us once more.
		switch more, err := i.Queue.NoteLate(ctx); {
		case err != nil:
			return noticeLook, err
		case more:
			return 0, nil
		}
	}
	for _, id := range messages {
		told, wait, err := i.tell(ctx, id)
		if ctx.Err() != nil {
			return noticeLook, nil //nolint:nilerr // it was told to end
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

// tell files one report of all that is to be told of a message. It returns
// after how long there may be more to tell of it.
func (i *Inbound) tell(ctx context.Context, id db.ID) (told bool, again time.Duration, err error) {
	all, ready, at, err := i.Queue.Notices(ctx, id)
	if err != nil || len(all) == 0 {
		return false, noticeLook, err
	}
	if !ready {
		return false, max(at.Sub(i.Now()), time.Millisecond), nil
	}
	err = i.report(ctx, id, all)
	switch {
	case err == nil:
		return true, noticeLook, nil
	case i.db.IsConflict(err):
		return false, time.Second, nil // another node told some of it: what is left?
	}
	return false, noticeLook, errors.Join(err, i.Queue.PutOff(ctx, all, i.Now().Add(noticeRest)))
}

// report files the report, or drops it if there is nobody to tell.
func (i *Inbound) report(ctx context.Context, id db.ID, all []queue.Notice) error {
	m, err := i.Outbox.Submitted(ctx, id)
	if err == nil && isSRS(m.Sender) {
		return i.reportBack(ctx, m, all)
	}
	var to mailbox.Recipient
	if err == nil {
		to, err = i.senderOf(ctx, m)
		if m.Forwards != 0 && fault.Is(err, fault.NotFound) {
			return i.reportOn(ctx, m, all)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
		return i.untold(ctx, id, all, err)
	}
	if err != nil {
		return err
	}
	s, err := i.writeReport(ctx, &m, all, false)
	if err != nil {
		return err
	}
	in, err := i.copyFor(ctx, s, to, nil, "", m.Sender)
	if err != nil {
		return err
	}
	in.Also = i.Queue.Told(all)
	for _, n := range all {
		in.Also = append(in.Also, filed.With(n.ID, noticeN, db.Micros(i.Now())))
	}
	_, err = i.Folders.Deliver(ctx, in)
	if err == nil {
		i.Log.Info("a sender was told what became of a message", "message", id, "mailbox", to.Mailbox, "notices", len(all))
	}
	return err
}

// untold drops notices that nobody can be told: the account has an event, the operator a
// line in the log.
func (i *Inbound) untold(ctx context.Context, message db.ID, all []queue.Notice, reason error) error {
	if err := i.Queue.Untold(ctx, message, all); err != nil {
		return err
	}
	i.Log.Warn("a sender is not told what became of a message", "message", message, "notices", len(all), "reason", reason)
	return nil
}

// senderOf finds the mailbox of a message's sender. Should mail to its address
// reach another account by now, or none here, it is the mailbox that handed the
// message in: who lost a domain still reads its mail.
func (i *Inbound) senderOf(ctx context.Context, m outbound.Submitted) (mailbox.Recipient, error) {
	from, err := address.Parse(m.Sender)
	if err != nil {
		return mailbox.Recipient{}, fault.Wrap(err, fault.NotFound, mailbox.CodeNoMailbox, "The sender's address can't be read.")
	}
	if secret.IsReturnPath(from.Local) { // no mailbox, though a catch-all would take it
		return mailbox.Recipient{}, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "An application sent the message.")
	}
	route, err := i.Mailboxes.Route(ctx, from)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return mailbox.Recipient{}, err
	}
	// Of all that an alias leads to, whoever sent as it is told.
	for _, to := range route.Mailboxes {
		if to.Mailbox == m.Mailbox || (len(route.Mailboxes) == 1 || m.Mailbox == 0) && to.Account == m.Account {
			return to, nil
		}
	}
	box, err := i.Mailboxes.Get(ctx, m.Account, m.Mailbox)
	return mailbox.Recipient{Mailbox: box.ID, Account: box.Account, Domain: box.Domain, Address: box.Address}, err
}
