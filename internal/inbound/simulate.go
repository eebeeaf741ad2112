// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/secret"
)

// Simulated is a message as from outside, for the sandbox.
type Simulated struct {
	From     *address.Address // MAIL FROM; nil: the null sender
	To       []address.Address
	Received message.Received // how it is said to have come
	Verdicts digest.Verdicts  // what it is found to be
	Size     int64            // 0 if unknown
	Body     io.Reader        // strict: bare CR and LF are refused
	// May says whose mailboxes are reached; the others are not here.
	May func(mailbox.Recipient) bool
}

// Outcome is what SMTP would have answered.
type Outcome struct {
	Reply      // to the message as a whole
	ID         db.ID
	Recipients []RecipientOutcome // in the order of To
}

// RecipientOutcome is the answer to one recipient. Once the message is accepted
// it tells where the copy is; several recipients may have one together.
type RecipientOutcome struct {
	Reply
	To      string
	Mailbox db.ID // 0 for none, as of a report about what was sent
	Message db.ID
}

// Simulate takes a message in by the way of all mail from outside: it is judged,
// filed and told of as if an SMTP client had brought it. Refusals are told in
// the outcome; an error is our own.
func (i *Inbound) Simulate(ctx context.Context, m Simulated) (Outcome, error) {
	l := i.Begin(m.From, m.Size)
	l.Verdicts = &m.Verdicts
	var out Outcome
	accepted := false
	for _, to := range m.To {
		r := RecipientOutcome{Reply: Reply{250, "2.1.5", "Recipient OK"}, To: to.String()}
		err := i.reachable(ctx, to, m.May)
		if err == nil {
			err = l.Recipient(ctx, to)
		}
		if err != nil {
			var ours bool
			if r.Reply, ours = Refusal(err); ours {
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
	id, err := l.Message(ctx, m.Received, message.RefuseBare(m.Body))
	if err != nil {
		var ours bool
		if out.Reply, ours = Refusal(err); ours {
			return out, err
		}
		return out, nil
	}
	out.Reply, out.ID = Reply{250, "2.0.0", "Accepted as " + id.String()}, id
	for n := range out.Recipients {
		r := &out.Recipients[n]
		r.Mailbox, r.Message = l.filedFor(r.To)
	}
	return out, nil
}

// reachable returns what a recipient whom the sender may not know of is
// answered with. A signed return path is known to whom it was sent.
func (i *Inbound) reachable(ctx context.Context, to address.Address, may func(mailbox.Recipient) bool) error {
	if secret.IsReturnPath(to.Local) || secret.IsSRS(to.Local) {
		return nil
	}
	route, err := i.Mailboxes.Route(ctx, to)
	if err == nil && (slices.ContainsFunc(route.Mailboxes, func(r mailbox.Recipient) bool { return !may(r) }) ||
		len(route.Elsewhere) > 0 && !may(mailbox.Recipient{Account: route.Account, Domain: route.Domain, Address: to.String()})) {
		err = fault.New(fault.NotFound, mailbox.CodeNotHosted, "This domain's mail is not kept here.")
	}
	return err
}

// filedFor returns where the copy for a recipient was filed.
func (l *Letter) filedFor(to string) (box, message db.ID) {
	for n, r := range l.rcpts {
		for _, as := range r.as {
			if as == to && n < len(l.filed) && l.filed[n].Message != 0 {
				return r.Mailbox, l.filed[n].Message
			}
		}
	}
	return 0, 0
}
