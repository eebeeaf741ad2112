// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// Codes of mail rejected by the policy of its author's domain.
const (
	CodeDMARC          = "dmarc_policy"    // fault.Denied
	CodeDMARCTempError = "dmarc_temperror" // fault.Unavailable: the policy is not known yet
	CodeUnclearAuthor  = "author_unclear"  // fault.Denied: mail readers would show different authors
)

// acceptsAllMail reports whether an address must accept mail from everybody.
func acceptsAllMail(to address.Address) bool {
	switch address.LocalKey(to.Local) {
	case "postmaster", "abuse":
		return true
	}
	return to.Domain == ""
}

// spoolAndVerify stores and verifies the message.
func (l *Transaction) spoolAndVerify(ctx context.Context, id db.ID, received message.ReceivedField, body io.Reader) (s *spooledMessage, err error) {
	i := l.service
	var trial *mailauth.Verification
	var begin func(message.Header) io.Writer
	if l.CheckResults == nil && i.Verifier != nil {
		begin = func(h message.Header) io.Writer {
			trial = i.Verifier.Begin(h)
			return trial
		}
	}
	if s, err = i.spool(ctx, id, nil, body, begin); err != nil {
		return nil, err
	}
	if trial == nil {
		s.traceFields = received.Append(nil)
		if l.CheckResults == nil {
			if err = l.filterSpam(ctx, s, received, ""); err != nil {
				s.blob.Discard(ctx)
				return nil, err
			}
			return s, nil
		}
		author := mailauth.CheckAuthor(s.header)
		s.checkResults = *l.CheckResults
		s.checkResults.Author = apijson.NullString(string(author.AuthorProblem))
		s.failsPolicy = s.checkResults.DMARC == string(mailauth.Fail) || author.AuthorProblem != ""
		if _, err = l.applyPolicy(ctx, s, &mailauth.Results{DMARC: author}); err != nil {
			s.blob.Discard(ctx)
			return nil, err
		}
		return s, nil
	}
	j := trial.Verify(ctx, mailauth.ClientIdentity{IP: received.Addr, Helo: received.Helo, From: l.from})
	received.Name = j.IPRev.Name
	s.traceFields = j.AppendField(received.Append(nil), i.Host)
	s.checkResults = summary.CheckResults{SPF: string(j.SPF.Result), DKIM: string(j.DKIMResult()), DMARC: string(j.DMARC.Result), Author: apijson.NullString(string(j.DMARC.AuthorProblem))}
	s.failsPolicy = j.DMARC.PolicyUnknown && !i.AcceptUnknownPolicy || j.DMARC.Policy == mailauth.PolicyQuarantine || j.DMARC.Policy == mailauth.PolicyReject
	junked, err := l.applyPolicy(ctx, s, j)
	if err == nil {
		err = l.filterSpam(ctx, s, received, j.IPRev.Name)
	}
	if err != nil {
		s.blob.Discard(ctx)
		return nil, err
	}
	if junked {
		i.Log.Info("message filed in Junk by DMARC policy", "message", id, "author", j.DMARC.AuthorDomain, "policy", j.DMARC.Policy, "reason", j.DMARC.Reason)
	}
	return s, nil
}

// applyPolicy applies the DMARC policy of the author's domain, within the limits that each
// recipient's domain and the operator set. It rejects the message only if that holds for all
// recipients; otherwise the message goes to Junk where the policy applies, and junked is true.
// Reports to this service are accepted from any author. A mail server that sends a report in its
// own name needs no domain.
func (l *Transaction) applyPolicy(ctx context.Context, s *spooledMessage, j *mailauth.Results) (junked bool, err error) {
	policy := j.DMARC.Policy
	if l.from == "" && (j.DMARC.AuthorProblem == message.NoFrom || j.DMARC.AuthorProblem == message.ManyFrom) {
		policy = mailauth.PolicyQuarantine // a report must not be lost because a host is careless
	}
	if l.from == "" && j.DMARC.AuthorProblem == message.NoAuthor && s.header.IsFromMailSystem() {
		policy = mailauth.PolicyNone // no author's domain is shown, so no policy applies
	}
	if j.DMARC.PolicyUnknown && !l.service.AcceptUnknownPolicy {
		if l.hasForwardOnly() {
			return false, policyLookupError(j)
		}
		policy = mailauth.PolicyReject // the policy may be reject
	}
	if policy != mailauth.PolicyQuarantine && policy != mailauth.PolicyReject || len(l.recipients) == 0 {
		return false, nil
	}
	junk := make([]bool, len(l.recipients))
	refused := 0
	for n, to := range l.recipients {
		own, err := l.service.Domains.DMARCEnforcement(ctx, to.Domain)
		if err != nil {
			return false, err
		}
		e := domain.MinEnforcement(own, l.service.MaxEnforcement)
		junk[n] = e != domain.EnforceOff
		if e == domain.EnforceFully && policy == mailauth.PolicyReject && !to.acceptsAll {
			refused++
		}
	}
	all := refused == len(l.recipients) && len(l.returnPaths) == 0 && !l.feedback
	switch {
	case j.DMARC.PolicyUnknown && all:
		return false, policyLookupError(j)
	case j.DMARC.PolicyUnknown:
		return false, nil
	case all:
		return false, l.policyError(ctx, j)
	}
	for n := range junk {
		l.recipients[n].toJunk = junk[n]
	}
	return true, nil
}

func policyLookupError(j *mailauth.Results) error {
	return fault.New(fault.Unavailable, CodeDMARCTempError, "The DMARC policy of %s could not be looked up, and nothing else shows that the message is its own; try again later", j.DMARC.AuthorDomain)
}

// hasForwardOnly reports whether a recipient has no mailbox here. It would lose a message that
// can't be forwarded.
func (l *Transaction) hasForwardOnly() bool {
	return slices.ContainsFunc(l.forwards, func(o forward) bool {
		return !slices.ContainsFunc(l.recipients, func(r recipient) bool { return slices.Contains(r.addresses, o.address) })
	})
}

// maxSPFExplanation is the length, in bytes, of another domain's explanation in a reply.
const maxSPFExplanation = 160

// policyError returns why the message is rejected, with the SPF explanation of the sender's domain
// (RFC 7208 §8.4).
func (l *Transaction) policyError(ctx context.Context, j *mailauth.Results) error {
	why := j.DMARC.Reason
	if why == "" {
		why = "no SPF or DKIM result speaks for it"
	}
	about := j.DMARC.AuthorDomain
	if len(about) > 100 {
		about = "its author's domain"
	}
	if j.DMARC.AuthorProblem != "" {
		return fault.New(fault.Denied, CodeUnclearAuthor, "The author of this message can't be told: %s. Send it with one From field of the form Name <you@example.com>", why)
	}
	text := "The DMARC policy of " + about + " refuses this message: " + why
	if said := strings.TrimSpace(j.SPF.Explain(ctx)); said != "" {
		text += "; the sender's domain says: " + said[:min(len(said), maxSPFExplanation)]
	}
	return fault.New(fault.Denied, CodeDMARC, "%s", text)
}
