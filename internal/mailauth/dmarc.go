// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/message"
)

// Policy is what a domain wants done with mail in its name that it did not
// send (RFC 9989 §4.7).
type Policy string

// The policies, from soft to hard.
const (
	PolicyNone       Policy = "none"
	PolicyQuarantine Policy = "quarantine"
	PolicyReject     Policy = "reject"
)

// stricterPolicy returns the harder of two policies.
func stricterPolicy(a, b Policy) Policy {
	order := []Policy{"", PolicyNone, PolicyQuarantine, PolicyReject}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// DMARC says whether the domain of a message's From stands behind it
// (RFC 9989).
type DMARC struct {
	Result       Result // none, pass, fail, temperror or permerror
	Reason       string
	AuthorDomain string // the author's domain, A-labels; of several the one that decided
	// Policy is what is to be done; PolicyNone unless something is.
	Policy Policy
	// TrustedSealer is the trusted one who has seen the message pass, so that
	// Policy is PolicyNone although Result is Fail.
	TrustedSealer string
	// PolicyUnknown says that the policy could not be looked up and that nothing else
	// speaks for the author: the message may be asked for again.
	PolicyUnknown bool
	// AuthorProblem is why the author can't be told, which DMARC leaves to the receiver
	// (RFC 7489 §6.6.1): Policy is PolicyQuarantine at least, and PolicyReject for
	// what has no From field, or several, or more domains than are looked at.
	AuthorProblem message.AuthorProblem
}

// maxAuthorDomains is how many domains of authors are looked at.
const maxAuthorDomains = 5

// authorDomains are the domains that a message claims to be from.
type authorDomains struct {
	problem   message.AuthorProblem
	domains   []string // each once; with a doubt those that some reader may see
	truncated bool     // there may be others, whose policies are not asked for
}

func (h *headerIndex) authors() authorDomains {
	var values [][]byte
	for _, field := range h.fields["from"] {
		values = append(values, bytes.TrimRight(field[bytes.IndexByte(field, ':')+1:], "\r\n"))
	}
	from := message.ReadAuthors(values)
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

// authIdentifier is an identifier that a check has spoken of.
type authIdentifier struct {
	domain string
	spf    bool
	result Result
}

// evaluateDMARC puts the results of SPF and DKIM together. A message that claims
// to be from several domains passes only if all stand behind it; one whose
// author can't be told passes never.
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
		worst.Policy = PolicyReject // one of the others may ask for that
	}
	return worst.withAuthorProblem(t.authors.problem)
}

// withAuthorProblem is d for a message whose author can't be told, if there is a doubt.
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

// CheckAuthor is what the header alone tells of a message that is not judged by the DNS.
func CheckAuthor(h message.Header) DMARC {
	return DMARC{Policy: PolicyNone}.withAuthorProblem(h.Authors().Problem)
}

// worseThan orders results by what is to be done, then by what they are.
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

// evaluate judges for one author's domain.
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

// maybeAligned is alignment as far as it can be told without the policy.
func maybeAligned(author, id string) bool {
	return id == author || !address.IsPublicSuffix(id) && isSubdomainOf(author, id) || !address.IsPublicSuffix(author) && isSubdomainOf(id, author)
}

// requestedPolicy is what a record asks for mail from a domain, a step softer while it
// is being tested. pct= of RFC 7489 counts as a test if it is not 100.
func (f *dmarcFinder) requestedPolicy(ctx context.Context, r *dmarcRecord, author string) Policy {
	p := r.p
	if r.domain != author {
		if r.sp != "" {
			p = r.sp
		}
		if r.np != "" && r.np != p {
			// Should it not be known whether the domain exists, the softer holds.
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
