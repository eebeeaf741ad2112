// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/spam"
)

// The codes of what the spam filter does not let in.
const (
	CodeSpam   = "spam"       // fault.Denied
	CodeNotNow = "spam_later" // fault.Unavailable: the filter wants it to come again
)

// filter asks the spam filter, and does what it wants as far as each
// recipient and its domain let it: a message is refused only if that is so for all
// recipients, else it goes to Junk, and is not forwarded. Reports to us, or on
// their way back, are not its business.
func (l *Letter) filter(ctx context.Context, s *spooled, received message.Received, name string) error {
	if l.in.Filter == nil || len(l.rcpts)+len(l.onward) == 0 {
		return nil
	}
	m := &spam.Mail{
		ID: received.ID, Client: received.Addr, Helo: received.Helo, Name: name, From: l.from, Verdicts: s.verdicts,
		Header: s.header, Index: s.index, Size: s.blob.Size, Open: s.blob.Open,
	}
	for _, to := range l.rcpts {
		m.To, m.Accounts = append(m.To, to.as[0]), append(m.Accounts, to.Account)
	}
	for _, to := range l.onward {
		m.To, m.Accounts = append(m.To, to.as), append(m.Accounts, to.Account)
	}
	all, err := l.in.Filter(ctx, m)
	if err != nil || all == nil {
		return err
	}
	for n := range l.rcpts {
		l.rcpts[n].spam = all[n].Spam()
	}
	for n := range l.onward {
		// Whatever is done with it here, none of it goes out in our name.
		to := &l.onward[n]
		to.spam = to.spam || !to.back && all[len(l.rcpts)+n].Spam()
	}
	reject, later := 0, 0
	for n := range all {
		domain, open, own := db.ID(0), false, mailbox.SpamNormal
		if n < len(l.rcpts) {
			domain, open, own = l.rcpts[n].Domain, l.rcpts[n].open, l.rcpts[n].Filter
		} else {
			to := l.onward[n-len(l.rcpts)]
			domain, open = to.Domain, to.back
		}
		o := &all[n]
		hard, err := l.soften(ctx, o, domain, open, own)
		if err != nil {
			return err
		}
		switch {
		case hard && o.Action == digest.Reject:
			reject++
		case hard && o.Action == digest.Defer:
			later++
		}
	}
	if reject+later == len(all) && len(l.reports) == 0 && !l.loop {
		said := all[0].Text
		if later > 0 {
			return fault.New(fault.Unavailable, CodeNotNow, "%s", cmp.Or(said, "This host wants to see the message again; try later"))
		}
		return fault.New(fault.Denied, CodeSpam, "%s", cmp.Or(said, "The message looks like spam"))
	}
	for n := range all {
		if o := &all[n]; o.Action == digest.Reject {
			o.Action = digest.Junk
		}
	}
	for n := range l.rcpts { // nor what a stricter mailbox calls spam
		l.rcpts[n].spam = l.rcpts[n].spam || all[n].Spam()
	}
	for n := range l.rcpts {
		l.rcpts[n].o = &all[n]
	}
	for n := range l.onward {
		l.onward[n].o = &all[len(l.rcpts)+n]
	}
	return nil
}

// soften does what the holder of a recipient's domain and the recipient chose, and
// reports whether the recipient's mail may be refused. Who is open takes all mail.
func (l *Letter) soften(ctx context.Context, o *digest.Opinion, of db.ID, open bool, own mailbox.SpamFilter) (hard bool, err error) {
	chosen, err := l.in.Domains.Filtering(ctx, of)
	if chosen == domain.Off {
		own = mailbox.SpamOff
	}
	switch own {
	case mailbox.SpamOff:
		o.Action = digest.Accept
		return false, err
	case mailbox.SpamLenient:
		o.Threshold = cmp.Or(o.Lenient, 2*o.Threshold)
		if o.Action == digest.Junk && o.Score < o.Threshold {
			o.Action = digest.Accept
		}
		return false, err
	case mailbox.SpamStrict:
		o.Threshold = cmp.Or(o.Strict, o.Threshold/2)
		if o.Action == digest.Accept && o.Threshold > 0 && o.Score >= o.Threshold {
			o.Action = digest.Junk
		}
	}
	return chosen == domain.Enforce && !open, err
}
