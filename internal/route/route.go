// SPDX-License-Identifier: Apache-2.0

// Package route knows where a destination's mail goes: the hosts to try, in
// their order, with their addresses (RFC 5321 §5.1), or the smart host that
// takes it all; and what their TLS must prove, by DANE (RFC 7672) or the
// domain's MTA-STS policy (RFC 8461). No plan leads to an address that
// strangers' DNS must not lead us to, or back to ourselves.
package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Bounds of a plan, however much DNS offers.
const (
	maxHosts     = 10
	maxPerHost   = 6
	maxAddresses = 20
)

// Router plans the ways of mail. Its fields are set before use and not
// changed. It is safe for concurrent use.
type Router struct {
	DNS *dns.Resolver
	// Name is our own host name. MX records that name it, or a host at one of
	// its addresses, are ourselves.
	Name string
	// Own are more addresses of ours.
	Own []netip.Addr
	// Allow are networks that mail may go to although they are not public, or
	// although they are our own.
	Allow []netip.Prefix
	Port  uint16 // that MX hosts are dialled on; 0: 25
	// Smart, if set, takes the mail for every destination.
	Smart *SmartHost
	// Held, if set, reports whether a domain is held by an account here. If
	// its MX records lead to us all the same, it is moving in: an error that
	// passes, where it is a loop for others.
	Held func(ctx context.Context, domain string) (bool, error)
	// STS, if set, knows the MTA-STS policies of domains. DANE needs no more
	// than a resolver that is trusted to validate.
	STS *STS
	// Roots are the authorities for certificates that must be valid; nil: the
	// system's.
	Roots *x509.CertPool

	lax bool // DANE does not matter
}

// Plan is where a destination's mail goes.
type Plan struct {
	Hosts []Host // in the order to try; at least one
	// Via is "relay" when the host is a smart host; else empty.
	Via string
	// Notes tell, for the story of each delivery, what the domain's policies
	// had against hosts, or would have if they were enforced.
	Notes []string
}

// Host is a host to try, with how to talk to it.
type Host struct {
	Name  string
	Addrs []netip.AddrPort // in the order to try, at least one

	TLS    smtpclient.TLSMode
	Verify bool             // check the certificate against Name
	Auth   *smtpclient.Auth // nil: none

	// What smtpclient.Options say under the same names.
	TLSConfig             *tls.Config
	Policy, Demand, Audit string
}

// Error tells why a destination as a whole can't be sent to. Every error of
// Hosts is one, unless ctx has ended.
type Error struct {
	Permanent bool     // trying again is in vain
	Code      int      // the reply that a server would give for it
	Enhanced  string   // RFC 3463
	Reason    string   // for people
	Stage     string   // "dns", or "policy" where DANE or MTA-STS stand in the way
	Cause     error    // for the log; may be nil
	Notes     []string // as in a Plan
}

// Error returns the codes and the reason.
func (e *Error) Error() string {
	s := e.Enhanced + " " + e.Reason
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// The destination-level failures.
var (
	errNoDomain  = Error{Permanent: true, Code: 550, Enhanced: "5.1.2", Reason: "the domain does not exist"}
	errNoMail    = Error{Permanent: true, Code: 556, Enhanced: "5.1.10", Reason: "the domain accepts no mail (null MX)"}
	errNoHost    = Error{Permanent: true, Code: 550, Enhanced: "5.4.4", Reason: "the domain has neither MX nor address records"}
	errLoop      = Error{Permanent: true, Code: 554, Enhanced: "5.4.6", Reason: "the domain's MX leads to this server, which does not serve it"}
	errMovingIn  = Error{Code: 451, Enhanced: "4.4.6", Reason: "the domain's MX leads to this server, which has not verified that yet"}
	errDNS       = Error{Code: 451, Enhanced: "4.4.3", Reason: "the DNS gave no answer about the domain"}
	errNoAddress = Error{Code: 451, Enhanced: "4.4.4", Reason: "none of the domain's mail hosts has an address that mail may be sent to"}
	errNoPolicy  = Error{Code: 451, Enhanced: "4.7.0", Stage: "policy", Reason: "the domain's MTA-STS policy could not be found out yet"}
	errNoSmart   = Error{Code: 451, Enhanced: "4.4.3", Reason: "the relay's address could not be found out"}
)

// because returns the failure with its cause.
func (e Error) because(cause error) error {
	e.Cause = cause
	if e.Stage == "" {
		e.Stage = "dns"
	}
	return &e
}

// Hosts plans the way to a domain (A-labels). Hosts of equal preference are
// shuffled anew at each call, and so are the addresses of a host, IPv6 and IPv4
// by turns. The error is an *Error, or the context's.
func (r *Router) Hosts(ctx context.Context, domain string) (Plan, error) {
	plan, err := r.plan(ctx, domain)
	if err != nil && ctx.Err() != nil {
		return Plan{}, context.Cause(ctx)
	}
	return plan, err
}

// HostsAnyhow is Hosts without DANE and MTA-STS, for a message that says that
// it does not need them (RFC 8689 §3).
func (r *Router) HostsAnyhow(ctx context.Context, domain string) (Plan, error) {
	lax := *r
	lax.STS, lax.lax = nil, true
	return lax.Hosts(ctx, domain)
}

// Loops reports whether DNS leads the mail of a domain back to this server.
func (r *Router) Loops(ctx context.Context, domain string) bool {
	direct := *r
	direct.Smart, direct.STS = nil, nil
	_, err := direct.Hosts(ctx, domain)
	var why *Error
	return errors.As(err, &why) && why.Enhanced == errLoop.Enhanced
}

func (r *Router) plan(ctx context.Context, domain string) (Plan, error) {
	if r.Smart != nil {
		return r.smart(ctx)
	}
	var sts *Policy
	var stsErr error
	var work sync.WaitGroup
	if r.STS != nil {
		work.Go(func() { sts, stsErr = r.STS.Policy(ctx, domain) })
	}
	t, err := r.exchangers(ctx, domain)
	var found []candidate
	if err == nil {
		found = r.lookUp(ctx, t)
	}
	work.Wait()
	switch {
	case err != nil:
		return Plan{}, err
	case stsErr != nil:
		return Plan{}, errNoPolicy.because(stsErr)
	}
	if own := slices.IndexFunc(found, func(c candidate) bool { return c.own }); own >= 0 {
		// We are a relay for the domain: only better ones may be tried (RFC
		// 5321 §5.1).
		limit := found[own].preference
		found = slices.DeleteFunc(found, func(c candidate) bool { return c.preference >= limit })
		if len(found) == 0 {
			return Plan{}, r.loop(ctx, domain)
		}
	}
	if err := found[0].err; t.implicit && (errors.Is(err, dns.ErrNotFound) || errors.Is(err, dns.ErrNoData)) {
		return Plan{}, errNoHost.because(err)
	}
	return r.choose(demands{domain: domain, sts: sts}, found)
}

// target is what DNS says of a domain's mail.
type target struct {
	hosts    []dns.MX // in the order to try
	implicit bool     // the domain itself, in place of MX records
	// signed tells that this is proven by DNSSEC; next are then the names of
	// the domain, before and after CNAMEs.
	signed bool
	next   []string
}

// exchangers returns the MX records in the order to try, or the domain itself
// in place of them: the implicit MX.
func (r *Router) exchangers(ctx context.Context, domain string) (target, error) {
	res, err := r.DNS.MX(ctx, domain)
	t := target{signed: res.Authentic, next: []string{domain}}
	if res.Canonical != "" && res.Canonical != domain {
		t.next = append(t.next, res.Canonical)
	}
	switch {
	case errors.Is(err, dns.ErrNotFound):
		return t, errNoDomain.because(err)
	case errors.Is(err, dns.ErrNoData):
		t.hosts, t.implicit = []dns.MX{{Host: domain}}, true
	case err != nil:
		return t, errDNS.because(err)
	case dns.NullMX(res.Records):
		return t, errNoMail.because(nil)
	default:
		t.hosts = order(res.Records, r.Name)
	}
	return t, nil
}

// order shuffles records of equal preference, and drops what is named twice
// and what is too much. Our own name, wherever it stands, comes first among its
// equals: nothing behind it is tried.
func order(records []dns.MX, own string) []dns.MX {
	list := slices.Clone(records)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(a, b dns.MX) int {
		if a.Preference != b.Preference {
			return int(a.Preference) - int(b.Preference)
		}
		switch own {
		case a.Host:
			return -1
		case b.Host:
			return 1
		}
		return 0
	})
	seen := map[string]bool{}
	list = slices.DeleteFunc(list, func(m dns.MX) bool {
		twice := seen[m.Host]
		seen[m.Host] = true
		return twice
	})
	return list[:min(len(list), maxHosts)]
}

// candidate is a host with what DNS says of it.
type candidate struct {
	name       string
	preference uint16
	own        bool
	addrs      []netip.Addr
	err        error
	pins       *pins // nil: DANE has nothing to say
	pinsErr    error
}

// lookUp finds the hosts' addresses, and ourselves among them, and their pins.
func (r *Router) lookUp(ctx context.Context, t target) []candidate {
	found := make([]candidate, len(t.hosts))
	var own []netip.Addr
	var work sync.WaitGroup
	work.Go(func() { own = r.ownAddresses(ctx) })
	for i, m := range t.hosts {
		found[i] = candidate{name: m.Host, preference: m.Preference}
		work.Go(func() {
			c := &found[i]
			res, err := r.DNS.Addrs(ctx, m.Host)
			c.addrs, c.err = res.Records, err
			if err == nil && t.signed && !r.lax {
				c.pins, c.pinsErr = r.lookUpPins(ctx, m.Host, res, t.next)
			}
		})
	}
	work.Wait()
	for i := range found {
		c := &found[i]
		c.own = c.name == r.Name || slices.ContainsFunc(c.addrs, func(a netip.Addr) bool {
			return (slices.Contains(own, a) || slices.Contains(own, egress.Inner(a))) && !egress.Within(a, r.Allow)
		})
	}
	return found
}

// ownAddresses are the addresses given, and those that our name has in DNS:
// behind address translation only DNS knows them. Without an answer the name
// itself still tells us from others.
func (r *Router) ownAddresses(ctx context.Context) []netip.Addr {
	if r.Name == "" {
		return r.Own
	}
	res, err := r.DNS.Addrs(ctx, r.Name)
	if err != nil {
		return r.Own
	}
	return append(slices.Clone(r.Own), res.Records...)
}

// loop is the failure of a domain whose best host is ourselves.
func (r *Router) loop(ctx context.Context, domain string) error {
	if r.Held == nil {
		return errLoop.because(nil)
	}
	held, err := r.Held(ctx, domain)
	if held || err != nil { // without knowing, nothing is bounced
		return errMovingIn.because(err)
	}
	return errLoop.because(nil)
}

// choose makes the plan of the hosts that can be dialled and that the domain's
// policies allow.
func (r *Router) choose(d demands, found []candidate) (Plan, error) {
	var plan Plan
	var trouble error
	total := 0
	for _, c := range found {
		if c.err != nil {
			if errors.Is(c.err, dns.ErrTemporary) {
				trouble = c.err
			}
			continue
		}
		addrs := slices.DeleteFunc(slices.Clone(c.addrs), func(a netip.Addr) bool {
			return !egress.Allowed(a, r.Allow)
		})
		addrs = egress.Mix(addrs)
		addrs = addrs[:min(len(addrs), maxPerHost, maxAddresses-total)]
		if len(addrs) == 0 {
			continue
		}
		h := Host{Name: c.name, Addrs: r.at(addrs)}
		if !d.demand(r, &h, &c) {
			continue
		}
		total += len(addrs)
		plan.Hosts = append(plan.Hosts, h)
	}
	plan.Notes = d.notes
	switch {
	case len(plan.Hosts) > 0:
		return plan, nil
	case d.refused != nil:
		return Plan{}, d.refused
	case trouble != nil:
		return Plan{}, errDNS.because(trouble)
	}
	return Plan{}, errNoAddress.because(nil)
}

func (r *Router) port() uint16 {
	if r.Port == 0 {
		return 25
	}
	return r.Port
}

func (r *Router) at(addrs []netip.Addr) []netip.AddrPort {
	list := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		list[i] = netip.AddrPortFrom(a, r.port())
	}
	return list
}
