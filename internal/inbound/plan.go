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
	"github.com/mailstead/mailstead/internal/summary"
)

// deliveryPlan is all that becomes of a message: copies that are filed, and what goes
// out because of it. It is one commit: all of it happens, or nothing.
type deliveryPlan struct {
	service    *Service
	message    *spooledMessage
	sender     string              // MAIL FROM
	fromLocal  bool                // it was sent from here: nothing of it is in doubt
	requireTLS bool                // its sender demands TLS wherever it goes
	smtpUTF8   bool                // it came with SMTPUTF8
	dsnOptions outbound.DSNOptions // by its sender
	copies     []folder.Delivery
	outgoing   []*outbound.PendingMessage
	statements []db.Statement
	// guards, one for each that it is for, return a row while he is not suspended. more says
	// that it is for others as well, for whom there is none.
	guards    []db.Statement
	hasOthers bool
}

// errSuspended declines what is for somebody who was suspended since it was accepted.
var errSuspended = errors.New("a recipient is suspended")

// CodeRecipientSuspended is the code of the fault.Unavailable for a message one of whose
// recipients was suspended while it came.
const CodeRecipientSuspended = "recipient_suspended"

// suspendedError says why nothing was done. Where all that it is for are suspended, the
// message is refused. Else its sender comes again, and learns at RCPT who is not.
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

// commit does it all, and returns where the copies were filed.
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

// release gives back what was taken for an errand that is not committed.
func (e *deliveryPlan) release() {
	for _, r := range e.outgoing {
		r.Cancel()
	}
}

// localDelivery is what becomes of the message at one mailbox.
type localDelivery struct {
	mailbox.Recipient
	addresses  []string            // the addresses by which it came
	spamResult *summary.SpamResult // nil: there is none
	toJunk     bool                // it is not wanted in the inbox
	isSpam     bool                // nor anywhere else
	outboundID db.ID               // the outbound_message that it is; 0 for none

	ignoreQuota bool // it is filed whether there is room or not
}

// addLocal does for a mailbox what its owner wants: the message is filed, goes on
// to other addresses, is answered. filed is false if it only goes on; if it must not
// and there is no room for it, that is the error.
func (e *deliveryPlan) addLocal(ctx context.Context, to localDelivery) (filed bool, err error) {
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
	if filed && !to.ignoreQuota && !keeps(to.Recipient) { // it was not asked for room
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

// maxForwardChain is how many mailboxes may forward a message one after the other.
const maxForwardChain = 4

// addMailboxForward has the message go on to where the owner of a mailbox wants it, and
// reports whether it does. What was here before stays, and so does what must
// not be sent now, if it is kept here; else that is the error.
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

// addAllLocal delivers the message to mailboxes. Those whose place in filed is false
// have no copy. If it is for nobody else, and there is no room for it in any of them,
// which nobody knew at RCPT, that is the error; else what is accepted is filed.
func (e *deliveryPlan) addAllLocal(ctx context.Context, boxes []localDelivery, others bool) (filed []bool, err error) {
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

// keeps reports whether mail to a mailbox is filed there.
func keeps(to mailbox.Recipient) bool { return to.KeepCopy || len(to.ForwardTo) == 0 }

// alignFiled puts where copies were filed into the places of their recipients.
func alignFiled(which []bool, filed []folder.MessageRef) []folder.MessageRef {
	all := make([]folder.MessageRef, len(which))
	for n := range which {
		if which[n] && len(filed) > 0 {
			all[n], filed = filed[0], filed[1:]
		}
	}
	return all
}
