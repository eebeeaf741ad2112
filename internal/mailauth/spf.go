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
	maxVoid    = 2  // terms with questions that have no answer
	maxMXHosts = 10 // of one mx
	maxPTR     = 10 // names of the client that are looked at
)

// SPF is what the owner of a domain says of the host that a message came from
// (RFC 7208).
type SPF struct {
	Result Result
	Domain string // whose record was asked for, A-labels
	Helo   bool   // it is that of HELO, as the sender is null
	Reason string // of anything but a clear answer, for people

	check *spfCheck
	exp   string // where the domain explains a fail
}

// Client is the other end of an SMTP session, and what it said.
type Client struct {
	IP   netip.Addr
	Helo string
	From string // MAIL FROM without brackets, its domain in A-labels; empty for the null sender
}

// JudgeSPF asks whether a client may send for the domain of its MAIL FROM, or
// of its HELO with the null sender. It asks at most 10 terms that need the
// DNS, each at most 11 questions; ctx bounds its time, and running out of it
// is a TempError.
func JudgeSPF(ctx context.Context, r *dns.Resolver, c Client) SPF {
	sender, helo := c.From, c.From == ""
	if helo {
		sender = "postmaster@" + c.Helo
	}
	at := strings.LastIndexByte(sender, '@')
	out := SPF{Result: None, Helo: helo}
	switch at {
	case -1:
		return out
	case 0: // RFC 7208 §4.3
		sender, at = "postmaster"+sender, len("postmaster")
	}
	out.Domain = strings.ToLower(strings.TrimSuffix(sender[at+1:], "."))
	s := &spfCheck{
		dns: r, ip: c.IP.Unmap().WithZone(""), local: sender[:at], origin: sender[at+1:], helo: c.Helo,
	}
	out.Result, out.exp = s.host(ctx, out.Domain)
	out.Reason, out.check = s.reason, s
	if len(out.Domain) > 253 || out.Result == None && !fullName(out.Domain) {
		out.Domain = ""
	}
	return out
}

// Explain asks what the domain wants people to be told of its fail (RFC 7208
// §6.2): printable ASCII of at most 255 characters, and someone else's words;
// "" if there is nothing.
func (s *SPF) Explain(ctx context.Context) string {
	if s.Result != Fail || s.exp == "" {
		return ""
	}
	target, ok := s.check.name(ctx, s.exp, s.check.at)
	if !ok {
		return ""
	}
	answer, err := s.check.dns.TXT(ctx, target)
	if err != nil || len(answer.Records) != 1 || len(answer.Records[0]) > maxRecord {
		return ""
	}
	text := answer.Records[0]
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return ""
		}
	}
	if !validMacros(text, true) {
		return ""
	}
	text = s.check.expand(ctx, text, s.check.at)
	return text[:min(len(text), 255)]
}

// spfCheck is one evaluation with all that it includes.
type spfCheck struct {
	dns                 *dns.Resolver
	ip                  netip.Addr
	local, origin, helo string
	terms, void         int
	voided              bool   // the term in hand is among void
	at                  string // the domain whose record decided
	reason              string
	names               []string // the client's, validated
	looked              bool     // names is known

	include       string // of CheckIncludes, with what is known of it
	inside, after bool
}

// end says why a check came to no clear answer.
func (s *spfCheck) end(r Result, reason string) Result {
	if s.reason == "" {
		s.reason = reason
	}
	return r
}

// fullName reports whether a name has several labels, none of them empty or
// too long (RFC 7208 §4.3).
func fullName(name string) bool {
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

// host is check_host() (RFC 7208 §4). It also returns what is to be explained
// should it fail.
func (s *spfCheck) host(ctx context.Context, domain string) (Result, string) {
	if !fullName(domain) {
		return None, ""
	}
	answer, err := s.dns.TXT(ctx, domain)
	if errors.Is(err, dns.ErrTemporary) {
		return s.end(TempError, "no answer about "+domain), ""
	}
	return s.evaluate(ctx, domain, answer.Records)
}

// evaluate is host for a domain whose TXT records are known.
func (s *spfCheck) evaluate(ctx context.Context, domain string, txts []string) (Result, string) {
	var text string
	found := 0
	for _, txt := range txts {
		if strings.EqualFold(txt, "v=spf1") || begins(txt, "v=spf1 ") {
			text = txt
			found++
		}
	}
	switch {
	case found == 0:
		return None, ""
	case found > 1:
		return s.end(PermError, domain+" has more than one record"), ""
	case len(text) > maxRecord:
		return s.end(PermError, "the record of "+domain+" is too long"), ""
	}
	record, bad := parseSPF(text)
	if bad != "" {
		return s.end(PermError, "the record of "+domain+": "+bad), ""
	}
	s.at = domain
	for i := range record.directives {
		d := &record.directives[i]
		matched, trouble := s.matches(ctx, d, domain)
		if trouble != "" {
			return trouble, ""
		}
		s.at = domain // not that of an include
		if matched {
			return d.result, record.exp
		}
	}
	if record.redirect == "" {
		return Neutral, ""
	}
	return s.redirect(ctx, record.redirect, domain)
}

func (s *spfCheck) redirect(ctx context.Context, to, domain string) (Result, string) {
	if !s.count() {
		return s.end(PermError, "too many terms that ask the DNS"), ""
	}
	if s.anyone() && dependsOnClient(to) {
		return Neutral, ""
	}
	target, ok := s.name(ctx, to, domain)
	if !ok {
		return s.end(PermError, "a redirect to no domain"), ""
	}
	r, exp := s.host(ctx, target)
	if r == None {
		return s.end(PermError, "a redirect to "+target+", which has no record"), ""
	}
	return r, exp
}

// count takes one from the terms that may ask the DNS.
func (s *spfCheck) count() bool {
	s.terms++
	s.voided = false
	return s.terms <= maxSPFLookups
}

// matches tests a mechanism. trouble ends the check.
func (s *spfCheck) matches(ctx context.Context, d *directive, domain string) (matched bool, trouble Result) {
	switch d.kind {
	case "all":
		return true, ""
	case "ip4", "ip6":
		return d.network.Contains(s.ip), ""
	}
	if !s.count() {
		return false, s.end(PermError, "too many terms that ask the DNS")
	}
	if s.anyone() && (d.kind == "ptr" || dependsOnClient(d.domain)) {
		return false, ""
	}
	target := domain
	if d.domain != "" {
		var ok bool
		if target, ok = s.name(ctx, d.domain, domain); !ok {
			target = "" // such a name does not exist
		}
	}
	switch d.kind {
	case "include":
		return s.included(ctx, target)
	case "a":
		return s.address(ctx, target, d)
	case "mx":
		return s.exchangers(ctx, target, d)
	case "ptr":
		for _, name := range s.clientNames(ctx) {
			if target != "" && under(name, target) {
				return true, ""
			}
		}
		return false, ""
	}
	addrs, trouble := s.addrs(ctx, target, true) // exists
	return len(addrs) > 0, trouble
}

func (s *spfCheck) included(ctx context.Context, target string) (bool, Result) {
	r, _ := s.host(ctx, target)
	s.note(target, r)
	switch r {
	case Pass:
		return true, ""
	case None:
		return false, s.end(PermError, "it includes "+shown(target)+", which has no record")
	case TempError, PermError:
		return false, r
	}
	return false, ""
}

func (s *spfCheck) address(ctx context.Context, host string, d *directive) (bool, Result) {
	if s.anyone() {
		_, err := s.dns.Addrs(ctx, host)
		return false, s.lookedUp(err, host)
	}
	addrs, trouble := s.addrs(ctx, host, s.ip.Is4())
	for _, a := range addrs {
		if d.near(a, s.ip) {
			return true, ""
		}
	}
	return false, trouble
}

func (s *spfCheck) exchangers(ctx context.Context, domain string, d *directive) (bool, Result) {
	answer, err := s.dns.MX(ctx, domain)
	if trouble := s.lookedUp(err, "MX of "+domain); trouble != "" {
		return false, trouble
	}
	if len(answer.Records) > maxMXHosts {
		return false, s.end(PermError, domain+" has more than 10 MX records")
	}
	for _, mx := range answer.Records {
		if mx.Host == "." {
			continue
		}
		if matched, trouble := s.address(ctx, mx.Host, d); matched || trouble != "" {
			return matched, trouble
		}
	}
	return false, ""
}

// lookedUp tells what the error of a lookup means: trouble, or an answer
// without records, of which there may be few.
func (s *spfCheck) lookedUp(err error, what string) Result {
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return s.end(TempError, "no answer about "+what)
	case err != nil && !s.voided:
		s.voided = true // an mx may have hosts without addresses of the family
		if s.void++; s.void > maxVoid {
			return s.end(PermError, "too many names that do not exist")
		}
	}
	return ""
}

// addrs looks up a host's addresses of one family.
func (s *spfCheck) addrs(ctx context.Context, host string, four bool) ([]netip.Addr, Result) {
	answer, err := s.dns.Family(ctx, host, four)
	return answer.Records, s.lookedUp(err, host)
}

// clientNames returns the client's validated names (RFC 7208 §5.5), none if
// the DNS is in trouble.
func (s *spfCheck) clientNames(ctx context.Context) []string {
	if s.looked {
		return s.names
	}
	s.looked = true
	answer, err := s.dns.PTR(ctx, s.ip)
	if err != nil {
		return nil
	}
	for _, name := range answer.Records[:min(len(answer.Records), maxPTR)] {
		addrs, err := s.dns.Family(ctx, name, s.ip.Is4())
		if err != nil {
			continue
		}
		for _, a := range addrs.Records {
			if a == s.ip {
				s.names = append(s.names, name)
				break
			}
		}
	}
	return s.names
}

// under reports whether name is domain or below it.
func under(name, domain string) bool {
	name, domain = strings.TrimSuffix(name, "."), strings.TrimSuffix(domain, ".")
	if len(name) == len(domain) {
		return strings.EqualFold(name, domain)
	}
	cut := len(name) - len(domain)
	return cut > 0 && domain != "" && name[cut-1] == '.' && strings.EqualFold(name[cut:], domain)
}
