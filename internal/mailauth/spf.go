// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// Limits of an evaluation (RFC 7208 §4.6.4).
const (
	maxVoidLookups = 2  // terms whose queries have no answer
	maxMXHosts     = 10 // per mx
	maxPTRNames    = 10 // names of the client that are checked
)

// SPF is the SPF result for the host that sent a message (RFC 7208).
type SPF struct {
	Result   Result
	Domain   string // domain of the record, A-labels
	FromHelo bool   // whether the domain is that of HELO, because the sender is null
	Reason   string // explanation for people, without a clear result

	check       *spfEvaluation
	explainSpec string // domain-spec of the explanation of a fail
}

// ClientIdentity is the client of an SMTP session.
type ClientIdentity struct {
	IP   netip.Addr
	Helo string
	From string // MAIL FROM without brackets, its domain in A-labels; empty for the null sender
}

// VerifySPF checks whether a client may send for the domain of its MAIL FROM, or of its HELO with
// the null sender. It evaluates at most 10 terms that need DNS, each with at most 11 queries. ctx
// limits its time; a timeout is a TempError.
func VerifySPF(ctx context.Context, r *dns.Resolver, c ClientIdentity) SPF {
	sender, helo := c.From, c.From == ""
	if helo {
		sender = "postmaster@" + c.Helo
	}
	at := strings.LastIndexByte(sender, '@')
	out := SPF{Result: None, FromHelo: helo}
	switch at {
	case -1:
		return out
	case 0: // RFC 7208 §4.3
		sender, at = "postmaster"+sender, len("postmaster")
	}
	out.Domain = strings.ToLower(strings.TrimSuffix(sender[at+1:], "."))
	s := &spfEvaluation{
		dns: r, ip: c.IP.Unmap().WithZone(""), localPart: sender[:at], senderDomain: sender[at+1:], helo: c.Helo,
	}
	out.Result, out.explainSpec = s.checkHost(ctx, out.Domain)
	out.Reason, out.check = s.reason, s
	if len(out.Domain) > 253 || out.Result == None && !isFQDN(out.Domain) {
		out.Domain = ""
	}
	return out
}

// Explain returns the domain's explanation of a fail (RFC 7208 §6.2), or "". It is at most 255
// characters of printable ASCII, written by a third party.
func (s *SPF) Explain(ctx context.Context) string {
	if s.Result != Fail || s.explainSpec == "" {
		return ""
	}
	target, ok := s.check.expandDomain(ctx, s.explainSpec, s.check.recordDomain)
	if !ok {
		return ""
	}
	answer, err := s.check.dns.TXT(ctx, target)
	if err != nil || len(answer.Records) != 1 || len(answer.Records[0]) > maxRecordSize {
		return ""
	}
	text := answer.Records[0]
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return ""
		}
	}
	if !isMacroString(text, true) {
		return ""
	}
	text = s.check.expand(ctx, text, s.check.recordDomain)
	return text[:min(len(text), 255)]
}

// spfEvaluation is one evaluation with all its includes.
type spfEvaluation struct {
	dns                           *dns.Resolver
	ip                            netip.Addr
	localPart, senderDomain, helo string
	dnsTerms, voidLookups         int
	termWasVoid                   bool   // whether the current term counts in voidLookups
	recordDomain                  string // domain whose record decided
	reason                        string
	validatedNames                []string // validated names of the client
	namesKnown                    bool     // whether validatedNames is set

	requiredInclude         string // for CheckSPFIncludes, with its position below
	inInclude, afterInclude bool
}

// failWith records the reason of an unclear result and returns the result.
func (s *spfEvaluation) failWith(r Result, reason string) Result {
	if s.reason == "" {
		s.reason = reason
	}
	return r
}

// isFQDN reports whether a name has several labels, none of them empty or too long (RFC 7208 §4.3).
func isFQDN(name string) bool {
	if len(name) > 253 || !strings.Contains(name, ".") {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// checkHost is check_host() (RFC 7208 §4). It also returns the domain-spec of the explanation.
func (s *spfEvaluation) checkHost(ctx context.Context, domain string) (Result, string) {
	if !isFQDN(domain) {
		return None, ""
	}
	answer, err := s.dns.TXT(ctx, domain)
	if errors.Is(err, dns.ErrTemporary) {
		return s.failWith(TempError, "no answer about "+domain), ""
	}
	return s.evaluate(ctx, domain, answer.Records)
}

// evaluate is checkHost for a domain with known TXT records.
func (s *spfEvaluation) evaluate(ctx context.Context, domain string, txts []string) (Result, string) {
	var text string
	found := 0
	for _, txt := range txts {
		if strings.EqualFold(txt, "v=spf1") || hasPrefixFold(txt, "v=spf1 ") {
			text = txt
			found++
		}
	}
	switch {
	case found == 0:
		return None, ""
	case found > 1:
		return s.failWith(PermError, domain+" has more than one record"), ""
	case len(text) > maxRecordSize:
		return s.failWith(PermError, "the record of "+domain+" is too long"), ""
	}
	record, bad := parseSPF(text)
	if bad != "" {
		return s.failWith(PermError, "the record of "+domain+": "+bad), ""
	}
	s.recordDomain = domain
	for i := range record.directives {
		d := &record.directives[i]
		matched, trouble := s.matches(ctx, d, domain)
		if trouble != "" {
			return trouble, ""
		}
		s.recordDomain = domain // not an include's domain
		if matched {
			return d.result, record.exp
		}
	}
	if record.redirect == "" {
		return Neutral, ""
	}
	return s.redirect(ctx, record.redirect, domain)
}

func (s *spfEvaluation) redirect(ctx context.Context, to, domain string) (Result, string) {
	if !s.countLookup() {
		return s.failWith(PermError, "too many terms that ask the DNS"), ""
	}
	if s.isClientUnknown() && dependsOnClient(to) {
		return Neutral, ""
	}
	target, ok := s.expandDomain(ctx, to, domain)
	if !ok {
		return s.failWith(PermError, "a redirect to no domain"), ""
	}
	r, exp := s.checkHost(ctx, target)
	if r == None {
		return s.failWith(PermError, "a redirect to "+target+", which has no record"), ""
	}
	return r, exp
}

// countLookup counts a term that needs DNS, and reports whether it is within the limit.
func (s *spfEvaluation) countLookup() bool {
	s.dnsTerms++
	s.termWasVoid = false
	return s.dnsTerms <= maxSPFLookups
}

// matches evaluates a mechanism. A non-empty trouble ends the evaluation.
func (s *spfEvaluation) matches(ctx context.Context, d *directive, domain string) (matched bool, trouble Result) {
	switch d.kind {
	case "all":
		return true, ""
	case "ip4", "ip6":
		return d.network.Contains(s.ip), ""
	}
	if !s.countLookup() {
		return false, s.failWith(PermError, "too many terms that ask the DNS")
	}
	if s.isClientUnknown() && (d.kind == "ptr" || dependsOnClient(d.domain)) {
		return false, ""
	}
	target := domain
	if d.domain != "" {
		var ok bool
		if target, ok = s.expandDomain(ctx, d.domain, domain); !ok {
			target = "" // no such name exists
		}
	}
	switch d.kind {
	case "include":
		return s.matchInclude(ctx, target)
	case "a":
		return s.matchA(ctx, target, d)
	case "mx":
		return s.matchMX(ctx, target, d)
	case "ptr":
		for _, name := range s.clientNames(ctx) {
			if target != "" && isSubdomainOf(name, target) {
				return true, ""
			}
		}
		return false, ""
	}
	addrs, trouble := s.lookupAddrs(ctx, target, true) // exists
	return len(addrs) > 0, trouble
}

func (s *spfEvaluation) matchInclude(ctx context.Context, target string) (bool, Result) {
	r, _ := s.checkHost(ctx, target)
	s.trackRequiredInclude(target, r)
	switch r {
	case Pass:
		return true, ""
	case None:
		return false, s.failWith(PermError, "it includes "+printable(target)+", which has no record")
	case TempError, PermError:
		return false, r
	}
	return false, ""
}

func (s *spfEvaluation) matchA(ctx context.Context, host string, d *directive) (bool, Result) {
	if s.isClientUnknown() {
		_, err := s.dns.Addrs(ctx, host)
		return false, s.lookupProblem(err, host)
	}
	addrs, trouble := s.lookupAddrs(ctx, host, s.ip.Is4())
	for _, a := range addrs {
		if d.inNetwork(a, s.ip) {
			return true, ""
		}
	}
	return false, trouble
}

func (s *spfEvaluation) matchMX(ctx context.Context, domain string, d *directive) (bool, Result) {
	answer, err := s.dns.MX(ctx, domain)
	if trouble := s.lookupProblem(err, "MX of "+domain); trouble != "" {
		return false, trouble
	}
	if len(answer.Records) > maxMXHosts {
		return false, s.failWith(PermError, domain+" has more than 10 MX records")
	}
	for _, mx := range answer.Records {
		if mx.Host == "." {
			continue
		}
		if matched, trouble := s.matchA(ctx, mx.Host, d); matched || trouble != "" {
			return matched, trouble
		}
	}
	return false, ""
}

// lookupProblem returns the result for a failed lookup: a temporary error, or too many answers
// without records.
func (s *spfEvaluation) lookupProblem(err error, what string) Result {
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return s.failWith(TempError, "no answer about "+what)
	case err != nil && !s.termWasVoid:
		s.termWasVoid = true // an mx may have hosts without addresses of that family
		if s.voidLookups++; s.voidLookups > maxVoidLookups {
			return s.failWith(PermError, "too many names that do not exist")
		}
	}
	return ""
}

// lookupAddrs looks up a host's addresses of one family.
func (s *spfEvaluation) lookupAddrs(ctx context.Context, host string, four bool) ([]netip.Addr, Result) {
	answer, err := s.dns.AddrsByFamily(ctx, host, four)
	return answer.Records, s.lookupProblem(err, host)
}

// clientNames returns the client's validated names (RFC 7208 §5.5), or none after a DNS error.
func (s *spfEvaluation) clientNames(ctx context.Context) []string {
	if s.namesKnown {
		return s.validatedNames
	}
	s.namesKnown = true
	answer, err := s.dns.PTR(ctx, s.ip)
	if err != nil {
		return nil
	}
	for _, name := range answer.Records[:min(len(answer.Records), maxPTRNames)] {
		addrs, err := s.dns.AddrsByFamily(ctx, name, s.ip.Is4())
		if err != nil {
			continue
		}
		for _, a := range addrs.Records {
			if a == s.ip {
				s.validatedNames = append(s.validatedNames, name)
				break
			}
		}
	}
	return s.validatedNames
}

// isSubdomainOf reports whether name is domain or one of its subdomains.
func isSubdomainOf(name, domain string) bool {
	name, domain = strings.TrimSuffix(name, "."), strings.TrimSuffix(domain, ".")
	if len(name) == len(domain) {
		return strings.EqualFold(name, domain)
	}
	cut := len(name) - len(domain)
	return cut > 0 && domain != "" && name[cut-1] == '.' && strings.EqualFold(name[cut:], domain)
}
