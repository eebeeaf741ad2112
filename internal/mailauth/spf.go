// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// The limits of a check (RFC 7208 §4.6.4).
const (
	maxVoidLookups = 2  // terms with questions that have no answer
	maxMXHosts     = 10 // of one mx
	maxPTRNames    = 10 // names of the client that are looked at
)

// SPF is what the owner of a domain says of the host that a message came from
// (RFC 7208).
type SPF struct {
	Result   Result
	Domain   string // whose record was asked for, A-labels
	FromHelo bool   // it is that of HELO, as the sender is null
	Reason   string // of anything but a clear answer, for people

	check       *spfEvaluation
	explainSpec string // where the domain explains a fail
}

// Client is the other end of an SMTP session, and what it said.
type Client struct {
	IP   netip.Addr
	Helo string
	From string // MAIL FROM without brackets, its domain in A-labels; empty for the null sender
}

// VerifySPF asks whether a client may send for the domain of its MAIL FROM, or
// of its HELO with the null sender. It asks at most 10 terms that need the
// DNS, each at most 11 questions; ctx bounds its time, and running out of it
// is a TempError.
func VerifySPF(ctx context.Context, r *dns.Resolver, c Client) SPF {
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

// Explain asks what the domain wants people to be told of its fail (RFC 7208
// §6.2): printable ASCII of at most 255 characters, and someone else's words;
// "" if there is nothing.
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

// spfEvaluation is one evaluation with all that it includes.
type spfEvaluation struct {
	dns                           *dns.Resolver
	ip                            netip.Addr
	localPart, senderDomain, helo string
	dnsTerms, voidLookups         int
	termWasVoid                   bool   // the term in hand is among void
	recordDomain                  string // the domain whose record decided
	reason                        string
	validatedNames                []string // the client's, validated
	namesKnown                    bool     // names is known

	requiredInclude         string // of CheckSPFIncludes, with what is known of it
	inInclude, afterInclude bool
}

// failWith says why a check came to no clear answer.
func (s *spfEvaluation) failWith(r Result, reason string) Result {
	if s.reason == "" {
		s.reason = reason
	}
	return r
}

// isFQDN reports whether a name has several labels, none of them empty or
// too long (RFC 7208 §4.3).
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

// checkHost is check_host() (RFC 7208 §4). It also returns what is to be explained
// should it fail.
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

// evaluate is host for a domain whose TXT records are known.
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
		s.recordDomain = domain // not that of an include
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

// countLookup takes one from the terms that may ask the DNS.
func (s *spfEvaluation) countLookup() bool {
	s.dnsTerms++
	s.termWasVoid = false
	return s.dnsTerms <= maxSPFLookups
}

// matches tests a mechanism. trouble ends the check.
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
			target = "" // such a name does not exist
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
	s.noteInclude(target, r)
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

// lookupProblem tells what the error of a lookup means: trouble, or an answer
// without records, of which there may be few.
func (s *spfEvaluation) lookupProblem(err error, what string) Result {
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return s.failWith(TempError, "no answer about "+what)
	case err != nil && !s.termWasVoid:
		s.termWasVoid = true // an mx may have hosts without addresses of the family
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

// clientNames returns the client's validated names (RFC 7208 §5.5), none if
// the DNS is in trouble.
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

// isSubdomainOf reports whether name is domain or below it.
func isSubdomainOf(name, domain string) bool {
	name, domain = strings.TrimSuffix(name, "."), strings.TrimSuffix(domain, ".")
	if len(name) == len(domain) {
		return strings.EqualFold(name, domain)
	}
	cut := len(name) - len(domain)
	return cut > 0 && domain != "" && name[cut-1] == '.' && strings.EqualFold(name[cut:], domain)
}
