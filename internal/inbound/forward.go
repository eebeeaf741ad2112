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
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/summary"
)

const (
	// CodeNotForwarded is the code of the fault.Denied for mail that must not be forwarded: spam,
	// or mail that fails its author's DMARC policy.
	CodeNotForwarded = "not_forwarded"

	// maxHops is the number of earlier deliveries up to which a message is forwarded.
	maxHops = 10
	// loopField is the header field of forwarded mail that names the original recipient.
	loopField = "X-Loop"
	// PostmasterLocalPart receives the reports that don't go to a sender.
	PostmasterLocalPart = "postmaster"
)

// forward is a message to be forwarded to other addresses.
type forward struct {
	mailbox.Route
	address    string              // original recipient
	sender     string              // MAIL FROM
	fromLocal  bool                // whether it was sent from here, so that its sender is certain
	isSpam     bool                // according to the spam filter of its account
	spamResult *summary.SpamResult // nil: none
	isReturn   bool                // whether it is a report on its way back to the original sender
}

// dropForwards removes forwards that must not happen. A recipient without a mailbox would lose the
// message unnoticed, so the postmaster gets it in Junk. Without a postmaster the message is
// rejected for all recipients. It is also rejected if nobody else would get it: the sending host
// then informs the sender.
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
		// A sender can forge Delivered-To. If there are other recipients, the copy is filed: better
		// twice than never.
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
		kept, err := l.ensureLocalCopy(ctx, s, o)
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

// ensureLocalCopy makes sure that a message that is not forwarded is in a mailbox of the same
// account: another target of the alias, or else the postmaster's. It reports whether there is one.
func (l *Transaction) ensureLocalCopy(ctx context.Context, s *spooledMessage, o forward) (bool, error) {
	if slices.ContainsFunc(l.recipients, func(r recipient) bool { return slices.Contains(r.addresses, o.address) }) {
		return true, nil
	}
	at, err := address.Parse(o.address)
	if err != nil {
		return false, err
	}
	route, err := l.service.Mailboxes.Route(ctx, address.Address{Local: PostmasterLocalPart, Domain: at.Domain})
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

// checkForward returns why a message must not be forwarded. The code is CodeNotForwarded, or
// CodeLoop if the message was here before or had too many hops.
func (s *spooledMessage) checkForward(o forward) error {
	if o.isSpam || s.failsPolicy || s.checkResults.Spam == summary.Spam {
		return fault.New(fault.Denied, CodeNotForwarded, "The message is not forwarded: it can't be shown to come from its author, or it looks like spam.")
	}
	loops := slices.ContainsFunc(s.header.All(loopField), func(f message.Field) bool { return address.KeyOf(f.Unfolded()) == address.KeyOf(o.address) })
	if !o.isReturn && (loops || wasDeliveredTo(s.header, o.address)) || s.header.Count("Delivered-To") >= maxHops {
		return loopError()
	}
	return nil
}

// AppendForwardFields appends the header fields by which this service recognizes a message that it
// forwarded for the given address.
func AppendForwardFields(b []byte, original string) []byte {
	return append(message.AppendDeliveredTo(b, original), loopField+": "+original+"\r\n"...)
}

func loopError() error {
	return fault.New(fault.Denied, CodeLoop, "The message was delivered to this address before.")
}

// addForward prepares the message for the addresses elsewhere. It returns an error if the message
// must not be forwarded.
func (e *deliveryPlan) addForward(ctx context.Context, o forward) error {
	i, s := e.service, e.message
	if err := s.checkForward(o); err != nil {
		return err
	}
	top := append(AppendForwardFields(nil, o.address), s.traceFields...)
	// Old programs send 8-bit bytes without asking for an extension. Such mail is forwarded as it
	// came, since most hosts accept it.
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

// forwardSender returns the MAIL FROM of a forwarded message. It leads back to the original sender
// through this service, since other domains' SPF records don't permit this host. If the address
// doesn't fit in such a path, keep inserts a row that stores it. If the sender wasn't verified,
// reports go to the postmaster instead. The result is the null sender for mail to a role address,
// because its reports would reveal who owns an account. It is also the null sender for private mail
// of the service, because its return path must stay private.
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
		return PostmasterLocalPart + "@" + at.Domain, nil
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

// ForwardPathRetention is how long the senders of forwarded messages are stored. A message may be
// queued for five days, and its report may be held.
const ForwardPathRetention = secret.SRSMaxAge + 30*24*time.Hour

// PruneForwardPaths deletes, in one commit, at most limit senders of messages that were forwarded
// before the given time. It returns the number of deleted rows; 0 means that there are no more.
func (i *Service) PruneForwardPaths(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := i.db.Exec(ctx, pruneForwardPathsQuery.With(db.Micros(before), limit))
	return int(deleted), err
}

// passedSPF reports whether SPF permits the sending host to use the domain of MAIL FROM. Reports
// and replies go there only then. DKIM doesn't show that, and neither does DMARC by DKIM: anybody
// who has a signed message can send it to many recipients, and the author would get all their
// replies.
func (s *spooledMessage) passedSPF() bool { return s.checkResults.SPF == string(mailauth.Pass) }

// returnRoute returns the route back to the original sender of a message that a local domain
// forwarded. The route belongs to the account that forwarded the message. Another account may own
// the domain by now; it sees nothing of the report.
func (i *Service) returnRoute(ctx context.Context, to address.Address) (mailbox.Route, error) {
	claims, err := i.forwardingAccounts(ctx, to.Domain)
	if err != nil {
		return mailbox.Route{}, err
	}
	for _, c := range claims {
		from, err := i.OriginalSender(ctx, c.Account, to, i.Now())
		if err != nil && !fault.Is(err, fault.NotFound) {
			return mailbox.Route{}, err
		}
		if err == nil {
			return mailbox.Route{Forwards: []address.Address{from}, Forwarder: c.Domain, Account: c.Account, Domain: c.Domain}, nil
		}
	}
	return mailbox.Route{}, noMailboxError()
}

// forwardingAccounts returns the accounts that may have forwarded mail in the name of a domain.
func (i *Service) forwardingAccounts(ctx context.Context, name string) ([]domain.HostedDomain, error) {
	_, hosted, err := i.Mailboxes.FindHosted(ctx, name)
	if err != nil {
		return nil, err
	}
	if !hosted {
		return nil, fault.New(fault.NotFound, mailbox.CodeDomainNotHosted, "This domain's mail is not kept here.")
	}
	return i.Domains.Claims(ctx, name)
}

// OriginalSender returns the original sender of a message that an account forwarded with the given
// SRS path, valid at the given time. It returns fault.NotFound if the path is invalid or expired.
func (i *Service) OriginalSender(ctx context.Context, account db.ID, path address.Address, at time.Time) (address.Address, error) {
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

// addSRSReturn accepts a report about a forwarded message, for the original sender.
func (l *Transaction) addSRSReturn(ctx context.Context, to address.Address) error {
	if l.from != "" {
		return notReportError()
	}
	if slices.ContainsFunc(l.forwards, func(o forward) bool { return o.isReturn && address.KeyOf(o.address) == to.Key() }) {
		return nil // already added
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
