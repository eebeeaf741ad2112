// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/summary"
)

const (
	// CodeNotForwarded is the code of the fault.Denied for mail that is not to be
	// forwarded: it is spam, or its author's domain disowns it.
	CodeNotForwarded = "not_forwarded"

	// maxHops is how often a message may have been delivered somewhere before it
	// is forwarded once more.
	maxHops = 10
	// loopField names, in what is forwarded, the address that it was for.
	loopField = "X-Loop"
	// postmasterLocalPart gets the reports that no sender is to be bothered with.
	postmasterLocalPart = "postmaster"
)

// forward is a message that goes on to addresses elsewhere.
type forward struct {
	mailbox.Route
	address    string              // the address that it was for
	sender     string              // its MAIL FROM
	fromLocal  bool                // it was sent from here: nothing of it is in doubt
	isSpam     bool                // thinks the filter of its account
	spamResult *summary.SpamResult // of that; nil: it has none
	isReturn   bool                // it is a report on its way back to who is told of it
}

// dropForwards takes out of a letter what must not go on. Who has no mailbox here would
// get nothing then, and nobody would know: the postmaster gets it, in Junk. Without
// one it is refused, for all, and so is what nobody else is to get: its sender is
// told by his own host.
func (l *Transaction) dropForwards(ctx context.Context, s *spooledMessage) error {
	var halted []forward
	var why error
	l.forwards = slices.DeleteFunc(l.forwards, func(o forward) bool {
		err := s.checkForward(o)
		if err != nil {
			halted, why = append(halted, o), err
		}
		return err != nil
	})
	others := len(l.forwards)+len(l.returnPaths) > 0 || l.feedback
	for _, to := range l.recipients {
		// Whoever wrote a Delivered-To, beside others the copy is filed: twice
		// rather than never.
		if len(to.ForwardTo) > 0 || !wasDeliveredTo(s.header, to.addresses[0]) {
			others = true
		} else if why == nil {
			why = loopError()
		}
	}
	if !others {
		return why
	}
	for _, o := range halted {
		kept, err := l.keep(ctx, s, o)
		if err != nil {
			return err
		}
		if !kept {
			return s.checkForward(o)
		}
		l.service.Log.Info("a message is not forwarded but kept", "alias", o.Forwarder, "arrival", s.arrivalID, "reason", s.checkForward(o))
	}
	return nil
}

// keep makes sure that a message which does not go on is in a mailbox: one that
// its alias leads to as well, or else the postmaster's. It reports whether there is
// one, of the same account.
func (l *Transaction) keep(ctx context.Context, s *spooledMessage, o forward) (bool, error) {
	if slices.ContainsFunc(l.recipients, func(r recipient) bool { return slices.Contains(r.addresses, o.address) }) {
		return true, nil
	}
	at, err := address.Parse(o.address)
	if err != nil {
		return false, err
	}
	route, err := l.service.Mailboxes.Route(ctx, address.Address{Local: postmasterLocalPart, Domain: at.Domain})
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		return false, err
	}
	for _, to := range route.Mailboxes {
		if to.Account != o.Account {
			continue
		}
		if n := slices.IndexFunc(l.recipients, func(r recipient) bool { return r.Mailbox == to.Mailbox }); n >= 0 {
			l.recipients[n].addresses = append(l.recipients[n].addresses, o.address)
			return true, nil
		}
		switch err := l.service.Mailboxes.CheckQuota(ctx, to.Mailbox, s.blob.Size); {
		case err == nil:
			l.recipients = append(l.recipients, recipient{Recipient: to, addresses: []string{o.address}, toJunk: true, spamResult: o.spamResult})
			return true, nil
		case !isQuotaError(err):
			return false, err
		}
	}
	return false, nil
}

// checkForward says why a message must not go on: as CodeNotForwarded, or, if it was here
// before or at too many places, as CodeLoop.
func (s *spooledMessage) checkForward(o forward) error {
	if o.isSpam || s.failsPolicy || s.checkResults.Spam == summary.Spam {
		return fault.New(fault.Denied, CodeNotForwarded, "The message is not forwarded: it can't be shown to come from its author, or it looks like spam.")
	}
	loops := slices.ContainsFunc(s.header.All(loopField), func(f message.Field) bool { return address.KeyOf(f.Text()) == address.KeyOf(o.address) })
	if !o.isReturn && (loops || wasDeliveredTo(s.header, o.address)) || s.header.Count("Delivered-To") >= maxHops {
		return loopError()
	}
	return nil
}

func loopError() error {
	return fault.New(fault.Denied, CodeLoop, "The message was delivered to this address before.")
}

// addForward makes the message ready for the addresses elsewhere, unless it must not
// go there.
func (e *deliveryPlan) addForward(ctx context.Context, o forward) error {
	i, s := e.service, e.message
	if err := s.checkForward(o); err != nil {
		return err
	}
	top := message.AppendDeliveredTo(nil, o.address)
	top = append(top, loopField+": "+o.address+"\r\n"...)
	top = append(top, s.traceFields...)
	// Old programs write such bytes and ask for nothing: that goes on as it came,
	// as most hosts take it.
	utf8, eightBit := s.index.RequiredExtensions()
	sender, keep := i.forwardSender(s, o)
	ready, err := i.Outbox.PrepareForward(ctx, outbound.ForwardRequest{
		Account: o.Account, Domain: o.Domain, Forwarder: o.Forwarder, RoleMail: o.RoleMail, Sender: sender, To: o.Forwards,
		Blob: i.Blobs.Prepend(s.blob, top), Header: s.header, EightBit: eightBit, Private: s.private,
		UTF8: utf8 && e.smtpUTF8 || message.Header(top).EightBit(), RequireTLS: e.requireTLS, DSNOptions: e.dsnOptions,
	})
	if fault.Is(err, fault.RateLimited) {
		return limitError(err)
	}
	if err == nil {
		e.outgoing = append(e.outgoing, ready)
		e.statements = append(e.statements, keep...)
		if !o.isReturn && o.Domain != account.OperatorAccount {
			e.guards = append(e.guards, domain.ActiveCheck(o.Domain))
		}
	}
	return err
}

// forwardSender is the MAIL FROM of a message that goes on: one that leads back to its
// sender by way of us, since no other domain's SPF record lets us use its name. Where
// the sender's address has no place in that, keep makes a row that has it.
// Who was not shown to have sent it is not told what becomes of it; the
// postmaster is. It is the null sender for mail to a role address, whose reports would
// tell strangers who owns an account, and for what the service wrote, whose return path
// is nobody else's business.
func (i *Service) forwardSender(s *spooledMessage, o forward) (path string, keep []db.Statement) {
	if o.sender == "" || o.RoleMail || s.private {
		return "", nil
	}
	if o.fromLocal {
		return o.sender, nil
	}
	at, err := address.Parse(o.address)
	if err != nil {
		return "", nil
	}
	from, err := address.Parse(o.sender)
	if err != nil || !s.passedSPF() {
		return postmasterLocalPart + "@" + at.Domain, nil
	}
	local, ok := i.Key.SRS(int64(o.Account), at.Domain, from.Local, from.Domain, i.Now())
	if !ok {
		id := i.db.NewID()
		local = i.Key.StoredSRS(int64(o.Account), at.Domain, int64(id))
		keep = []db.Statement{keepPath.With(id, o.Account, from.String(), db.Micros(i.Now()))}
	}
	return local + "@" + at.Domain, keep
}

var (
	keepPath               = db.SQL(`INSERT INTO forward_path (id, account, sender, at) VALUES ($1, $2, $3, $4)`)
	forwardPathQuery       = db.SQL(`SELECT sender FROM forward_path WHERE id = $1 AND account = $2`)
	pruneForwardPathsQuery = db.SQL(`DELETE FROM forward_path WHERE id IN (SELECT id FROM forward_path WHERE at < $1 ORDER BY at LIMIT $2)`)
)

// ForwardPathRetention is how long it is kept who sent a forwarded message. A message may wait for
// five days, and the report about it be held.
const ForwardPathRetention = secret.SRSMaxAge + 30*24*time.Hour

// PruneForwardPaths forgets, in one commit, at most limit senders of messages that were
// forwarded before a time, and returns how many; 0: there are no more.
func (i *Service) PruneForwardPaths(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := i.db.Exec(ctx, pruneForwardPathsQuery.With(db.Micros(before), limit))
	return int(deleted), err
}

// passedSPF reports whether the host that brought a message may send for the domain of
// its MAIL FROM (SPF): only then something is sent back there. A DKIM signature does
// not show that, nor does DMARC by it: whoever has a signed message can bring it to
// many, in its author's name, who would get all their answers.
func (s *spooledMessage) passedSPF() bool { return s.checkResults.SPF == string(mailauth.Pass) }

func isSRS(sender string) bool {
	a, err := address.Parse(sender)
	return err == nil && secret.IsSRS(a.Local)
}

// returnRoute is the way back to the sender of a message that was forwarded by a
// domain here, in the name of the account that did: another may hold it by now, who
// sees nothing of it.
func (i *Service) returnRoute(ctx context.Context, to address.Address) (mailbox.Route, error) {
	claims, err := i.domainClaims(ctx, to.Domain)
	if err != nil {
		return mailbox.Route{}, err
	}
	for _, c := range claims {
		from, err := i.originalSender(ctx, c.Account, to, i.Now())
		if err != nil && !fault.Is(err, fault.NotFound) {
			return mailbox.Route{}, err
		}
		if err == nil {
			return mailbox.Route{Forwards: []address.Address{from}, Forwarder: c.Domain, Account: c.Account, Domain: c.Domain}, nil
		}
	}
	return mailbox.Route{}, noMailboxError()
}

// domainClaims are who may have forwarded mail in the name of a domain.
func (i *Service) domainClaims(ctx context.Context, name string) ([]domain.HostedDomain, error) {
	_, hosted, err := i.Mailboxes.FindHosted(ctx, name)
	if err != nil {
		return nil, err
	}
	if !hosted {
		return nil, fault.New(fault.NotFound, mailbox.CodeDomainNotHosted, "This domain's mail is not kept here.")
	}
	return i.Domains.Claims(ctx, name)
}

// originalSender is who sent a message that an account forwarded with a path of ours, as
// that says, or said, at a time. It is fault.NotFound if it is none, or too old.
func (i *Service) originalSender(ctx context.Context, account db.ID, path address.Address, at time.Time) (address.Address, error) {
	if id, ok := i.Key.ParseStoredSRS(int64(account), path.Domain, path.Local); ok {
		var sender string
		err := i.db.One(ctx, forwardPathQuery.With(id, account), &sender)
		if errors.Is(err, db.ErrNoRow) {
			err = noMailboxError()
		}
		if err != nil {
			return address.Address{}, err
		}
		return address.Parse(sender)
	}
	local, name, ok := i.Key.ParseSRS(int64(account), path.Domain, path.Local, at)
	from, err := address.Parse(local + "@" + name)
	if !ok || err != nil {
		err = noMailboxError()
	}
	return from, err
}

func noMailboxError() error {
	return fault.New(fault.NotFound, mailbox.CodeNoMailbox, "There is no mailbox with this address.")
}

// addReturn accepts a report about what was forwarded, for its original sender.
func (l *Transaction) addReturn(ctx context.Context, to address.Address) error {
	if l.from != "" {
		return notReportError()
	}
	if slices.ContainsFunc(l.forwards, func(o forward) bool { return o.isReturn && address.KeyOf(o.address) == to.Key() }) {
		return nil // it goes there already
	}
	route, err := l.service.returnRoute(ctx, to)
	if err != nil {
		return err
	}
	going, err := l.checkForwardLimits(ctx, quota.ReturnedMailConsumer(route.Account), 1, nil)
	if err != nil {
		return err
	}
	l.forwardUsages = going
	l.forwards = append(l.forwards, forward{Route: route, address: to.String(), isReturn: true})
	return nil
}

func notReportError() error {
	return fault.New(fault.Denied, "reports_only", "This address takes reports about forwarded messages only, from the null sender.")
}

// sendReportBack sends the report about a forwarded message to whoever sent that, in the
// name of who forwarded it: by now the domain of the path may be another's, or nobody's.
func (i *Service) sendReportBack(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice) error {
	path, err := address.Parse(m.Sender)
	if err != nil {
		return err
	}
	to, err := i.originalSender(ctx, m.Account, path, m.CreatedAt) // it may have been held for weeks
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil {
		return i.dropNotices(ctx, m.ID, all, err)
	}
	route := mailbox.Route{Forwards: []address.Address{to}, Forwarder: m.ForwardDomain, Account: m.Account, Domain: m.ForwardDomain}
	m.Sender = to.String()
	return i.queueReport(ctx, m, all, func(e *deliveryPlan) error {
		return e.addForward(ctx, forward{Route: route, address: path.String(), isReturn: true})
	})
}

// sendRemoteReport takes the report about a forwarded message to its sender, who has no
// mailbox of the account that forwarded it: another account's has, or it is the
// return path of what an application sent.
func (i *Service) sendRemoteReport(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice) error {
	to, err := address.Parse(m.Sender)
	if err != nil {
		return i.dropNotices(ctx, m.ID, all, err)
	}
	if secret.IsReturnPath(to.Local) {
		return i.recordForwardBounce(ctx, m, all, to)
	}
	if to.Local == postmasterLocalPart && m.DomainLost { // it may be another's by now
		return i.dropNotices(ctx, m.ID, all, fault.New(fault.Denied, mailbox.CodeDomainNotHosted, "The account has lost the domain."))
	}
	return i.queueReport(ctx, m, all, func(e *deliveryPlan) error {
		utf8, eightBit := e.message.index.RequiredExtensions()
		ready, err := i.Outbox.PrepareForward(ctx, outbound.ForwardRequest{
			Account: m.Account, Domain: m.ForwardDomain, Forwarder: m.ForwardDomain, To: []address.Address{to},
			Blob: e.message.blob, Header: e.message.header, UTF8: utf8, EightBit: eightBit, RequireTLS: e.requireTLS,
		})
		if err == nil {
			e.outgoing = append(e.outgoing, ready)
		}
		return err
	})
}

// recordForwardBounce makes of a report about a forwarded message a bounce of the delivery
// that was forwarded, wherever mail to its return path goes by now. Its recipient is
// not suppressed: mailboxes here may have it as well. After a failure in between it
// changes nothing again.
func (i *Service) recordForwardBounce(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice, to address.Address) error {
	id, n, ok := i.Key.ParseReturnPath(to.Local)
	if !ok {
		return i.dropNotices(ctx, m.ID, all, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "The return path is not one of ours."))
	}
	s, err := i.createReport(ctx, &m, all, false)
	if err != nil {
		return err
	}
	defer s.blob.Discard(ctx)
	if err := i.handleReport(ctx, returnPath{message: db.ID(id), n: n, forwarded: true}, s); err != nil {
		return err
	}
	return i.Queue.DropNotices(ctx, all)
}

// queueReport sends a report by way of the queue.
func (i *Service) queueReport(ctx context.Context, m outbound.SubmissionInfo, all []queue.Notice, send func(*deliveryPlan) error) error {
	s, err := i.createReport(ctx, &m, all, true)
	if err != nil {
		return err
	}
	e := i.newPlan(s, "", true)
	e.requireTLS, e.smtpUTF8 = m.RequireTLS, true // the latter if it has to be: it is of our own making
	defer e.release()
	e.statements = i.Queue.DeleteNoticeStatements(all)
	for _, n := range all {
		e.statements = append(e.statements, addFilingQuery.With(n.ID, noticeDelivery, db.Micros(i.Now())))
	}
	err = send(e)
	if fault.Is(err, fault.Denied) { // it is not to be tried for ever
		s.blob.Discard(ctx)
		return i.dropNotices(ctx, m.ID, all, err)
	}
	if err != nil {
		return err
	}
	_, err = e.commit(ctx)
	return err
}
