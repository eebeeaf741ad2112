// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/message"
)

// The codes of what is not taken in, as its author's domain wants it.
const (
	CodeDMARC    = "dmarc_policy"    // fault.Denied
	CodeNoPolicy = "dmarc_temperror" // fault.Unavailable: the policy is not known yet
	CodeAuthor   = "author_unclear"  // fault.Denied: mail readers would differ on the author
)

// isOpen reports whether nobody may be refused who writes to an address.
func isOpen(to address.Address) bool {
	switch address.LocalKey(to.Local) {
	case "postmaster", "abuse":
		return true
	}
	return to.Domain == ""
}

// spool keeps the message and judges it. junk tells for which recipients it is
// to go to Junk; nil: for none.
func (l *Letter) spool(ctx context.Context, id db.ID, received message.Received, body io.Reader) (s *spooled, junk []bool, err error) {
	i := l.in
	var trial *mailauth.Trial
	var begin func(message.Header) io.Writer
	if l.Verdicts == nil && i.Judge != nil {
		begin = func(h message.Header) io.Writer {
			trial = i.Judge.Begin(h)
			return trial
		}
	}
	if s, err = i.spool(ctx, id, nil, body, begin); err != nil {
		return nil, nil, err
	}
	if trial == nil {
		s.trace = received.Append(nil)
		if l.Verdicts == nil {
			if err = l.filter(ctx, s, received, ""); err != nil {
				s.blob.Discard(ctx)
				return nil, nil, err
			}
			return s, nil, nil
		}
		author := mailauth.Doubted(s.header)
		s.verdicts = *l.Verdicts
		s.verdicts.Author = string(author.Doubt)
		s.unwanted = s.verdicts.DMARC == string(mailauth.Fail) || author.Doubt != ""
		if junk, err = l.obey(ctx, s, &mailauth.Judgement{DMARC: author}); err != nil {
			s.blob.Discard(ctx)
			return nil, nil, err
		}
		return s, junk, nil
	}
	j := trial.Judge(ctx, mailauth.Client{IP: received.Addr, Helo: received.Helo, From: l.from})
	received.Name = j.IPRev.Name
	s.trace = j.AppendResults(received.Append(nil), i.Host)
	s.verdicts = digest.Verdicts{SPF: string(j.SPF.Result), DKIM: string(j.Signed()), DMARC: string(j.DMARC.Result), Author: string(j.DMARC.Doubt)}
	s.unwanted = j.DMARC.Retry && !i.Forgiving || j.DMARC.Policy == mailauth.PolicyQuarantine || j.DMARC.Policy == mailauth.PolicyReject
	if junk, err = l.obey(ctx, s, j); err == nil {
		err = l.filter(ctx, s, received, j.IPRev.Name)
	}
	if err != nil {
		s.blob.Discard(ctx)
		return nil, nil, err
	}
	if junk != nil {
		i.Log.Info("message filed in Junk by DMARC policy", "message", id, "author", j.DMARC.From, "policy", j.DMARC.Policy, "reason", j.DMARC.Reason)
	}
	return s, junk, nil
}

// obey does what the policy of the author's domain asks for, as far as each
// recipient's domain and the operator let it: it is refused only if that is so
// for all recipients, else it goes to Junk where it is not wanted. A report to us
// is taken whoever is said to have written it, and a mail server that writes one under
// its own name needs no domain.
func (l *Letter) obey(ctx context.Context, s *spooled, j *mailauth.Judgement) (junk []bool, err error) {
	policy := j.DMARC.Policy
	if l.from == "" && (j.DMARC.Doubt == message.NoFrom || j.DMARC.Doubt == message.ManyFrom) {
		policy = mailauth.PolicyQuarantine // a report must not be lost for a careless host
	}
	if l.from == "" && j.DMARC.Doubt == message.NoAuthor && s.header.IsFromMailSystem() {
		policy = mailauth.PolicyNone // nobody is shown whose policy could be asked for
	}
	if j.DMARC.Retry && !l.in.Forgiving {
		if l.onlyOnward() {
			return nil, unknownPolicy(j)
		}
		policy = mailauth.PolicyReject // it may be that
	}
	if policy != mailauth.PolicyQuarantine && policy != mailauth.PolicyReject || len(l.rcpts) == 0 {
		return nil, nil
	}
	junk = make([]bool, len(l.rcpts))
	refused := 0
	for n, to := range l.rcpts {
		own, err := l.in.Domains.Enforcement(ctx, to.Domain)
		if err != nil {
			return nil, err
		}
		e := domain.Softer(own, l.in.Enforcement)
		junk[n] = e != domain.Off
		if e == domain.Enforce && policy == mailauth.PolicyReject && !to.open {
			refused++
		}
	}
	all := refused == len(l.rcpts) && len(l.reports) == 0 && !l.loop
	switch {
	case j.DMARC.Retry && all:
		return nil, unknownPolicy(j)
	case j.DMARC.Retry:
		return nil, nil
	case all:
		return nil, l.refusal(ctx, j)
	}
	return junk, nil
}

func unknownPolicy(j *mailauth.Judgement) error {
	return fault.New(fault.Unavailable, CodeNoPolicy, "The DMARC policy of %s could not be looked up, and nothing else shows that the message is its own; try again later", j.DMARC.From)
}

// onlyOnward reports whether a recipient has no mailbox here: what can't go on
// would be lost to it.
func (l *Letter) onlyOnward() bool {
	return slices.ContainsFunc(l.onward, func(o onward) bool {
		return !slices.ContainsFunc(l.rcpts, func(r rcpt) bool { return slices.Contains(r.as, o.as) })
	})
}

// maxExplained is how much of another domain's words goes into a reply.
const maxExplained = 160

// refusal says why the message is not taken, and what the domain of the sender
// itself says to that (RFC 7208 §8.4).
func (l *Letter) refusal(ctx context.Context, j *mailauth.Judgement) error {
	why := j.DMARC.Reason
	if why == "" {
		why = "no SPF or DKIM result speaks for it"
	}
	about := j.DMARC.From
	if len(about) > 100 {
		about = "its author's domain"
	}
	if j.DMARC.Doubt != "" {
		return fault.New(fault.Denied, CodeAuthor, "The author of this message can't be told: %s. Send it with one From field of the form Name <you@example.com>", why)
	}
	text := "The DMARC policy of " + about + " refuses this message: " + why
	if said := strings.TrimSpace(j.SPF.Explain(ctx)); said != "" {
		text += "; the sender's domain says: " + said[:min(len(said), maxExplained)]
	}
	return fault.New(fault.Denied, CodeDMARC, "%s", text)
}
