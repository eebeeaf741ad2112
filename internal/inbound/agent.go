// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/spam"
)

// Sessions for one local domain run at the same time, so that the write batcher can combine their
// commits.
const (
	transactionsPerSession = 4
	maxSessions            = 32
)

// IsServiceDomain reports whether a domain is one of the service's own names. Such a domain accepts
// mail only for its postmaster and for return paths.
func (i *Service) IsServiceDomain(domain string) bool {
	return domain == i.Host || domain == "bounces."+i.Host
}

// IsLocal reports whether mail to a domain is delivered here: while the MX records of a hosted
// domain point to this service, so that a domain that is moving in loses no mail. Mail to the
// service's own names (its postmaster, for example) is, unless their MX records point elsewhere.
func (i *Service) IsLocal(ctx context.Context, domain string) (bool, error) {
	h, ok, err := i.Domains.FindHosted(ctx, domain)
	if err != nil || ok {
		return h.Receives, err
	}
	return i.LoopsBack != nil && i.IsServiceDomain(domain) && i.LoopsBack(ctx, domain), nil
}

// Concurrency implements queue.Agent.
func (i *Service) Concurrency(waiting int) int {
	return min(1+waiting/transactionsPerSession, maxSessions)
}

// Deliver files transactions into local mailboxes. It implements queue.Agent for domains whose MX
// is this service.
func (i *Service) Deliver(ctx context.Context, r *queue.Session) {
	for c := r.Next(); c != nil; c = r.Next() {
		r.Finish(c, i.deliverTransaction(ctx, c)...)
	}
}

var (
	addFilingQuery    = db.SQL(`INSERT INTO filed_delivery (message, n, at) VALUES ($1, $2, $3)`)
	filingQuery       = db.SQL(`SELECT n FROM filed_delivery WHERE message = $1 AND n = $2`)
	pruneFilingsQuery = db.SQL(`DELETE FROM filed_delivery WHERE (message, n) IN (SELECT message, n FROM filed_delivery AS f WHERE at < $1
		AND COALESCE((SELECT state FROM delivery AS d WHERE d.message = f.message AND d.n = f.n), '') NOT IN ('scheduled', 'queued', 'deferred', 'failed')
		ORDER BY at LIMIT $2)`)
)

// FilingStatement notes that a delivery was filed. It fails with a conflict if that was noted
// before.
func (i *Service) FilingStatement(message db.ID, n int) db.Statement {
	return addFilingQuery.With(message, n, db.Micros(i.Now()))
}

// deliverTransaction delivers one transaction and returns one outcome per recipient.
func (i *Service) deliverTransaction(ctx context.Context, c *queue.Transaction) []queue.Outcome {
	outcomes := make([]queue.Outcome, len(c.Deliveries))
	ends, forwarded := make([]deliverFunc, len(c.Deliveries)), make([]bool, len(c.Deliveries))
	open := 0
	for n, d := range c.Deliveries {
		var err error
		if ends[n], forwarded[n], err = i.resolveRecipient(ctx, d.Recipient, c.Mail.Size); err != nil {
			outcomes[n] = i.outcome(ctx, d, err)
			continue
		}
		open++
	}
	if open == 0 {
		return outcomes
	}
	s, err := i.spoolQueued(ctx, c.Mail)
	for n, d := range c.Deliveries {
		if outcomes[n].State != "" {
			continue
		}
		why := err
		if why == nil {
			why = ends[n](ctx, s, c, d)
		}
		outcomes[n] = i.outcome(ctx, d, why)
		outcomes[n].Forwarded = forwarded[n]
	}
	return outcomes
}

// deliverFunc processes a message for one recipient.
type deliverFunc func(ctx context.Context, s *spooledMessage, c *queue.Transaction, d *queue.Delivery) error

// resolveRecipient returns how to process mail to a recipient: deliver it to mailboxes, or handle
// it as a report or complaint about sent mail. forwarded reports whether the recipient has no
// mailbox and only forwards.
func (i *Service) resolveRecipient(ctx context.Context, to string, size int64) (do deliverFunc, forwarded bool, err error) {
	a, err := address.Parse(to)
	if err != nil {
		return nil, false, err
	}
	if secret.IsReturnOrUnsubscribePath(a.Local) {
		r, err := i.resolveReturnPath(ctx, a)
		return func(ctx context.Context, s *spooledMessage, _ *queue.Transaction, _ *queue.Delivery) error {
			return i.handleReport(ctx, r, s)
		}, false, err
	}
	if secret.IsSRS(a.Local) {
		back, err := i.returnRoute(ctx, a)
		return func(ctx context.Context, s *spooledMessage, c *queue.Transaction, d *queue.Delivery) error {
			if c.From != "" {
				return notReportError()
			}
			return i.deliverRecipient(ctx, s, c, d, back)
		}, false, err
	}
	if i.isFeedbackAddress(a) {
		return func(ctx context.Context, s *spooledMessage, _ *queue.Transaction, _ *queue.Delivery) error {
			return i.handleFeedback(ctx, s)
		}, false, nil
	}
	route, err := i.resolveRoute(ctx, a)
	if err == nil {
		route, err = i.withinQuota(ctx, route, size)
	}
	forwarded = len(route.Mailboxes) == 0 && len(route.Forwards) > 0
	return func(ctx context.Context, s *spooledMessage, c *queue.Transaction, d *queue.Delivery) error {
		if strings.EqualFold(a.Local, abuseLocalPart) {
			if err := i.handleFeedback(ctx, s); err != nil {
				return err
			}
		}
		return i.deliverRecipient(ctx, s, c, d, route)
	}, forwarded, err
}

// spoolQueued spools the message as the SMTP agent would send it, with its signatures.
func (i *Service) spoolQueued(ctx context.Context, m *queue.OutboundMessage) (*spooledMessage, error) {
	body, err := m.Body(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // only read
	head := message.ReceivedField{By: i.Host, ID: m.ID.String(), Date: i.Now()}.Append(nil)
	s, err := i.spool(ctx, m.ID, append(head, m.Head...), body, nil)
	if err != nil {
		return nil, err
	}
	if m.ThreadID != "" {
		s.threads[m.Account] = m.ThreadID // a sender who is also a recipient finds the message in its original thread
	}
	s.private = m.Private
	return s, nil
}

// deliverRecipient delivers to one recipient in one commit. A row in the filing table makes sure
// that this happens once. If the row exists, only the delivery's outcome was lost.
func (i *Service) deliverRecipient(ctx context.Context, s *spooledMessage, c *queue.Transaction, d *queue.Delivery, route mailbox.Route) error {
	e := i.newPlan(s, c.From, true)
	e.requireTLS, e.smtpUTF8 = c.Mail.RequireTLS, c.Mail.UTF8
	e.dsnOptions = outbound.DSNOptions{Notify: cmp.Or(c.Mail.Notify, d.Notify), OriginalRecipient: d.Original, Ret: c.Mail.Ret, EnvID: c.Mail.EnvID}
	defer e.release()
	l, err := i.filterLocal(ctx, s, c, d, route)
	if err != nil {
		return err
	}
	if _, err := e.addAllLocal(ctx, l.recipients, len(route.Forwards) > 0); err != nil {
		return err
	}
	for _, o := range l.forwards {
		if why := s.checkForward(o); why != nil && len(l.recipients) > 0 { // as in Transaction.keep
			i.Log.Info("a message is not forwarded but kept", "alias", o.Forwarder, "message", d.Message, "n", d.N, "reason", why)
		} else if err := e.addForward(ctx, o); err != nil {
			return err
		}
	}
	e.statements = append(e.statements, i.FilingStatement(d.Message, d.N))
	_, err = e.commit(ctx)
	return err
}

// filterLocal runs the spam filter on mail between accounts, as on mail from outside. An error
// bounces or defers the delivery. Mail within an account and mail from the service itself are not
// filtered.
func (i *Service) filterLocal(ctx context.Context, s *spooledMessage, c *queue.Transaction, d *queue.Delivery, route mailbox.Route) (*Transaction, error) {
	l := &Transaction{service: i, from: c.From}
	to, err := address.Parse(d.Recipient)
	if err != nil {
		return nil, err
	}
	other := len(route.Forwards) > 0 && route.Account != c.Mail.Account
	for _, box := range route.Mailboxes {
		l.recipients = append(l.recipients, recipient{Recipient: box, addresses: []string{d.Recipient}, acceptsAll: acceptsAllMail(to), outboundID: d.Message})
		other = other || box.Account != c.Mail.Account
	}
	if len(route.Forwards) > 0 {
		l.forwards = []forward{{Route: route, address: d.Recipient, sender: c.From, fromLocal: true, isReturn: secret.IsSRS(to.Local)}}
	}
	if !other || s.private && c.Mail.Account == account.OperatorAccount {
		return l, nil
	}
	verified := *s
	if !c.Mail.Forwarded { // MAIL FROM was checked when the message was accepted
		verified.checkResults.SPF = string(mailauth.Pass)
	}
	return l, l.filterSpam(ctx, &verified, message.ReceivedField{ID: c.Mail.ID.String()}, "")
}

// isFiled reports whether a delivery was filed here. If it has no outcome yet, the outcome was
// lost.
func (i *Service) isFiled(ctx context.Context, message db.ID, n int) (bool, error) {
	err := i.db.One(ctx, filingQuery.With(message, n), new(int))
	if errors.Is(err, db.ErrNoRow) {
		return false, nil
	}
	return err == nil, err
}

// LocalRemote is the remote host of local deliveries.
const LocalRemote = "local"

// outcome translates the result of a delivery into an SMTP reply. A message that was filed before
// counts as delivered, even if the mailbox is full or deleted by now. If that can't be determined,
// the delivery is deferred.
func (i *Service) outcome(ctx context.Context, d *queue.Delivery, err error) queue.Outcome {
	o := queue.Outcome{State: queue.Delivered, Code: 250, Enhanced: "2.0.0", Reply: "Delivered", Stage: "local", Remote: LocalRemote}
	if err == nil {
		return o
	}
	switch done, unknown := i.isFiled(ctx, d.Message, d.N); {
	case unknown != nil:
		err = unknown
	case done:
		return o
	}
	set := func(state queue.State, code int, enhanced, reply string) queue.Outcome {
		o.State, o.Code, o.Enhanced, o.Reply = state, code, enhanced, reply
		return o
	}
	var f *fault.Error
	errors.As(err, &f)
	switch kind := fault.KindOf(err); {
	case kind == fault.NotFound && f.Code == mailbox.CodeDomainNotHosted && !i.IsServiceDomain(d.Destination):
		// The domain moved away a moment ago: the next attempt uses its MX.
		return set(queue.Deferred, 451, "4.3.0", f.Message)
	case kind == fault.NotFound:
		return set(queue.Bounced, 550, "5.1.1", f.Message)
	case kind == fault.Denied:
		// Only 5.2.1 speaks against the address and suppresses it.
		r, _ := ReplyFor(err)
		return set(queue.Bounced, r.Code, r.Enhanced, f.Message)
	case kind == fault.Unavailable && (f.Code == mailbox.CodeNoPostmaster || f.Code == CodeRecipientSuspended):
		return set(queue.Deferred, 450, "4.2.1", f.Message)
	case kind == fault.RateLimited:
		return set(queue.Deferred, 450, "4.7.1", f.Message)
	case kind == fault.Unavailable && (f.Code == CodeSpamDeferred || f.Code == spam.CodeUnavailable):
		return set(queue.Deferred, 451, "4.7.1", f.Message)
	case kind == fault.OverQuota && f.Code == mailbox.CodeMailboxFullLong:
		return set(queue.Bounced, 552, "5.2.2", f.Message)
	case kind == fault.OverQuota:
		return set(queue.Deferred, 452, "4.2.2", f.Message)
	case kind == fault.TooLarge:
		return set(queue.Bounced, 552, "5.3.4", f.Message)
	case kind == fault.Invalid:
		return set(queue.Bounced, 550, "5.1.3", f.Message)
	}
	i.Log.Error("a message could not be filed", "message", d.Message, "n", d.N, "error", err)
	return set(queue.Deferred, 451, "4.3.0", "The message could not be filed")
}

// FilingRetention is how long rows of the filing table are kept. A delivery whose outcome was lost
// is retried within minutes.
const FilingRetention = 7 * 24 * time.Hour

// PruneFilings deletes, in one commit, at most limit filing rows from before the given time. It
// returns the number of deleted rows; 0 means that there are no more. It keeps rows of deliveries
// without a final outcome, because an operator can hold a delivery for any time.
func (i *Service) PruneFilings(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := i.db.Exec(ctx, pruneFilingsQuery.With(db.Micros(before), limit))
	return int(deleted), err
}
