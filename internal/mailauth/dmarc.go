// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/message"
)

// Policy is how a domain wants receivers to treat mail that fails DMARC (RFC 9989 §4.7).
type Policy string

// Policies, from lenient to strict.
const (
	PolicyNone       Policy = "none"
	PolicyQuarantine Policy = "quarantine"
	PolicyReject     Policy = "reject"
)

// stricterPolicy returns the stricter of two policies.
func stricterPolicy(a, b Policy) Policy {
	order := []Policy{"", PolicyNone, PolicyQuarantine, PolicyReject}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// DMARC is the DMARC result for the domain of a message's From (RFC 9989).
type DMARC struct {
	Result       Result // none, pass, fail, temperror or permerror
	Reason       string
	AuthorDomain string // the author's domain, A-labels; the decisive one if there are several
	// Policy is the policy to apply; PolicyNone if there is nothing to do.
	Policy Policy
	// TrustedSealer is the trusted forwarder that reported a pass, so that Policy is PolicyNone
	// although Result is Fail.
	TrustedSealer string
	// PolicyUnknown reports whether the policy lookup failed and nothing else authenticates the
	// author. The receiver may defer the message.
	PolicyUnknown bool
	// AuthorProblem is why the author is unclear, which DMARC leaves to the receiver (RFC 7489
	// §6.6.1). Policy is then at least PolicyQuarantine. It is PolicyReject without a From field,
	// with several, or with more domains than maxAuthorDomains.
	AuthorProblem message.AuthorProblem
}

// maxAuthorDomains is the number of author domains that are evaluated.
const maxAuthorDomains = 5

// authorDomains are the domains of a message's authors.
type authorDomains struct {
	problem   message.AuthorProblem
	domains   []string // without duplicates; if the author is unclear, those that any reader may show
	truncated bool     // whether there may be other domains, whose policies are not looked up
}

func (h *headerIndex) authors() authorDomains {
	var values [][]byte
	for _, field := range h.fields["from"] {
		values = append(values, bytes.TrimRight(field[bytes.IndexByte(field, ':')+1:], "\r\n"))
	}
	from := message.ParseAuthors(values)
	a := authorDomains{problem: from.Problem, truncated: len(from.List) == message.MaxAuthors}
	for _, one := range from.List {
		domain, err := address.ParseMailDomain(one.Domain)
		switch {
		case err != nil || slices.Contains(a.domains, domain):
		case len(a.domains) == maxAuthorDomains:
			a.truncated = true
		default:
			a.domains = append(a.domains, domain)
		}
	}
	return a
}

// authIdentifier is a domain that SPF or DKIM checked.
type authIdentifier struct {
	domain string
	spf    bool
	result Result
}

// evaluateDMARC combines the results of SPF and DKIM. A message with several author domains passes
// only if all of them pass. A message with an unclear author never passes.
func (t *Verification) evaluateDMARC(ctx context.Context, f *dmarcFinder, ids []authIdentifier, trusted []string) DMARC {
	worst := DMARC{Policy: PolicyNone}
	for n, author := range t.authors.domains {
		one := f.evaluate(ctx, author, ids)
		if one.Result == Fail && t.authors.problem == "" {
			if one.TrustedSealer = t.arc.TrustedSealer(author, trusted); one.TrustedSealer != "" {
				one.Policy = PolicyNone
			}
		}
		if n == 0 || worseThan(one, worst) {
			worst = one
		}
	}
	if t.authors.problem != "" && t.authors.truncated {
		worst.Policy = PolicyReject // a policy that wasn't looked up may be reject
	}
	return worst.withAuthorProblem(t.authors.problem)
}

// withAuthorProblem returns d for a message whose author is unclear for the given reason; d itself
// if the reason is "".
func (d DMARC) withAuthorProblem(doubt message.AuthorProblem) DMARC {
	if doubt == "" {
		return d
	}
	least := PolicyQuarantine
	if doubt == message.NoFrom || doubt == message.ManyFrom {
		least = PolicyReject
	}
	d.AuthorProblem, d.Result, d.Reason, d.PolicyUnknown, d.Policy = doubt, PermError, doubt.String(), false, stricterPolicy(d.Policy, least)
	return d
}

// CheckAuthor returns the DMARC result from the header alone, without DNS.
func CheckAuthor(h message.Header) DMARC {
	return DMARC{Policy: PolicyNone}.withAuthorProblem(h.Authors().Problem)
}

// worseThan compares results by policy first, then by result.
func worseThan(a, b DMARC) bool {
	if a.Policy != b.Policy {
		return stricterPolicy(a.Policy, b.Policy) == a.Policy
	}
	if a.PolicyUnknown != b.PolicyUnknown {
		return a.PolicyUnknown
	}
	order := []Result{Pass, None, TempError, PermError, Fail}
	return slices.Index(order, a.Result) > slices.Index(order, b.Result)
}

// evaluate evaluates DMARC for one author's domain.
func (f *dmarcFinder) evaluate(ctx context.Context, author string, ids []authIdentifier) DMARC {
	d := DMARC{AuthorDomain: author, Policy: PolicyNone}
	record, err := f.policyRecord(ctx, author)
	if err != nil {
		d.Result, d.Reason = TempError, "no answer about the policy"
		d.PolicyUnknown = !slices.ContainsFunc(ids, func(id authIdentifier) bool { return id.result == Pass && maybeAligned(author, id.domain) })
		return d
	}
	if record == nil || record.invalid {
		d.Result = None
		return d
	}
	d.Result = Fail
	for _, id := range ids {
		if id.result != Pass && (id.result != TempError || d.Result == TempError) {
			continue
		}
		strict := record.strictDKIM
		if id.spf {
			strict = record.strictSPF
		}
		switch ok, err := f.isAligned(ctx, author, id.domain, strict); {
		case err != nil:
			d.Result, d.Reason = TempError, "no answer about what belongs together"
		case ok && id.result == Pass:
			d.Result, d.Reason = Pass, ""
			return d
		case ok:
			d.Result, d.Reason = TempError, "what speaks for it could not be looked up"
		}
	}
	if d.Result == Fail {
		d.Policy = f.requestedPolicy(ctx, record, author)
	}
	return d
}

// maybeAligned reports whether two domains may be aligned, as far as that is known without the
// policy.
func maybeAligned(author, id string) bool {
	return id == author || !address.IsPublicSuffix(id) && isSubdomainOf(author, id) || !address.IsPublicSuffix(author) && isSubdomainOf(id, author)
}

// requestedPolicy returns the policy that a record requests for a domain, one level more lenient in
// test mode. RFC 7489's pct= counts as test mode unless it is 100.
func (f *dmarcFinder) requestedPolicy(ctx context.Context, r *dmarcRecord, author string) Policy {
	p := r.p
	if r.domain != author {
		if r.sp != "" {
			p = r.sp
		}
		if r.np != "" && r.np != p {
			// If it is unknown whether the domain exists, the more lenient policy applies.
			there, err := f.domainExists(ctx, author)
			if err == nil && !there || err != nil && stricterPolicy(r.np, p) == p {
				p = r.np
			}
		}
	}
	if !r.testing {
		return p
	}
	if p == PolicyReject {
		return PolicyQuarantine
	}
	return PolicyNone
}
