// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/summary"
)

// Transaction is a message on its way in from outside, from MAIL FROM to its
// commit. It serves one goroutine.
type Transaction struct {
	// CheckResults, if set before Message, are what the message is found to be;
	// nil: it is judged.
	CheckResults *summary.CheckResults

	service       *Service
	from          string
	size          int64
	recipients    []recipient
	returnPaths   []returnPath
	feedback      bool // a recipient is for feedback loops
	forwards      []forward
	forwardUsages []forwardUsage      // what of it goes on elsewhere, as far as that is known at RCPT
	filed         []folder.MessageRef // by Message, in the order of rcpts; zero for what only went on
}

// recipient is a recipient that was accepted.
type recipient struct {
	mailbox.Recipient
	addresses []string // the addresses that were given at RCPT
	// acceptsAll takes all mail: it is postmaster's or abuse's (RFC 5321 §4.5.1,
	// RFC 2142).
	acceptsAll bool
	isSpam     bool                // thinks the filter of its account, whatever its domain chose
	toJunk     bool                // it is the postmaster for another, as keep has it
	spamResult *summary.SpamResult // of the filter, for the one who is meant; nil: it has none
}

// resolveReturnPath is a signed return path, or an address to unsubscribe, that was accepted for
// a recipient.
type returnPath struct {
	message      db.ID
	n            int
	unsubscribes bool // the recipient unsubscribes
	forwarded    bool // about an address that the recipient's leads to, which may well be in order itself
}

// Begin begins a message from a sender (nil: the null sender) of size octets
// (0 if unknown).
func (i *Service) Begin(from *address.Address, size int64) *Transaction {
	l := &Transaction{service: i, size: size}
	if from != nil {
		l.from = from.String()
	}
	return l
}

// Recipient accepts a recipient, or says why not: fault.NotFound (mailbox.CodeDomainNotHosted,
// mailbox.CodeNoMailbox), fault.Denied, or what mailbox.Room says. An address
// without a domain is our own postmaster.
func (l *Transaction) Recipient(ctx context.Context, to address.Address) error {
	if secret.IsReturnPath(to.Local) {
		r, err := l.service.resolveReturnPath(ctx, to)
		if err == nil && !slices.Contains(l.returnPaths, r) {
			l.returnPaths = append(l.returnPaths, r)
		}
		return err
	}
	if secret.IsSRS(to.Local) {
		return l.addReturn(ctx, to)
	}
	if l.service.isFeedbackAddress(to) {
		l.feedback = true
		return nil
	}
	route, err := l.service.resolveRoute(ctx, to)
	if err != nil {
		return err
	}
	l.feedback = l.feedback || strings.EqualFold(to.Local, abuseLocalPart)
	open := acceptsAllMail(to)
	if to.Domain == "" {
		to.Domain = l.service.Host
	}
	return l.addRoute(ctx, route, to.String(), open)
}

// resolveReturnPath accepts a report about a message that was sent from here, or a mail by
// which its recipient unsubscribes. That the address can't be guessed is what makes it
// believable.
func (i *Service) resolveReturnPath(ctx context.Context, to address.Address) (returnPath, error) {
	if to.Domain != "bounces."+i.Host {
		_, hosted, err := i.Mailboxes.FindHosted(ctx, to.Domain)
		if err != nil {
			return returnPath{}, err
		}
		if !hosted {
			return returnPath{}, fault.New(fault.NotFound, mailbox.CodeDomainNotHosted, "This domain's mail is not kept here.")
		}
	}
	id, n, ok := i.Key.ParseReturnPath(to.Local)
	leaves := false
	if !ok {
		id, n, leaves = i.Key.ParseUnsubscribePath(to.Local)
	}
	if !ok && !leaves {
		return returnPath{}, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "There is no mailbox with this address.")
	}
	return returnPath{message: db.ID(id), n: n, unsubscribes: leaves}, nil
}

// Message takes the message, whose line ends are all CRLF, and returns once it
// is filed for every recipient. An error of body is returned as it is. The
// returned id stands in the Received field.
func (l *Transaction) Message(ctx context.Context, received message.Received, body io.Reader) (db.ID, error) {
	i := l.service
	id := i.db.NewID()
	received.ID, received.Date = id.String(), i.Now()
	s, junk, err := l.spoolAndVerify(ctx, id, received, body)
	if err != nil {
		return 0, err
	}
	if s.private, err = l.isServiceMail(ctx, s); err == nil {
		err = l.dropForwards(ctx, s)
	}
	if err != nil {
		s.blob.Discard(ctx)
		return 0, err
	}
	e := i.newPlan(s, l.from, false)
	e.hasOthers = len(l.returnPaths) > 0 || l.feedback
	e.smtpUTF8 = strings.HasPrefix(received.With, "UTF8SMTP") // RFC 6531 §4.3
	defer e.release()
	which, err := e.addAllLocal(ctx, l.localDeliveries(junk), len(l.forwards)+len(l.returnPaths) > 0 || l.feedback)
	if err != nil {
		s.blob.Discard(ctx)
		return 0, err
	}
	for _, r := range l.returnPaths {
		if err := i.handleReport(ctx, r, s); err != nil {
			return 0, err
		}
	}
	if l.feedback {
		if err := i.handleFeedback(ctx, s); err != nil {
			return 0, err
		}
	}
	for _, o := range l.forwards {
		if err := e.addForward(ctx, o); err != nil {
			return 0, l.forwardError(err)
		}
	}
	// After an error the bytes are left to the sweep: the commit may have
	// happened all the same.
	filed, err := e.commit(ctx)
	l.filed = alignFiled(which, filed)
	return id, err
}

// forwardError is why a message does not go on. That an account was suspended since RCPT is
// no reason to refuse the message for others.
func (l *Transaction) forwardError(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != outbound.CodeAccountSuspended {
		return err
	}
	if len(l.recipients)+len(l.forwards)+len(l.returnPaths) > 1 || l.feedback {
		return fault.New(fault.Unavailable, CodeRecipientSuspended, "A recipient takes no more mail; send it again.")
	}
	return fault.New(fault.Denied, mailbox.CodeMailboxSuspended, "This mailbox takes no mail.")
}

// localDeliveries says what becomes of a message at each mailbox.
func (l *Transaction) localDeliveries(junk []bool) []localDelivery {
	all := make([]localDelivery, len(l.recipients))
	for n, to := range l.recipients {
		all[n] = localDelivery{Recipient: to.Recipient, addresses: to.addresses, spamResult: to.spamResult, toJunk: to.toJunk || n < len(junk) && junk[n], isSpam: to.isSpam}
	}
	return all
}

// CodeLoop is the code of the fault.Denied for a message that comes back.
const CodeLoop = "mail_loop"

// wasDeliveredTo reports whether the message was delivered to the address before.
func wasDeliveredTo(h message.Header, to string) bool {
	for _, f := range h.All("Delivered-To") {
		a, err := address.Parse(f.Text())
		if err != nil {
			continue
		}
		b, err := address.Parse(to)
		if err == nil && a.Key() == b.Key() {
			return true
		}
	}
	return false
}
