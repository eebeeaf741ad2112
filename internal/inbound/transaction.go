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

// Transaction is the receipt of one message from outside, from MAIL FROM to its commit. It is not
// safe for concurrent use.
type Transaction struct {
	// CheckResults, if set before Message, replace verification; nil: the message is verified.
	CheckResults *summary.CheckResults

	service       *Service
	from          string
	size          int64
	recipients    []recipient
	returnPaths   []returnPath
	feedback      bool // whether a recipient is a feedback address
	forwards      []forward
	forwardUsages []forwardUsage      // forwards that were known at RCPT
	filed         []folder.MessageRef // set by Message, in the order of recipients; zero for mail that was only forwarded
}

// recipient is an accepted recipient with a mailbox, and how the message is delivered there.
type recipient struct {
	mailbox.Recipient
	addresses []string // addresses given at RCPT
	// acceptsAll reports whether it must accept all mail, as for postmaster or abuse (RFC 5321
	// §4.5.1, RFC 2142).
	acceptsAll  bool
	isSpam      bool                // according to the spam filter of its account; spam is not forwarded or answered
	toJunk      bool                // whether it goes to Junk: by its author's policy, or see keep
	spamResult  *summary.SpamResult // of the original recipient; nil: none
	outboundID  db.ID               // id of the outbound_message; 0 for none
	ignoreQuota bool                // whether to file it even if the mailbox is full
}

// returnPath is a signed return path or unsubscribe address that was accepted as a recipient.
type returnPath struct {
	message      db.ID
	n            int
	unsubscribes bool // whether the recipient unsubscribes
	forwarded    bool // whether the report is about a forward, so that the recipient's own address may be fine
}

// Begin starts a transaction from a sender (nil: the null sender) with a message of size octets (0
// if unknown).
func (i *Service) Begin(from *address.Address, size int64) *Transaction {
	l := &Transaction{service: i, size: size}
	if from != nil {
		l.from = from.String()
	}
	return l
}

// AddRecipient accepts a recipient. Its errors are fault.NotFound (mailbox.CodeDomainNotHosted,
// mailbox.CodeNoMailbox), fault.Denied, or those of mailbox.CheckQuota. An address without a domain
// is this service's postmaster.
func (l *Transaction) AddRecipient(ctx context.Context, to address.Address) error {
	if secret.IsReturnOrUnsubscribePath(to.Local) {
		r, err := l.service.resolveReturnPath(ctx, to)
		if err == nil && !slices.Contains(l.returnPaths, r) {
			l.returnPaths = append(l.returnPaths, r)
		}
		return err
	}
	if secret.IsSRS(to.Local) {
		return l.addSRSReturn(ctx, to)
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

// resolveReturnPath accepts a report about a sent message, or a mail by which its recipient
// unsubscribes. It trusts the address because the address can't be guessed.
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

// ReceiveMessage receives the message, whose line ends must all be CRLF, and returns when it is
// filed for every recipient. It returns an error of body unchanged. The returned id is in the
// Received field.
func (l *Transaction) ReceiveMessage(ctx context.Context, received message.ReceivedField, body io.Reader) (db.ID, error) {
	i := l.service
	id := i.db.NewID()
	received.ID, received.Date = id.String(), i.Now()
	s, err := l.spoolAndVerify(ctx, id, received, body)
	if err != nil {
		return 0, err
	}
	if s.private, err = l.isReturnedServiceMail(ctx, s); err == nil {
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
	which, err := e.addAllLocal(ctx, l.recipients, len(l.forwards)+len(l.returnPaths) > 0 || l.feedback)
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
	// After an error the sweep deletes the bytes: the commit may have succeeded.
	filed, err := e.commit(ctx)
	l.filed = alignFiled(which, filed)
	return id, err
}

// forwardError returns why a message is not forwarded. If an account was suspended since RCPT, the
// message isn't rejected for other recipients.
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

// CodeLoop is the code of the fault.Denied for a mail loop.
const CodeLoop = "mail_loop"

// wasDeliveredTo reports whether the message was delivered to the address before.
func wasDeliveredTo(h message.Header, to string) bool {
	for _, f := range h.All("Delivered-To") {
		a, err := address.Parse(f.Unfolded())
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
