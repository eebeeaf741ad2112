// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/summary"
)

// Codes of mail that the spam filter rejects.
const (
	CodeSpam         = "spam"       // fault.Denied
	CodeSpamDeferred = "spam_later" // fault.Unavailable: the filter asks for a retry
)

// filterSpam runs the spam filter and applies its actions, within the settings of each recipient
// and its domain. It rejects the message only if that holds for all recipients; otherwise the
// message goes to Junk and is not forwarded. Reports to this service, or on their way back to a
// sender, are not affected.
func (l *Transaction) filterSpam(ctx context.Context, s *spooledMessage, received message.ReceivedField, name string) error {
	if l.service.SpamFilter == nil || len(l.recipients)+len(l.forwards) == 0 {
		return nil
	}
	m := &spam.Message{
		ID: received.ID, Client: received.Addr, Helo: received.Helo, ClientName: name, From: l.from, CheckResults: s.checkResults,
		Header: s.header, Index: s.index, Size: s.blob.Size, Open: s.blob.Open,
	}
	for _, to := range l.recipients {
		m.To, m.Accounts = append(m.To, to.addresses[0]), append(m.Accounts, to.Account)
	}
	for _, to := range l.forwards {
		m.To, m.Accounts = append(m.To, to.address), append(m.Accounts, to.Account)
	}
	all, err := l.service.SpamFilter(ctx, m)
	if err != nil || all == nil {
		return err
	}
	for n := range l.recipients {
		l.recipients[n].isSpam = all[n].IsSpam()
	}
	for n := range l.forwards {
		// Spam is never forwarded in our name, regardless of the settings.
		to := &l.forwards[n]
		to.isSpam = to.isSpam || !to.isReturn && all[len(l.recipients)+n].IsSpam()
	}
	reject, later := 0, 0
	for n := range all {
		domain, open, own := db.ID(0), false, mailbox.SpamNormal
		if n < len(l.recipients) {
			domain, open, own = l.recipients[n].Domain, l.recipients[n].acceptsAll, l.recipients[n].SpamFilter
		} else {
			to := l.forwards[n-len(l.recipients)]
			domain, open = to.Domain, to.isReturn
		}
		o := &all[n]
		hard, err := l.applySpamSettings(ctx, o, domain, open, own)
		if err != nil {
			return err
		}
		switch {
		case hard && o.Action == summary.ActionReject:
			reject++
		case hard && o.Action == summary.ActionDefer:
			later++
		}
	}
	if reject+later == len(all) && len(l.returnPaths) == 0 && !l.feedback {
		said := all[0].Reply
		if later > 0 {
			return fault.New(fault.Unavailable, CodeSpamDeferred, "%s", cmp.Or(said, "This host wants to see the message again; try later"))
		}
		return fault.New(fault.Denied, CodeSpam, "%s", cmp.Or(said, "The message looks like spam"))
	}
	for n := range all {
		if o := &all[n]; o.Action == summary.ActionReject {
			o.Action = summary.ActionJunk
		}
	}
	for n := range l.recipients { // includes what a stricter mailbox calls spam
		l.recipients[n].isSpam = l.recipients[n].isSpam || all[n].IsSpam()
	}
	for n := range l.recipients {
		l.recipients[n].spamResult = &all[n]
	}
	for n := range l.forwards {
		l.forwards[n].spamResult = &all[len(l.recipients)+n]
	}
	return nil
}

// applySpamSettings applies the settings of the recipient's domain and mailbox. It reports whether
// the recipient's mail may be rejected; that is never so if open is set.
func (l *Transaction) applySpamSettings(ctx context.Context, o *summary.SpamResult, of db.ID, open bool, own mailbox.SpamFilter) (hard bool, err error) {
	chosen, err := l.service.Domains.SpamFiltering(ctx, of)
	if chosen == domain.EnforceOff {
		own = mailbox.SpamOff
	}
	switch own {
	case mailbox.SpamOff:
		o.Action = summary.ActionAccept
		return false, err
	case mailbox.SpamLenient:
		o.Threshold = cmp.Or(o.LenientThreshold, 2*o.Threshold)
		if o.Action == summary.ActionJunk && o.Score < o.Threshold {
			o.Action = summary.ActionAccept
		}
		return false, err
	case mailbox.SpamStrict:
		o.Threshold = cmp.Or(o.StrictThreshold, o.Threshold/2)
		if o.Action == summary.ActionAccept && o.Threshold > 0 && o.Score >= o.Threshold {
			o.Action = summary.ActionJunk
		}
	}
	return chosen == domain.EnforceFully && !open, err
}
