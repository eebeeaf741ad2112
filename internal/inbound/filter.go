// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// Suspect is a message as the spam filter gets to see it: whole, but for what
// claims to be somebody's judgement already.
type Suspect struct {
	ID       string     // as our Received field tells it
	Client   netip.Addr // zero if unknown
	Helo     string
	Name     string   // of the client, confirmed by DNS; "" for none
	From     string   // MAIL FROM; "" for the null sender
	To       []string // one address for each recipient
	Accounts []db.ID  // whose mailboxes these are, side by side with To
	Verdicts digest.Verdicts
	Header   message.Header
	Index    *message.Index
	Size     int64
	Open     func(context.Context) (*blob.Reader, error)
}

// The codes of what the spam filter does not let in.
const (
	CodeSpam       = "spam"        // fault.Denied
	CodeNotNow     = "spam_later"  // fault.Unavailable: the filter wants it to come again
	CodeFilterDown = "filter_down" // fault.Unavailable: of Options.Filter
)

// filter asks the spam filter, and does what it wants as far as each
// recipient's domain lets it: a message is refused only if that is so for all
// recipients, else it goes to Junk. Reports to us are not its business.
func (l *Letter) filter(ctx context.Context, s *spooled, received message.Received, name string) (err error) {
	if l.in.Filter == nil || len(l.rcpts)+len(l.onward) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			s.blob.Discard(ctx)
		}
	}()
	m := &Suspect{
		ID: received.ID, Client: received.Addr, Helo: received.Helo, Name: name, From: l.from, Verdicts: s.verdicts,
		Header: s.header, Index: s.index, Size: s.blob.Size, Open: s.blob.Open,
	}
	for _, to := range l.rcpts {
		m.To, m.Accounts = append(m.To, to.as[0]), append(m.Accounts, to.Account)
	}
	for _, o := range l.onward {
		m.To, m.Accounts = append(m.To, o.as), append(m.Accounts, o.Account)
	}
	if s.opinions, err = l.in.Filter(ctx, m); err != nil || s.opinions == nil {
		return err
	}
	for n, o := range s.opinions[len(l.rcpts):] {
		l.onward[n].spam = !l.onward[n].back && (o.Action != digest.Accept || o.Threshold > 0 && o.Score >= o.Threshold)
	}
	s.opinions = s.opinions[:len(l.rcpts)]
	reject, later := 0, 0
	for n, to := range l.rcpts {
		o := &s.opinions[n]
		own, err := l.in.Domains.Filtering(ctx, to.Domain)
		if err != nil {
			return err
		}
		switch {
		case own == domain.Off:
			o.Action = digest.Accept
		case o.Action == digest.Reject && own == domain.Enforce && !to.open:
			reject++
		case o.Action == digest.Defer && own == domain.Enforce && !to.open:
			later++
		}
	}
	if reject+later > 0 && reject+later == len(l.rcpts) && len(l.reports) == 0 && !l.loop {
		said := s.opinions[0].Text
		if later > 0 {
			return fault.New(fault.Unavailable, CodeNotNow, "%s", cmp.Or(said, "This host wants to see the message again; try later"))
		}
		return fault.New(fault.Denied, CodeSpam, "%s", cmp.Or(said, "The message looks like spam"))
	}
	for n := range s.opinions {
		if o := &s.opinions[n]; o.Action == digest.Reject {
			o.Action = digest.Junk
		}
	}
	return nil
}
