// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"

	wire "github.com/miekg/dns"
)

// MX is a mail exchanger (RFC 5321 §5.1).
type MX struct {
	Host       string // "." in a null MX
	Preference uint16 // lower first
}

// IsNullMX reports whether the records say that the domain accepts no mail (RFC 7505).
func IsNullMX(records []MX) bool { return len(records) == 1 && records[0].Host == "." }

// SRV is the location of a service (RFC 2782). The target "." says that the service does not exist.
type SRV struct {
	Target                 string
	Port, Priority, Weight uint16
}

// MX returns the mail exchangers by preference. Those of equal preference come in arbitrary order.
// Null MX records besides real ones are dropped, as that mix has no meaning (RFC 7505 §3).
func (r *Resolver) MX(ctx context.Context, name string) (Result[MX], error) {
	res, err := lookup(ctx, r, name, wire.TypeMX, func(rr *wire.MX) MX {
		return MX{Host: trimDot(rr.Mx), Preference: rr.Preference}
	})
	if len(res.Records) > 1 {
		named := slices.DeleteFunc(slices.Clone(res.Records), func(m MX) bool { return m.Host == "." })
		if len(named) == 0 {
			named = res.Records[:1]
		}
		res.Records = named
	}
	slices.SortStableFunc(res.Records, func(a, b MX) int { return cmp.Compare(a.Preference, b.Preference) })
	return res, err
}

// TXT returns the texts as raw octets, with the strings of each record joined without spaces. Their
// total size is limited by that of a DNS message, 64 KiB. The content is untrusted.
func (r *Resolver) TXT(ctx context.Context, name string) (Result[string], error) {
	return lookup(ctx, r, name, wire.TypeTXT, func(rr *wire.TXT) string { return joinTXT(rr.Txt) })
}

// CNAME returns the CNAME at the name itself, without following it. A name without a CNAME gets
// ErrNoData, whatever other records it has.
func (r *Resolver) CNAME(ctx context.Context, name string) (Result[string], error) {
	return lookup(ctx, r, name, wire.TypeCNAME, func(rr *wire.CNAME) string { return trimDot(rr.Target) })
}

// SRV returns the locations of a service by priority. The name is the full one, such as
// _imaps._tcp.example.com.
func (r *Resolver) SRV(ctx context.Context, name string) (Result[SRV], error) {
	res, err := lookup(ctx, r, name, wire.TypeSRV, func(rr *wire.SRV) SRV {
		return SRV{Target: trimDot(rr.Target), Port: rr.Port, Priority: rr.Priority, Weight: rr.Weight}
	})
	slices.SortStableFunc(res.Records, func(a, b SRV) int { return cmp.Compare(a.Priority, b.Priority) })
	return res, err
}

// PTR returns the names that an address claims. They prove nothing unless a lookup of their
// addresses confirms them.
func (r *Resolver) PTR(ctx context.Context, ip netip.Addr) (Result[string], error) {
	name, err := wire.ReverseAddr(ip.Unmap().WithZone("").String())
	if err != nil {
		return Result[string]{}, &Error{Reason: ErrNotFound, Name: ip.String(), Type: "PTR", Cause: errors.New("not an address")}
	}
	return lookup(ctx, r, name, wire.TypePTR, func(rr *wire.PTR) string { return trimDot(rr.Ptr) })
}

// TLSA is a TLSA record (RFC 6698 §2.1). Its fields are unchecked: they may hold undefined values,
// and data of any length.
type TLSA struct {
	Usage, Selector, Matching uint8
	Data                      []byte
}

// TLSA returns the TLSA records of a server. The name is the full one, such as
// _25._tcp.mx.example.com. Use them only if Authentic is set.
func (r *Resolver) TLSA(ctx context.Context, name string) (Result[TLSA], error) {
	return lookup(ctx, r, name, wire.TypeTLSA, func(rr *wire.TLSA) TLSA {
		data, _ := hex.DecodeString(rr.Certificate) // the library returns hex
		return TLSA{Usage: rr.Usage, Selector: rr.Selector, Matching: rr.MatchingType, Data: data}
	})
}

// Addrs returns the addresses of a host, IPv6 first. It looks up IPv6 (AAAA) and IPv4 (A) at the
// same time. If only one of the lookups succeeds, Addrs returns its addresses, and that lookup
// alone decides whether they are authentic. Otherwise an attacker who blocks one answer could make
// the other look unsigned.
func (r *Resolver) Addrs(ctx context.Context, name string) (Result[netip.Addr], error) {
	var four Result[netip.Addr]
	var fourErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		four, fourErr = r.AddrsByFamily(ctx, name, true)
	}()
	six, sixErr := r.AddrsByFamily(ctx, name, false)
	<-done

	res := Result[netip.Addr]{
		Records:   append(six.Records, four.Records...),
		Canonical: cmp.Or(six.Canonical, four.Canonical),
		Authentic: six.Authentic && four.Authentic,
		TTL:       min(six.TTL, four.TTL),
	}
	switch {
	case errors.Is(sixErr, ErrTemporary):
		res.Authentic = four.Authentic
	case errors.Is(fourErr, ErrTemporary):
		res.Authentic = six.Authentic
	}
	switch {
	case len(res.Records) > 0:
		return res, nil
	case errors.Is(sixErr, ErrTemporary):
		return res, sixErr
	case errors.Is(sixErr, ErrNotFound):
		// If the answers disagree on whether the name exists, it does.
		return res, fourErr
	case errors.Is(fourErr, ErrTemporary):
		return res, fourErr
	}
	return res, sixErr
}

// AddrsByFamily returns the addresses of a host in one family: IPv4 (A) or IPv6 (AAAA).
func (r *Resolver) AddrsByFamily(ctx context.Context, name string, four bool) (Result[netip.Addr], error) {
	if four {
		return lookup(ctx, r, name, wire.TypeA, func(rr *wire.A) netip.Addr { return toAddr(rr.A) })
	}
	return lookup(ctx, r, name, wire.TypeAAAA, func(rr *wire.AAAA) netip.Addr { return toAddr(rr.AAAA) })
}

// toAddr converts an address. An IPv4-mapped IPv6 address becomes IPv4.
func toAddr(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func lookup[R wire.RR, T any](ctx context.Context, r *Resolver, name string, qtype uint16, read func(R) T) (Result[T], error) {
	raw, err := r.Records(ctx, name, qtype)
	res := Result[T]{Canonical: raw.Canonical, Authentic: raw.Authentic, TTL: raw.TTL}
	for _, rr := range raw.Records {
		if v, ok := rr.(R); ok {
			res.Records = append(res.Records, read(v))
		}
	}
	if err == nil && len(res.Records) == 0 {
		err = &Error{Reason: ErrTemporary, Name: name, Type: typeName(qtype), Cause: errMalformed}
	}
	return res, err
}
