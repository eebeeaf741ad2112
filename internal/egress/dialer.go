// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
)

// ErrNoAllowedAddr says that a host has addresses, but none that may be dialled.
var ErrNoAllowedAddr = errors.New("the host has no address that may be dialled")

const (
	// maxAddresses is how many addresses of a host are tried.
	maxAddresses = 4
	// dialTimeout is the timeout for one address.
	dialTimeout = 5 * time.Second
)

// Dialer opens connections to hosts that an untrusted party names. Set its fields before use and
// don't change them. It is safe for concurrent use.
type Dialer struct {
	DNS *dns.Resolver
	// AllowNets are networks that may be dialled although they are not public or are the service's
	// own.
	AllowNets []netip.Prefix
	// AllowNetsOnly rejects all addresses outside AllowNets, for connections that must not cross
	// the Internet.
	AllowNetsOnly bool
	// OwnAddrs are addresses of the service itself. HostName is its host name, whose addresses are
	// its own too: behind NAT only DNS knows them.
	OwnAddrs []netip.Addr
	HostName string
}

// Addresses returns the addresses of a host that may be dialled, in the order to try. The error is
// ErrNoAllowedAddr if the host has only others, or a *dns.Error. The host is a name in ASCII or an
// IP address without brackets.
func (d *Dialer) Addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	own := d.ownAddrs(ctx)
	addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		if InNetworks(a, d.AllowNets) {
			return false
		}
		return d.AllowNetsOnly || !IsPublic(a) || slices.Contains(own, EmbeddedIPv4(a))
	})
	if len(addrs) == 0 {
		return nil, ErrNoAllowedAddr
	}
	return Interleave(addrs), nil
}

// LiteralAddrs returns the addresses of a host that needs no DNS: an IP address, or localhost and
// the names below it (RFC 6761 §6.3). It returns nil for any other host.
func LiteralAddrs(host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	}
	return nil
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addrs := LiteralAddrs(host); addrs != nil {
		return addrs, nil
	}
	res, err := d.DNS.Addrs(ctx, host)
	return slices.Clone(res.Records), err // the resolver's cache shares its slice
}

// ownAddrs returns the service's addresses. Without an answer from DNS it returns only OwnAddrs.
func (d *Dialer) ownAddrs(ctx context.Context) []netip.Addr {
	if d.HostName == "" || d.AllowNetsOnly {
		return d.OwnAddrs
	}
	res, err := d.DNS.Addrs(ctx, d.HostName)
	if err != nil {
		return d.OwnAddrs
	}
	return append(slices.Clone(d.OwnAddrs), res.Records...)
}

// Dial looks up a host and connects to the first of its addresses that answers. It dials the same
// addresses that it has checked: it looks up no name twice. The error is one of Addresses, or a
// *net.OpError.
func (d *Dialer) Dial(ctx context.Context, host, port string) (net.Conn, error) {
	addrs, err := d.Addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		nd := net.Dialer{Timeout: dialTimeout}
		var c net.Conn
		if c, err = nd.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port)); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}
