// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/summary"
)

// SimulatedMessage is a message that the sandbox receives as if from outside.
type SimulatedMessage struct {
	From         *address.Address // MAIL FROM; nil: the null sender
	To           []address.Address
	Received     message.ReceivedField // simulated connection
	CheckResults summary.CheckResults  // simulated check results
	Size         int64                 // 0 if unknown
	Body         io.Reader             // bare CR and LF are rejected
	// Allow reports whether a mailbox is reachable; other mailboxes appear as not hosted.
	Allow func(mailbox.Recipient) bool
}

// SimulationResult is the replies that an SMTP client would have got.
type SimulationResult struct {
	Reply      // to the whole message
	ID         db.ID
	Recipients []RecipientResult // in the order of To
}

// RecipientResult is the reply to one recipient. If the message is accepted, it identifies the
// recipient's copy. Several recipients may share a copy.
type RecipientResult struct {
	Reply
	To      string
	Mailbox db.ID // 0 for none, as for a report about sent mail
	Message db.ID
}

// Simulate receives a message as if an SMTP client had sent it, with the same checks, filing and
// events. Rejections are part of the result; an error is an internal error.
func (i *Service) Simulate(ctx context.Context, m SimulatedMessage) (SimulationResult, error) {
	l := i.Begin(m.From, m.Size)
	l.CheckResults = &m.CheckResults
	var out SimulationResult
	accepted := false
	for _, to := range m.To {
		r := RecipientResult{Reply: Reply{250, "2.1.5", "Recipient OK"}, To: to.String()}
		err := i.checkReachable(ctx, to, m.Allow)
		if err == nil {
			err = l.AddRecipient(ctx, to)
		}
		if err != nil {
			var ours bool
			if r.Reply, ours = ReplyFor(err); ours {
				return out, err
			}
		}
		accepted = accepted || err == nil
		out.Recipients = append(out.Recipients, r)
	}
	if !accepted {
		out.Reply = Reply{554, "5.5.1", "No recipient was accepted"}
		return out, nil
	}
	id, err := l.ReceiveMessage(ctx, m.Received, message.RejectBareLineEnds(m.Body))
	if err != nil {
		var ours bool
		if out.Reply, ours = ReplyFor(err); ours {
			return out, err
		}
		return out, nil
	}
	out.Reply, out.ID = Reply{250, "2.0.0", "Accepted as " + id.String()}, id
	for n := range out.Recipients {
		r := &out.Recipients[n]
		r.Mailbox, r.Message = l.filedCopy(r.To)
	}
	return out, nil
}

// checkReachable returns the error for a recipient that the sender may not know of. Signed return
// paths are allowed, since their holders received them in a message.
func (i *Service) checkReachable(ctx context.Context, to address.Address, may func(mailbox.Recipient) bool) error {
	if secret.IsReturnOrUnsubscribePath(to.Local) || secret.IsSRS(to.Local) {
		return nil
	}
	route, err := i.Mailboxes.Route(ctx, to)
	if err == nil && (slices.ContainsFunc(route.Mailboxes, func(r mailbox.Recipient) bool { return !may(r) }) ||
		len(route.Forwards) > 0 && !may(mailbox.Recipient{Account: route.Account, Domain: route.Domain, Address: to.String()})) {
		err = fault.New(fault.NotFound, mailbox.CodeDomainNotHosted, "This domain's mail is not kept here.")
	}
	return err
}

// filedCopy returns the mailbox and message of a recipient's copy.
func (l *Transaction) filedCopy(to string) (box, message db.ID) {
	for n, r := range l.recipients {
		for _, as := range r.addresses {
			if as == to && n < len(l.filed) && l.filed[n].Message != 0 {
				return r.Mailbox, l.filed[n].Message
			}
		}
	}
	return 0, 0
}
