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
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
)

const (
	// CodeUnwanted is the code of the fault.Denied for mail that is not to be
	// forwarded: it is spam, or its author's domain disowns it.
	CodeUnwanted = "not_forwarded"

	// maxHops is how often a message may have been delivered somewhere before it
	// is forwarded once more.
	maxHops = 10
	// loopField names, in what is forwarded, the address that it was for.
	loopField = "X-Loop"
	// postmaster gets the reports that no sender is to be bothered with.
	postmaster = "postmaster"
)

// onward is a message that goes on to addresses elsewhere.
type onward struct {
	mailbox.Route
	as     string          // the address that it was for
	sender string          // its MAIL FROM
	own    bool            // it was sent from here: nothing of it is in doubt
	spam   bool            // thinks the filter of its account
	o      *digest.Opinion // of that; nil: it has none
	back   bool            // it is a report on its way back to who is told of it
}

// halt takes out of a letter what must not go on. Who has no mailbox here would
// get nothing then, and nobody would know: the postmaster gets it, in Junk. Without
// one it is refused, for all, and so is what nobody else is to get: its sender is
// told by his own host.
func (l *Letter) halt(ctx context.Context, s *spooled) error {
	var halted []onward
	var why error
	l.onward = slices.DeleteFunc(l.onward, func(o onward) bool {
		err := s.stops(o)
		if err != nil {
			halted, why = append(halted, o), err
		}
		return err != nil
	})
	others := len(l.onward)+len(l.reports) > 0 || l.loop
	for _, to := range l.rcpts {
		// Whoever wrote a Delivered-To, beside others the copy is filed: twice
		// rather than never.
		if len(to.ForwardTo) > 0 || !looped(s.header, to.as[0]) {
			others = true
		} else if why == nil {
			why = circles()
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
			return s.stops(o)
		}
		l.in.Log.Info("a message is not forwarded but kept", "alias", o.Alias, "arrival", s.arrival, "reason", s.stops(o))
	}
	return nil
}

// keep makes sure that a message which does not go on is in a mailbox: one that
// its alias leads to as well, or else the postmaster's. It reports whether there is
// one, of the same account.
func (l *Letter) keep(ctx context.Context, s *spooled, o onward) (bool, error) {
	if slices.ContainsFunc(l.rcpts, func(r rcpt) bool { return slices.Contains(r.as, o.as) }) {
		return true, nil
	}
	at, err := address.Parse(o.as)
	if err != nil {
		return false, err
	}
	route, err := l.in.Mailboxes.Route(ctx, address.Address{Local: postmaster, Domain: at.Domain})
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		return false, err
	}
	for _, to := range route.Mailboxes {
		if to.Account != o.Account {
			continue
		}
		if n := slices.IndexFunc(l.rcpts, func(r rcpt) bool { return r.Mailbox == to.Mailbox }); n >= 0 {
			l.rcpts[n].as = append(l.rcpts[n].as, o.as)
			return true, nil
		}
		switch err := l.in.Mailboxes.Room(ctx, to.Mailbox, s.blob.Size); {
		case err == nil:
			l.rcpts = append(l.rcpts, rcpt{Recipient: to, as: []string{o.as}, junk: true, o: o.o})
			return true, nil
		case !noRoom(err):
			return false, err
		}
	}
	return false, nil
}

// stops says why a message must not go on: as CodeUnwanted, or, if it was here
// before or at too many places, as CodeLoop.
func (s *spooled) stops(o onward) error {
	if o.spam || s.unwanted || s.verdicts.Spam == digest.Spam {
		return fault.New(fault.Denied, CodeUnwanted, "The message is not forwarded: it can't be shown to come from its author, or it looks like spam.")
	}
	loops := slices.ContainsFunc(s.header.All(loopField), func(f message.Field) bool { return address.KeyOf(f.Text()) == address.KeyOf(o.as) })
	if !o.back && (loops || looped(s.header, o.as)) || s.header.Count("Delivered-To") >= maxHops {
		return circles()
	}
	return nil
}

func circles() error {
	return fault.New(fault.Denied, CodeLoop, "The message was delivered to this address before.")
}

// passOn makes the message ready for the addresses elsewhere, unless it must not
// go there.
func (e *errand) passOn(ctx context.Context, o onward) error {
	i, s := e.in, e.s
	if err := s.stops(o); err != nil {
		return err
	}
	top := message.AppendDeliveredTo(nil, o.as)
	top = append(top, loopField+": "+o.as+"\r\n"...)
	top = append(top, s.trace...)
	// Old programs write such bytes and ask for nothing: that goes on as it came,
	// as most hosts take it.
	utf8, eightBit := s.index.Needs()
	sender, keep := i.sendsAs(s, o)
	ready, err := i.Outbox.Forward(ctx, outbound.Forwarded{
		Account: o.Account, Domain: o.Domain, By: o.Alias, Role: o.Role, Sender: sender, To: o.Elsewhere,
		Blob: i.Blobs.Prepend(s.blob, top), Header: s.header, EightBit: eightBit, Private: s.private,
		UTF8: utf8 && e.utf8 || message.Header(top).EightBit(), RequireTLS: e.tls, Asked: e.asked,
	})
	if fault.Is(err, fault.Limited) {
		return overLimit(err)
	}
	if err == nil {
		e.out = append(e.out, ready)
		e.also = append(e.also, keep...)
		if !o.back && o.Domain != account.Operators {
			e.guards = append(e.guards, domain.InUse(o.Domain))
		}
	}
	return err
}

// sendsAs is the MAIL FROM of a message that goes on: one that leads back to its
// sender by way of us, since no other domain's SPF record lets us use its name. Where
// the sender's address has no place in that, keep makes a row that has it.
// Who was not shown to have sent it is not told what becomes of it; the
// postmaster is. It is the null sender for mail to a role address, whose reports would
// tell strangers who owns an account, and for what the service wrote, whose return path
// is nobody else's business.
func (i *Inbound) sendsAs(s *spooled, o onward) (path string, keep []db.Statement) {
	if o.sender == "" || o.Role || s.private {
		return "", nil
	}
	if o.own {
		return o.sender, nil
	}
	at, err := address.Parse(o.as)
	if err != nil {
		return "", nil
	}
	from, err := address.Parse(o.sender)
	if err != nil || !s.passed() {
		return postmaster + "@" + at.Domain, nil
	}
	local, ok := i.Key.SRS(int64(o.Account), at.Domain, from.Local, from.Domain, i.Now())
	if !ok {
		id := i.db.NewID()
		local = i.Key.StoredPath(int64(o.Account), at.Domain, int64(id))
		keep = []db.Statement{keepPath.With(id, o.Account, from.String(), db.Micros(i.Now()))}
	}
	return local + "@" + at.Domain, keep
}

var (
	keepPath   = db.SQL(`INSERT INTO forward_path (id, account, sender, at) VALUES ($1, $2, $3, $4)`)
	keptPath   = db.SQL(`SELECT sender FROM forward_path WHERE id = $1 AND account = $2`)
	prunePaths = db.SQL(`DELETE FROM forward_path WHERE id IN (SELECT id FROM forward_path WHERE at < $1 ORDER BY at LIMIT $2)`)
)

// PathLife is how long it is kept who sent a forwarded message. A message may wait for
// five days, and the report about it be held.
const PathLife = secret.SRSLife + 30*24*time.Hour

// PrunePaths forgets, in one commit, at most limit senders of messages that were
// forwarded before a time, and returns how many; 0: there are no more.
func (i *Inbound) PrunePaths(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := i.db.Exec(ctx, prunePaths.With(db.Micros(before), limit))
	return int(deleted), err
}

// passed reports whether the host that brought a message may send for the domain of
// its MAIL FROM (SPF): only then something is sent back there. A DKIM signature does
// not show that, nor does DMARC by it: whoever has a signed message can bring it to
// many, in its author's name, who would get all their answers.
func (s *spooled) passed() bool { return s.verdicts.SPF == string(mailauth.Pass) }

func isSRS(sender string) bool {
	a, err := address.Parse(sender)
	return err == nil && secret.IsSRS(a.Local)
}

// original is the way back to the sender of a message that was forwarded by a
// domain here, in the name of the account that did: another may hold it by now, who
// sees nothing of it.
func (i *Inbound) original(ctx context.Context, to address.Address) (mailbox.Route, error) {
	claims, err := i.forwarders(ctx, to.Domain)
	if err != nil {
		return mailbox.Route{}, err
	}
	for _, c := range claims {
		from, err := i.firstSender(ctx, c.Account, to, i.Now())
		if err != nil && !fault.Is(err, fault.NotFound) {
			return mailbox.Route{}, err
		}
		if err == nil {
			return mailbox.Route{Elsewhere: []address.Address{from}, Alias: c.Domain, Account: c.Account, Domain: c.Domain}, nil
		}
	}
	return mailbox.Route{}, noPath()
}

// forwarders are who may have forwarded mail in the name of a domain.
func (i *Inbound) forwarders(ctx context.Context, name string) ([]domain.Hosted, error) {
	_, hosted, err := i.Mailboxes.Hosted(ctx, name)
	if err != nil {
		return nil, err
	}
	if !hosted {
		return nil, fault.New(fault.NotFound, mailbox.CodeNotHosted, "This domain's mail is not kept here.")
	}
	return i.Domains.Claims(ctx, name)
}

// firstSender is who sent a message that an account forwarded with a path of ours, as
// that says, or said, at a time. It is fault.NotFound if it is none, or too old.
func (i *Inbound) firstSender(ctx context.Context, account db.ID, path address.Address, at time.Time) (address.Address, error) {
	if id, ok := i.Key.ParseStoredPath(int64(account), path.Domain, path.Local); ok {
		var sender string
		err := i.db.One(ctx, keptPath.With(id, account), &sender)
		if errors.Is(err, db.ErrNoRow) {
			err = noPath()
		}
		if err != nil {
			return address.Address{}, err
		}
		return address.Parse(sender)
	}
	local, name, ok := i.Key.ParseSRS(int64(account), path.Domain, path.Local, at)
	from, err := address.Parse(local + "@" + name)
	if !ok || err != nil {
		err = noPath()
	}
	return from, err
}

func noPath() error {
	return fault.New(fault.NotFound, mailbox.CodeNoMailbox, "There is no mailbox with this address.")
}

// goesBack accepts a report about what was forwarded, for its original sender.
func (l *Letter) goesBack(ctx context.Context, to address.Address) error {
	if l.from != "" {
		return notReport()
	}
	if slices.ContainsFunc(l.onward, func(o onward) bool { return o.back && address.KeyOf(o.as) == to.Key() }) {
		return nil // it goes there already
	}
	route, err := l.in.original(ctx, to)
	if err != nil {
		return err
	}
	going, err := l.mayGoOn(ctx, limit.ReturnedMail(route.Account), 1, nil)
	if err != nil {
		return err
	}
	l.going = going
	l.onward = append(l.onward, onward{Route: route, as: to.String(), back: true})
	return nil
}

func notReport() error {
	return fault.New(fault.Denied, "reports_only", "This address takes reports about forwarded messages only, from the null sender.")
}

// reportBack sends the report about a forwarded message to whoever sent that, in the
// name of who forwarded it: by now the domain of the path may be another's, or nobody's.
func (i *Inbound) reportBack(ctx context.Context, m outbound.Submitted, all []queue.Notice) error {
	path, err := address.Parse(m.Sender)
	if err != nil {
		return err
	}
	to, err := i.firstSender(ctx, m.Account, path, m.CreatedAt) // it may have been held for weeks
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil {
		return i.untold(ctx, m.ID, all, err)
	}
	route := mailbox.Route{Elsewhere: []address.Address{to}, Alias: m.Forwards, Account: m.Account, Domain: m.Forwards}
	m.Sender = to.String()
	return i.mailReport(ctx, m, all, func(e *errand) error {
		return e.passOn(ctx, onward{Route: route, as: path.String(), back: true})
	})
}

// reportOn takes the report about a forwarded message to its sender, who has no
// mailbox of the account that forwarded it: another account's has, or it is the
// return path of what an application sent.
func (i *Inbound) reportOn(ctx context.Context, m outbound.Submitted, all []queue.Notice) error {
	to, err := address.Parse(m.Sender)
	if err != nil {
		return i.untold(ctx, m.ID, all, err)
	}
	if secret.IsReturnPath(to.Local) {
		return i.bounceBack(ctx, m, all, to)
	}
	if to.Local == postmaster && m.Lost { // it may be another's by now
		return i.untold(ctx, m.ID, all, fault.New(fault.Denied, mailbox.CodeNotHosted, "The account has lost the domain."))
	}
	return i.mailReport(ctx, m, all, func(e *errand) error {
		utf8, eightBit := e.s.index.Needs()
		ready, err := i.Outbox.Forward(ctx, outbound.Forwarded{
			Account: m.Account, Domain: m.Forwards, By: m.Forwards, To: []address.Address{to},
			Blob: e.s.blob, Header: e.s.header, UTF8: utf8, EightBit: eightBit, RequireTLS: e.tls,
		})
		if err == nil {
			e.out = append(e.out, ready)
		}
		return err
	})
}

// bounceBack makes of a report about a forwarded message a bounce of the delivery
// that was forwarded, wherever mail to its return path goes by now. Its recipient is
// not suppressed: mailboxes here may have it as well. After a failure in between it
// changes nothing again.
func (i *Inbound) bounceBack(ctx context.Context, m outbound.Submitted, all []queue.Notice, to address.Address) error {
	id, n, ok := i.Key.ParseReturnPath(to.Local)
	if !ok {
		return i.untold(ctx, m.ID, all, fault.New(fault.NotFound, mailbox.CodeNoMailbox, "The return path is not one of ours."))
	}
	s, err := i.writeReport(ctx, &m, all, false)
	if err != nil {
		return err
	}
	defer s.blob.Discard(ctx)
	if err := i.reported(ctx, report{message: db.ID(id), n: n, onward: true}, s); err != nil {
		return err
	}
	return i.Queue.Drop(ctx, all)
}

// mailReport sends a report by way of the queue.
func (i *Inbound) mailReport(ctx context.Context, m outbound.Submitted, all []queue.Notice, send func(*errand) error) error {
	s, err := i.writeReport(ctx, &m, all, true)
	if err != nil {
		return err
	}
	e := i.errand(s, "", true)
	e.tls, e.utf8 = m.RequireTLS, true // the latter if it has to be: it is of our own making
	defer e.drop()
	e.also = i.Queue.Told(all)
	for _, n := range all {
		e.also = append(e.also, filed.With(n.ID, noticeN, db.Micros(i.Now())))
	}
	err = send(e)
	if fault.Is(err, fault.Denied) { // it is not to be tried for ever
		s.blob.Discard(ctx)
		return i.untold(ctx, m.ID, all, err)
	}
	if err != nil {
		return err
	}
	_, err = e.commit(ctx)
	return err
}
