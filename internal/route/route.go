// SPDX-License-Identifier: Apache-2.0

// Package route decides where a destination's mail goes: the hosts to try, in order, with their
// addresses (RFC 5321 §5.1), or the smart host that takes all mail. It also decides what their TLS
// must prove, by DANE (RFC 7672) or by the domain's MTA-STS policy (RFC 8461). No plan leads back
// to this server, or to an address that DNS of other parties must not lead us to.
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

// Limits of a plan, however much DNS returns.
const (
	maxHosts        = 10
	maxAddrsPerHost = 6
	maxAddresses    = 20
)

// Router plans where mail goes. Set its fields before use and don't change them. It is safe for
// concurrent use.
type Router struct {
	DNS *dns.Resolver
	// HostName is this server's host name. MX records that name it, or a host at one of its
	// addresses, lead back to this server.
	HostName string
	// OwnAddrs are further addresses of this server.
	OwnAddrs []netip.Addr
	// AllowNets are networks that mail may go to although they are not public or are this server's
	// own.
	AllowNets []netip.Prefix
	Port      uint16 // port of MX hosts; 0: 25
	// SmartHost, if set, takes the mail for all destinations.
	SmartHost *SmartHost
	// IsClaimed, if set, reports whether an account here holds a domain. If that domain's MX
	// records lead to this server, although it is not served yet, it is moving in: the error is
	// temporary. For other domains it is a loop.
	IsClaimed func(ctx context.Context, domain string) (bool, error)
	// STS, if set, provides the MTA-STS policies of domains. DANE only needs a resolver that is
	// trusted to validate.
	STS *STSResolver
	// Roots are the certificate authorities for certificates that must be valid; nil: the system's.
	Roots *x509.CertPool

	ignoreDANE bool // whether to ignore DANE
}

// Plan says where a destination's mail goes.
type Plan struct {
	Hosts []Host // in the order to try; at least one
	// Via is "relay" when the host is a smart host; else empty.
	Via string
	// Notes say, for the transcript of each delivery, why the domain's policies rejected hosts, or
	// would if they were enforced.
	Notes []string
}

// Host is a host to try, and how to connect to it.
type Host struct {
	Name  string
	Addrs []netip.AddrPort // in the order to try, at least one

	TLS    smtpclient.TLSMode
	Verify bool             // check the certificate against Name
	Auth   *smtpclient.Auth // nil: none

	// As in smtpclient.Options.
	TLSConfig                               *tls.Config
	PolicyKey, TLSRequiredBy, TestingPolicy string
}

// Error says why a whole destination can't be sent to. Every error of Hosts is one, unless ctx has
// ended.
type Error struct {
	Permanent bool     // whether a retry is pointless
	Code      int      // SMTP reply code that fits the error
	Enhanced  string   // RFC 3463
	Reason    string   // human-readable
	Stage     string   // "dns", or "policy" if DANE or MTA-STS prevents it
	Cause     error    // for the log; may be nil
	Notes     []string // as in Plan
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

// The errors that concern a whole destination.
var (
	errNoDomain         = Error{Permanent: true, Code: 550, Enhanced: "5.1.2", Reason: "the domain does not exist"}
	errNoMail           = Error{Permanent: true, Code: 556, Enhanced: "5.1.10", Reason: "the domain accepts no mail (null MX)"}
	errNoHost           = Error{Permanent: true, Code: 550, Enhanced: "5.4.4", Reason: "the domain has neither MX nor address records"}
	errLoop             = Error{Permanent: true, Code: 554, Enhanced: "5.4.6", Reason: "the domain's MX leads to this server, which does not serve it"}
	errUnverifiedDomain = Error{Code: 451, Enhanced: "4.4.6", Reason: "the domain's MX leads to this server, which has not verified that yet"}
	errDNS              = Error{Code: 451, Enhanced: "4.4.3", Reason: "the DNS gave no answer about the domain"}
	errNoAddress        = Error{Code: 451, Enhanced: "4.4.4", Reason: "none of the domain's mail hosts has an address that mail may be sent to"}
	errNoPolicy         = Error{Code: 451, Enhanced: "4.7.0", Stage: "policy", Reason: "the domain's MTA-STS policy could not be found out yet"}
	errSmartHostDNS     = Error{Code: 451, Enhanced: "4.4.3", Reason: "the relay's address could not be found out"}
)

// withCause returns the error with its cause.
func (e Error) withCause(cause error) error {
	e.Cause = cause
	if e.Stage == "" {
		e.Stage = "dns"
	}
	return &e
}

// Hosts returns the plan for a domain (A-labels). Each call shuffles hosts of equal preference, and
// the addresses of a host, with IPv6 and IPv4 alternating. The error is an *Error, or the
// context's.
func (r *Router) Hosts(ctx context.Context, domain string) (Plan, error) {
	plan, err := r.plan(ctx, domain)
	if err != nil && ctx.Err() != nil {
		return Plan{}, context.Cause(ctx)
	}
	return plan, err
}

// HostsWithoutPolicy is Hosts without DANE and MTA-STS, for a message that says that it does not
// need them (RFC 8689 §3).
func (r *Router) HostsWithoutPolicy(ctx context.Context, domain string) (Plan, error) {
	lax := *r
	lax.STS, lax.ignoreDANE = nil, true
	return lax.Hosts(ctx, domain)
}

// LoopsBack reports whether DNS leads a domain's mail back to this server.
func (r *Router) LoopsBack(ctx context.Context, domain string) bool {
	direct := *r
	direct.SmartHost, direct.STS = nil, nil
	_, err := direct.Hosts(ctx, domain)
	var why *Error
	return errors.As(err, &why) && why.Enhanced == errLoop.Enhanced
}

func (r *Router) plan(ctx context.Context, domain string) (Plan, error) {
	if r.SmartHost != nil {
		return r.planSmartHost(ctx)
	}
	var sts *STSPolicy
	var stsErr error
	var work sync.WaitGroup
	if r.STS != nil {
		work.Go(func() { sts, stsErr = r.STS.Policy(ctx, domain) })
	}
	t, err := r.lookUpMX(ctx, domain)
	var found []candidate
	if err == nil {
		found = r.lookUpCandidates(ctx, t)
	}
	work.Wait()
	switch {
	case err != nil:
		return Plan{}, err
	case stsErr != nil:
		return Plan{}, errNoPolicy.withCause(stsErr)
	}
	if own := slices.IndexFunc(found, func(c candidate) bool { return c.isOwn }); own >= 0 {
		// This server is a relay for the domain: only hosts of better preference may be tried (RFC
		// 5321 §5.1).
		limit := found[own].preference
		found = slices.DeleteFunc(found, func(c candidate) bool { return c.preference >= limit })
		if len(found) == 0 {
			return Plan{}, r.loopError(ctx, domain)
		}
	}
	if err := found[0].err; t.implicit && (errors.Is(err, dns.ErrNotFound) || errors.Is(err, dns.ErrNoData)) {
		return Plan{}, errNoHost.withCause(err)
	}
	return r.selectHosts(policyCheck{domain: domain, sts: sts}, found)
}

// mxSet is what DNS says about a domain's mail hosts.
type mxSet struct {
	hosts    []dns.MX // in the order to try
	implicit bool     // whether the domain itself stands in for MX records
	// authentic is set if DNSSEC proves the answer. nextHopNames are the names of the domain,
	// before and after CNAMEs.
	authentic    bool
	nextHopNames []string
}

// lookUpMX returns the MX records in the order to try, or the domain itself if there are none (the
// implicit MX).
func (r *Router) lookUpMX(ctx context.Context, domain string) (mxSet, error) {
	res, err := r.DNS.MX(ctx, domain)
	t := mxSet{authentic: res.Authentic, nextHopNames: []string{domain}}
	if res.Canonical != "" && res.Canonical != domain {
		t.nextHopNames = append(t.nextHopNames, res.Canonical)
	}
	switch {
	case errors.Is(err, dns.ErrNotFound):
		return t, errNoDomain.withCause(err)
	case errors.Is(err, dns.ErrNoData):
		t.hosts, t.implicit = []dns.MX{{Host: domain}}, true
	case err != nil:
		return t, errDNS.withCause(err)
	case dns.IsNullMX(res.Records):
		return t, errNoMail.withCause(nil)
	default:
		t.hosts = sortMX(res.Records, r.HostName)
	}
	return t, nil
}

// sortMX shuffles records of equal preference, and drops duplicates and all beyond maxHosts. This
// server's own name comes first among its equals, since no host after it is tried.
func sortMX(records []dns.MX, own string) []dns.MX {
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

// candidate is a host and what DNS says about it.
type candidate struct {
	name       string
	preference uint16
	isOwn      bool
	addrs      []netip.Addr
	err        error
	dane       *danePolicy // nil: DANE does not apply
	daneErr    error
}

// lookUpCandidates looks up the hosts' addresses and TLSA records, and finds this server among
// them.
func (r *Router) lookUpCandidates(ctx context.Context, t mxSet) []candidate {
	found := make([]candidate, len(t.hosts))
	var own []netip.Addr
	var work sync.WaitGroup
	work.Go(func() { own = r.ownAddrs(ctx) })
	for i, m := range t.hosts {
		found[i] = candidate{name: m.Host, preference: m.Preference}
		work.Go(func() {
			c := &found[i]
			res, err := r.DNS.Addrs(ctx, m.Host)
			c.addrs, c.err = res.Records, err
			if err == nil && t.authentic && !r.ignoreDANE {
				c.dane, c.daneErr = r.lookUpTLSA(ctx, m.Host, res, t.nextHopNames)
			}
		})
	}
	work.Wait()
	for i := range found {
		c := &found[i]
		c.isOwn = c.name == r.HostName || slices.ContainsFunc(c.addrs, func(a netip.Addr) bool {
			return (slices.Contains(own, a) || slices.Contains(own, egress.EmbeddedIPv4(a))) && !egress.InNetworks(a, r.AllowNets)
		})
	}
	return found
}

// ownAddrs returns OwnAddrs and the addresses of HostName in DNS: behind NAT only DNS knows those.
// If DNS does not answer, the host name alone still identifies this server.
func (r *Router) ownAddrs(ctx context.Context) []netip.Addr {
	if r.HostName == "" {
		return r.OwnAddrs
	}
	res, err := r.DNS.Addrs(ctx, r.HostName)
	if err != nil {
		return r.OwnAddrs
	}
	return append(slices.Clone(r.OwnAddrs), res.Records...)
}

// loopError returns the error for a domain whose best host is this server.
func (r *Router) loopError(ctx context.Context, domain string) error {
	if r.IsClaimed == nil {
		return errLoop.withCause(nil)
	}
	held, err := r.IsClaimed(ctx, domain)
	if held || err != nil { // don't bounce without knowing
		return errUnverifiedDomain.withCause(err)
	}
	return errLoop.withCause(nil)
}

// selectHosts returns the plan with the hosts that can be dialled and that the domain's policies
// allow.
func (r *Router) selectHosts(d policyCheck, found []candidate) (Plan, error) {
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
			return !egress.IsAllowed(a, r.AllowNets)
		})
		addrs = egress.Interleave(addrs)
		addrs = addrs[:min(len(addrs), maxAddrsPerHost, maxAddresses-total)]
		if len(addrs) == 0 {
			continue
		}
		h := Host{Name: c.name, Addrs: r.addrPorts(addrs)}
		if !d.apply(r, &h, &c) {
			continue
		}
		total += len(addrs)
		plan.Hosts = append(plan.Hosts, h)
	}
	plan.Notes = d.notes
	switch {
	case len(plan.Hosts) > 0:
		return plan, nil
	case d.rejection != nil:
		return Plan{}, d.rejection
	case trouble != nil:
		return Plan{}, errDNS.withCause(trouble)
	}
	return Plan{}, errNoAddress.withCause(nil)
}

func (r *Router) port() uint16 {
	if r.Port == 0 {
		return 25
	}
	return r.Port
}

func (r *Router) addrPorts(addrs []netip.Addr) []netip.AddrPort {
	list := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		list[i] = netip.AddrPortFrom(a, r.port())
	}
	return list
}
