// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/egress"
)

// HostDNS checks the DNS records of the service's own host name.
type HostDNS struct {
	Host         string
	DNS          *dns.Resolver
	TrustDNSSEC  bool // the resolver's DNSSEC results are trusted
	Relayed      bool // mail leaves through a smart host, so the reverse name doesn't matter
	MachineAddrs func() ([]netip.Addr, error)
	Key          *domain.HostDKIMKey // the service's own; nil: unknown
}

// MachineAddrs returns the addresses of this machine.
func MachineAddrs() (list []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr().Unmap())
		}
	}
	return list, err
}

// typeNS is the record type of name servers (RFC 1035 §3.2.2).
const typeNS = 2

// CheckResolver checks that the DNS resolver responds, and whether it validates.
func (n HostDNS) CheckResolver(ctx context.Context, r *Report) {
	addrs, trusted := n.DNS.Servers()
	servers := strings.Join(addrs, ", ")
	root, err := n.DNS.Uncached().Records(ctx, ".", typeNS)
	if errors.Is(err, dns.ErrTemporary) {
		_, hostErr := n.DNS.Uncached().AddrsByFamily(ctx, n.Host, true)
		if errors.Is(hostErr, dns.ErrTemporary) {
			r.Fail("Name one that works with --resolver, or mend /etc/resolv.conf: without DNS no mail leaves, and none that arrives is judged.",
				"no answer from %s: %v", servers, err)
			return
		}
		r.Warn("Let it resolve names of the whole Internet.", "%s knows our own name, but gives no answer about the root of the DNS: %v", servers, err)
		return
	}
	switch {
	case n.TrustDNSSEC && !trusted:
		r.Warn("Name one on loopback with --resolver, or take --trust-resolver away.",
			"--trust-resolver has no effect: %s is not on this machine, so that others could forge its verdict", servers)
	case n.TrustDNSSEC && !root.Authentic:
		r.Warn("Make it validate DNSSEC, as unbound does, or take --trust-resolver away: there is no DANE without.", "%s does not validate DNSSEC", servers)
	case n.TrustDNSSEC:
		r.OK("%s answers, and validates DNSSEC", servers)
	default:
		r.OK("%s answers", servers)
	}
}

// CheckHost checks that the host name resolves to this machine.
func (n HostDNS) CheckHost(ctx context.Context, r *Report) {
	res, err := n.DNS.Uncached().Addrs(ctx, n.Host)
	switch {
	case errors.Is(err, dns.ErrTemporary):
		r.Warn("See what is said of the resolver.", "the DNS gave no answer about %s", n.Host)
		return
	case err != nil || len(res.Records) == 0:
		r.Fail("Publish an A record, and AAAA if there is IPv6, with the public address of this machine, or correct --host.", "%s has no address in the DNS", n.Host)
		return
	}
	own, err := n.MachineAddrs()
	if err != nil {
		r.Warn("", "the addresses of this machine could not be read: %v", err)
		return
	}
	var here, elsewhere, hidden []string
	for _, a := range res.Records {
		a = a.Unmap()
		switch {
		case !egress.IsPublic(a):
			hidden = append(hidden, a.String())
		case slices.Contains(own, a):
			here = append(here, a.String())
		default:
			elsewhere = append(elsewhere, a.String())
		}
	}
	switch {
	case len(here)+len(elsewhere) == 0:
		r.Warn("Publish the public address of this machine, unless nobody outside is to reach it.", "%s leads to %s, which nobody on the Internet can reach", n.Host, strings.Join(hidden, ", "))
	case len(hidden) > 0:
		r.Warn("Take it out of the public DNS: who tries it first waits in vain.", "%s leads also to %s, which nobody on the Internet can reach", n.Host, strings.Join(hidden, ", "))
	case len(elsewhere) > 0:
		r.OK("%s leads to %s; %s not of this machine, as behind NAT or a balancer", n.Host, strings.Join(append(here, elsewhere...), ", "), strings.Join(elsewhere, ", "))
	default:
		r.OK("%s leads to this machine: %s", n.Host, strings.Join(here, ", "))
	}
}

// CheckReverse checks that the public addresses have our host name: large providers reject mail
// from others.
func (n HostDNS) CheckReverse(ctx context.Context, r *Report) {
	if n.Relayed {
		r.OK("not needed, as the relay sends")
		return
	}
	res, err := n.DNS.Addrs(ctx, n.Host)
	if err != nil {
		r.Warn("First let the name lead to this machine.", "not looked at, since %s has no address", n.Host)
		return
	}
	public := slices.DeleteFunc(slices.Clone(res.Records), func(a netip.Addr) bool { return !egress.IsPublic(a.Unmap()) })
	const most = 8
	for _, a := range public[:min(len(public), most)] {
		names, err := n.DNS.Uncached().PTR(ctx, a)
		do := "Ask whoever gives you this address, mostly the hoster, to set its reverse name (PTR) to " + n.Host + ": large providers refuse mail without it."
		switch {
		case errors.Is(err, dns.ErrTemporary):
			r.Warn("See what is said of the resolver.", "the DNS gave no answer about %s", a)
		case err != nil:
			r.Warn(do, "%s has no reverse name", a)
		case !slices.Contains(names.Records, strings.ToLower(n.Host)):
			r.Warn(do, "%s is called %s", a, strings.Join(names.Records, ", "))
		default:
			r.OK("%s is called %s", a, n.Host)
		}
	}
	if len(public) == 0 {
		r.OK("no public address to have one")
	}
}

// CheckRecords checks the records of the host's own names that customers' records refer to.
// CheckHost and CheckReverse check addresses.
func (n HostDNS) CheckRecords(ctx context.Context, r *Report) {
	h := domain.Host{Name: n.Host, Resolver: n.DNS, UsesSmartHost: n.Relayed, Key: n.Key}
	if own, err := n.MachineAddrs(); err == nil {
		h.Addrs = slices.DeleteFunc(own, func(a netip.Addr) bool { return !egress.IsPublic(a) })
	}
	all, err := h.Check(ctx)
	if err != nil {
		r.Warn("See what is said of the resolver.", "the DNS records of %s could not be looked at: %v", n.Host, err)
		return
	}
	good := 0
	for _, rec := range all {
		switch {
		case rec.Kind == domain.KindAddress || rec.Kind == domain.KindReverse || !rec.Required:
		case rec.Status == domain.RecordVerified:
			good++
		case rec.Status == domain.RecordTemporaryFailure:
			r.Warn("See what is said of the resolver.", "the DNS gave no answer about %s", rec.Name)
		default:
			says, _, _ := strings.Cut(strings.TrimSuffix(rec.Error, "."), ". Publish: ")
			r.Warn("mailstead dns prints all records to publish.", "%s", says)
		}
	}
	if good > 0 && r.worst() == OK {
		r.OK("%s of %s are published", plural(good, false, "record", "records"), n.Host)
	}
}
