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
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/secret"
)

// Letter is a message on its way in from outside, from MAIL FROM to its
// commit. It serves one goroutine.
type Letter struct {
	// Verdicts, if set before Message, are what the message is found to be;
	// nil: it is judged.
	Verdicts *digest.Verdicts

	in      *Inbound
	from    string
	size    int64
	rcpts   []rcpt
	reports []report
	loop    bool // a recipient is for feedback loops
	onward  []onward
	going   []going        // what of it goes on elsewhere, as far as that is known at RCPT
	filed   []folder.Filed // by Message, in the order of rcpts; zero for what only went on
}

// rcpt is a recipient that was accepted.
type rcpt struct {
	mailbox.Recipient
	as []string // the addresses that were given at RCPT
	// open takes all mail: it is postmaster's or abuse's (RFC 5321 §4.5.1,
	// RFC 2142).
	open bool
	spam bool            // thinks the filter of its account, whatever its domain chose
	junk bool            // it is the postmaster for another, as keep has it
	o    *digest.Opinion // of the filter, for the one who is meant; nil: it has none
}

// report is a signed return path, or an address to unsubscribe, that was accepted for
// a recipient.
type report struct {
	message db.ID
	n       int
	leaves  bool // the recipient unsubscribes
	onward  bool // about an address that the recipient's leads to, which may well be in order itself
}

// Begin begins a message from a sender (nil: the null sender) of size octets
// (0 if unknown).
func (i *Inbound) Begin(from *address.Address, size int64) *Letter {
	l := &Letter{in: i, size: size}
	if from != nil {
		l.from = from.String()
	}
	return l
}

// Recipient accepts a recipient, or says why not: fault.NotFound (mailbox.CodeNotHosted,
// mailbox.CodeNoMailbox), fault.Denied, or what mailbox.Room says. An address
// without a domain is our own postmaster.
func (l *Letter) Recipient(ctx context.Context, to address.Address) error {
	if secret.IsReturnPath(to.Local) {
		r, err := l.in.returnPath(ctx, to)
		if err == nil && !slices.Contains(l.reports, r) {
			l.reports = append(l.reports, r)
		}
		return err
	}
	if secret.IsSRS(to.Local) {
		return l.goesBack(ctx, to)
	}
	if l.in.feedsBack(to) {
		l.loop = true
		return nil
	}
	route, err := l.in.routeOf(ctx, to)
	if err != nil {
		return err
	}
	l.loop = l.loop || strings.EqualFold(to.Local, abuse)
	open := isOpen(to)
	if to.Domain == "" {
		to.Domain = l.in.Host
	}
	return l.reach(ctx, route, to.String(), open)
}

// returnPath accepts a report about a message that was sent from here, or a mail by
// which its recipient unsubscribes. That the address can't be guessed is what makes it
// believable.
func (i *Inbound) returnPath(ctx context.Context, to address.Address) (report, error) {
	if to.Domain != "bounces."+i.Host {
		_, hosted, err := i.Mailboxes.Hosted(ctx, to.Domain)
		if err != nil {
			return report{}, err
		}
		if !hosted {
			return report{}, fault.New(fault.NotFound, mailbox.CodeNotHosted, "This domain's mail is not kept here.")
		}
	}
	id, n, ok := i.Key.ParseReturnPath(to.Local)
	leaves := false
	if !ok {
		id, n, leaves = i.Key.ParseUnsubscribePath(to.Local)
	}
	if !ok && !leaves {
		return report{}, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "There is no mailbox with this address.")
	}
	return report{message: db.ID(id), n: n, leaves: leaves}, nil
}

// Message takes the message, whose line ends are all CRLF, and returns once it
// is filed for every recipient. An error of body is returned as it is. The
// returned id stands in the Received field.
func (l *Letter) Message(ctx context.Context, received message.Received, body io.Reader) (db.ID, error) {
	i := l.in
	id := i.db.NewID()
	received.ID, received.Date = id.String(), i.Now()
	s, junk, err := l.spool(ctx, id, received, body)
	if err != nil {
		return 0, err
	}
	if s.private, err = l.wrote(ctx, s); err == nil {
		err = l.halt(ctx, s)
	}
	if err != nil {
		s.blob.Discard(ctx)
		return 0, err
	}
	e := i.errand(s, l.from, false)
	e.more = len(l.reports) > 0 || l.loop
	e.utf8 = strings.HasPrefix(received.With, "UTF8SMTP") // RFC 6531 §4.3
	defer e.drop()
	which, err := e.deliverAll(ctx, l.boxes(junk), len(l.onward)+len(l.reports) > 0 || l.loop)
	if err != nil {
		s.blob.Discard(ctx)
		return 0, err
	}
	for _, r := range l.reports {
		if err := i.reported(ctx, r, s); err != nil {
			return 0, err
		}
	}
	if l.loop {
		if err := i.fedBack(ctx, s); err != nil {
			return 0, err
		}
	}
	for _, o := range l.onward {
		if err := e.passOn(ctx, o); err != nil {
			return 0, l.besides(err)
		}
	}
	// After an error the bytes are left to the sweep: the commit may have
	// happened all the same.
	filed, err := e.commit(ctx)
	l.filed = placed(which, filed)
	return id, err
}

// besides is why a message does not go on. That an account was suspended since RCPT is
// no reason to refuse the message for others.
func (l *Letter) besides(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != outbound.CodeSuspended {
		return err
	}
	if len(l.rcpts)+len(l.onward)+len(l.reports) > 1 || l.loop {
		return fault.New(fault.Unavailable, CodeSomeSuspended, "A recipient takes no more mail; send it again.")
	}
	return fault.New(fault.Denied, mailbox.CodeSuspended, "This mailbox takes no mail.")
}

// boxes says what becomes of a message at each mailbox.
func (l *Letter) boxes(junk []bool) []box {
	all := make([]box, len(l.rcpts))
	for n, to := range l.rcpts {
		all[n] = box{Recipient: to.Recipient, as: to.as, o: to.o, junk: to.junk || n < len(junk) && junk[n], spam: to.spam}
	}
	return all
}

// CodeLoop is the code of the fault.Denied for a message that comes back.
const CodeLoop = "mail_loop"

// looped reports whether the message was delivered to the address before.
func looped(h message.Header, to string) bool {
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
