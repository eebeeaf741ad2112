// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
)

// deliveryPlan is everything that one incoming message causes: filed copies and outgoing mail. One
// commit does all of it or nothing.
type deliveryPlan struct {
	service    *Service
	message    *spooledMessage
	sender     string              // MAIL FROM
	fromLocal  bool                // whether it was sent from here, so that its sender is certain
	requireTLS bool                // whether the sender requires TLS on every hop
	smtpUTF8   bool                // whether it came with SMTPUTF8
	dsnOptions outbound.DSNOptions // from the sender
	copies     []folder.Delivery
	outgoing   []*outbound.PendingMessage
	statements []db.Statement
	// guards has one statement per recipient; each returns a row unless that recipient is
	// suspended. hasOthers reports whether there are recipients without a guard.
	guards    []db.Statement
	hasOthers bool
}

// errSuspended reports that a recipient was suspended after it was accepted.
var errSuspended = errors.New("a recipient is suspended")

// CodeRecipientSuspended is the code of the fault.Unavailable for a message with a recipient that
// was suspended during the transaction.
const CodeRecipientSuspended = "recipient_suspended"

// suspendedError returns why the commit failed. If all recipients are suspended, the message is
// rejected. Otherwise the sender retries, and learns at RCPT which recipients are suspended.
func (e *deliveryPlan) suspendedError(ctx context.Context) error {
	for _, s := range e.guards {
		if err := e.service.db.One(ctx, s, new(db.ID)); !errors.Is(err, db.ErrNoRow) {
			e.hasOthers = true
		}
	}
	if e.hasOthers {
		return fault.New(fault.Unavailable, CodeRecipientSuspended, "A recipient takes no more mail; send it again.")
	}
	return fault.New(fault.Denied, mailbox.CodeMailboxSuspended, "This mailbox takes no mail.")
}

func (i *Service) newPlan(s *spooledMessage, sender string, own bool) *deliveryPlan {
	return &deliveryPlan{service: i, message: s, sender: sender, fromLocal: own}
}

// commit executes the plan and returns where the copies were filed.
func (e *deliveryPlan) commit(ctx context.Context) (filed []folder.MessageRef, err error) {
	jobs := make([]*db.Mutation, 0, len(e.outgoing)+1)
	for _, r := range e.outgoing {
		jobs = append(jobs, r.Mutation())
	}
	jobs = append(jobs, &db.Mutation{Guard: func(b *db.Batch) {
		for _, s := range e.guards {
			b.Queue(s).One(new(db.ID)).OrFail(errSuspended)
		}
	}, Apply: func(b *db.Batch) {
		for _, s := range e.statements {
			b.Queue(s)
		}
	}})
	switch {
	case len(e.copies) > 0:
		e.copies[0].Jobs = jobs
		filed, err = e.service.Folders.DeliverAll(ctx, e.copies)
	case len(e.outgoing) > 0:
		err = e.service.db.Write(ctx, e.outgoing[0].ID, db.Combine(jobs...))
	default:
		e.message.blob.Discard(ctx)
	}
	for _, r := range e.outgoing {
		if r.Finish(err) {
			e.service.Log.Info("a message goes out for one that came in", "message", r.ID, "arrival", e.message.arrivalID)
		}
	}
	if errors.Is(err, errSuspended) {
		e.message.blob.Discard(ctx)
		return nil, e.suspendedError(ctx)
	}
	return filed, err
}

// release releases the resources of a plan that was not committed.
func (e *deliveryPlan) release() {
	for _, r := range e.outgoing {
		r.Cancel()
	}
}

// addLocal plans the delivery to a mailbox by its owner's settings: filing, forwarding, automatic
// reply. filed is false if the message is only forwarded. If it must not be forwarded and the
// mailbox is full, addLocal returns the quota error.
func (e *deliveryPlan) addLocal(ctx context.Context, to recipient) (filed bool, err error) {
	e.guards = append(e.guards, mailbox.NotSuspendedCheck(to.Mailbox))
	one, err := e.service.buildCopy(ctx, e.message, to.Recipient, to.spamResult, e.sender, to.addresses...)
	if err != nil {
		return false, err
	}
	one.Outbound = to.outboundID
	if to.toJunk {
		one.SpecialUse = folder.Junk
	}
	wanted := one.SpecialUse != folder.Junk && !to.isSpam && !e.message.failsPolicy
	forwarded := false
	if wanted && len(to.ForwardTo) > 0 {
		if forwarded, err = e.addMailboxForward(ctx, to.Recipient); err != nil {
			return false, err
		}
	}
	filed = !forwarded || to.KeepCopy
	if filed && !to.ignoreQuota && !storesMail(to.Recipient) { // quota was not checked at RCPT
		if err := e.service.Mailboxes.CheckQuota(ctx, to.Mailbox, e.message.blob.Size); err != nil {
			return false, err
		}
	}
	if wanted && to.HasVacation {
		if err := e.addAutoReply(ctx, to.Recipient); err != nil {
			return false, err
		}
	}
	if filed {
		e.copies = append(e.copies, one)
	}
	return filed, nil
}

// maxForwardChain is the number of mailboxes that may forward a message one after another.
const maxForwardChain = 4

// addMailboxForward plans the forwards of a mailbox and reports whether there are any. A looping or
// denied message is not forwarded. A rate-limited message is not forwarded if the mailbox keeps a
// copy; otherwise the limit is an error.
func (e *deliveryPlan) addMailboxForward(ctx context.Context, to mailbox.Recipient) (bool, error) {
	if e.message.header.Count(loopField) >= maxForwardChain {
		return false, nil
	}
	err := e.addForward(ctx, forward{
		Route:   mailbox.Route{Forwards: to.ForwardTo, Forwarder: to.Mailbox, Account: to.Account, Domain: to.Domain},
		address: to.Address, sender: e.sender, fromLocal: e.fromLocal,
	})
	switch {
	case err == nil:
		return true, nil
	case fault.Is(err, fault.Denied), fault.Is(err, fault.RateLimited) && to.KeepCopy:
		e.service.Log.Info("a message is not forwarded but kept", "mailbox", to.Mailbox, "arrival", e.message.arrivalID, "reason", err)
		return false, nil
	}
	return false, err
}

// addAllLocal plans the deliveries to mailboxes. filed is false for mailboxes without a copy. If
// there are no other recipients and all the mailboxes are over quota, which RCPT couldn't know, it
// returns the quota error. Otherwise it files the accepted copies.
func (e *deliveryPlan) addAllLocal(ctx context.Context, boxes []recipient, others bool) (filed []bool, err error) {
	filed = make([]bool, len(boxes))
	var full []int
	var why error
	for n, to := range boxes {
		if filed[n], err = e.addLocal(ctx, to); isQuotaError(err) {
			full, why = append(full, n), err
		} else if err != nil {
			return nil, err
		}
	}
	if !others && len(full) == len(boxes) {
		return filed, why
	}
	for _, n := range full {
		boxes[n].ignoreQuota = true
		if filed[n], err = e.addLocal(ctx, boxes[n]); err != nil {
			return nil, err
		}
	}
	return filed, nil
}

// storesMail reports whether a mailbox stores its mail.
func storesMail(to mailbox.Recipient) bool { return to.KeepCopy || len(to.ForwardTo) == 0 }

// alignFiled assigns the filed copies to their recipients.
func alignFiled(which []bool, filed []folder.MessageRef) []folder.MessageRef {
	all := make([]folder.MessageRef, len(which))
	for n := range which {
		if which[n] && len(filed) > 0 {
			all[n], filed = filed[0], filed[1:]
		}
	}
	return all
}
