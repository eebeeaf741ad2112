// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/quota"
)

// maxCopies is the number of copies of one message in one commit. One recipient alone never exceeds
// it (mailbox.MaxTargets).
const maxCopies = 500

// resolveRoute is mailbox.Route for received mail: a suspended account receives nothing.
func (i *Service) resolveRoute(ctx context.Context, to address.Address) (mailbox.Route, error) {
	route, err := i.Mailboxes.Route(ctx, to)
	var f *fault.Error
	if errors.As(err, &f) && f.Code == mailbox.CodeNoPostmaster {
		i.Log.Warn("mail to the postmaster of this service has nowhere to go: --postmaster is not a mailbox that takes mail", "to", to.String())
	}
	if err != nil || i.Accounts == nil || to.Domain == "" || i.IsServiceDomain(to.Domain) {
		return route, err
	}
	holder := route.Account
	if len(route.Mailboxes) > 0 {
		holder = route.Mailboxes[0].Account
	}
	active, err := i.Accounts.IsActive(ctx, holder)
	if err == nil && !active {
		err = fault.New(fault.Denied, mailbox.CodeMailboxSuspended, "This mailbox takes no mail.")
	}
	return route, err
}

// addRoute accepts the mailboxes and forwards that a recipient's address leads to, each once. open
// is recipient.acceptsAll. A mailbox that was already added needs no further quota.
func (l *Transaction) addRoute(ctx context.Context, route mailbox.Route, as string, open bool) error {
	fresh := mailbox.Route{}
	reached := []int{}
	for _, to := range route.Mailboxes {
		if at := slices.IndexFunc(l.recipients, func(r recipient) bool { return r.Mailbox == to.Mailbox }); at >= 0 {
			reached = append(reached, at)
		} else {
			fresh.Mailboxes = append(fresh.Mailboxes, to)
		}
	}
	if len(l.recipients)+len(fresh.Mailboxes) > l.service.maxCopies {
		return fault.New(fault.RateLimited, "too_many_recipients", "Too many mailboxes for one transaction; send it to this recipient in another.")
	}
	elsewhere := route.Forwards
	if slices.ContainsFunc(l.forwards, func(o forward) bool { return !o.isReturn && o.Forwarder == route.Forwarder }) {
		elsewhere = nil // already added
	}
	going, err := l.checkForwardLimits(ctx, limitedConsumer(route), len(elsewhere), fresh.Mailboxes)
	if err != nil {
		return err
	}
	fresh, err = l.service.withinQuota(ctx, fresh, l.size)
	if err != nil && (!isQuotaError(err) || len(reached)+len(route.Forwards) == 0) {
		return err
	}
	if len(elsewhere) > 0 {
		l.forwards = append(l.forwards, forward{Route: route, address: as, sender: l.from})
	}
	l.forwardUsages = going
	for _, at := range reached {
		l.recipients[at].addresses = append(l.recipients[at].addresses, as)
		l.recipients[at].acceptsAll = l.recipients[at].acceptsAll || open
	}
	for _, to := range fresh.Mailboxes {
		l.recipients = append(l.recipients, recipient{Recipient: to, addresses: []string{as}, acceptsAll: open})
	}
	return nil
}

// forwardUsage is the usage that forwarding one message adds: the account and the number of
// recipients.
type forwardUsage struct {
	account    quota.Consumer
	recipients int
}

// limitedConsumer returns the consumer whose limits a forwarded message counts towards.
func limitedConsumer(route mailbox.Route) quota.Consumer {
	if route.RoleMail {
		return quota.RoleMailConsumer(route.Account)
	}
	return quota.Consumer{Account: route.Account}
}

// limitError returns the error that an outside sender gets if an account's limits prevent
// forwarding. It doesn't reveal the limits.
func limitError(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	switch f.Kind {
	case fault.RateLimited:
		return fault.New(fault.RateLimited, f.Code, "Too much mail has come to this address; send it again later.")
	case fault.Denied:
		return fault.New(fault.Denied, f.Code, "This address takes no mail now: it leads to too many others.")
	}
	return err
}

// checkForwardLimits checks the accounts' limits for the forwards of one more recipient, in
// addition to those of earlier recipients. At DATA, the error would reject the message for all
// recipients. It returns the usage of all forwards so far. Mailboxes that keep a copy aren't
// checked.
func (l *Transaction) checkForwardLimits(ctx context.Context, who quota.Consumer, to int, boxes []mailbox.Recipient) ([]forwardUsage, error) {
	all := slices.Clone(l.forwardUsages)
	ask := func(g forwardUsage) error {
		check := func(messages, to int) error {
			return limitError(l.service.Outbox.Limits.CheckSend(ctx, g.account, messages, to))
		}
		messages, to := 1, g.recipients
		for _, before := range all {
			if before.account == g.account {
				messages, to = messages+1, to+before.recipients
			}
		}
		err := check(1, g.recipients)
		if err == nil && messages > 1 {
			if err = check(messages, to); fault.Is(err, fault.Denied) {
				err = fault.New(fault.RateLimited, "too_many_recipients", "Too much would go on for one transaction; send it to this recipient in another.")
			}
		}
		if err == nil {
			all = append(all, g)
		}
		return err
	}
	if to > 0 {
		if err := ask(forwardUsage{who, to}); err != nil {
			return nil, err
		}
	}
	for _, to := range boxes {
		if storesMail(to) {
			continue
		}
		if err := ask(forwardUsage{quota.Consumer{Account: to.Account}, len(to.ForwardTo)}); err != nil && !fault.Is(err, fault.Denied) {
			return nil, err
		}
	}
	return all, nil
}

// withinQuota returns the route with only the mailboxes whose quota allows a message of size octets
// (0 if unknown). A full mailbox doesn't affect the others. If all are full, withinQuota returns
// the first mailbox's error of CheckQuota. Mailboxes that only forward need no quota.
func (i *Service) withinQuota(ctx context.Context, route mailbox.Route, size int64) (mailbox.Route, error) {
	fit := route
	fit.Mailboxes = nil
	var full error
	for _, to := range route.Mailboxes {
		if !storesMail(to) {
			fit.Mailboxes = append(fit.Mailboxes, to)
			continue
		}
		err := i.Mailboxes.CheckQuota(ctx, to.Mailbox, size)
		switch {
		case err == nil:
			fit.Mailboxes = append(fit.Mailboxes, to)
		case !isQuotaError(err):
			return mailbox.Route{}, err
		case full == nil:
			full = err
		}
		if err != nil && len(route.Mailboxes)+len(route.Forwards) > 1 {
			i.Log.Info("a mailbox behind an alias has no room", "mailbox", to.Mailbox)
		}
	}
	if len(fit.Mailboxes)+len(fit.Forwards) == 0 {
		return mailbox.Route{}, full
	}
	return fit, nil
}

// isQuotaError reports whether an error of CheckQuota says that the message can't be filed. Any
// other error means that the check failed.
func isQuotaError(err error) bool {
	switch fault.KindOf(err) {
	case fault.OverQuota, fault.TooLarge, fault.NotFound: // NotFound: the mailbox was deleted just now
		return true
	}
	return false
}
