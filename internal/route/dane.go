// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/internal/dns"
)

// The certificate usages that apply to mail hosts (RFC 7672 §3.1). The other two depend on
// certificate authorities, on which mail hosts have not agreed.
const (
	daneTA = 2 // a trust anchor that the host chooses
	daneEE = 3 // the host's own certificate; its names and dates don't count
)

// danePolicy is what signed DNS says about a host's TLS.
type danePolicy struct {
	baseDomain     string     // name of the TLSA records (RFC 7672 §2.2.3), sent as SNI
	referenceNames []string   // names of which a certificate under daneTA must have one
	records        []dns.TLSA // usable records; none: TLS is required, with any certificate
}

// lookUpTLSA looks up the TLSA records of a host whose name came from signed DNS. It returns nil
// without an error if none apply. An error means that there may be some: the host must not be used
// (RFC 7672 §2.1.2).
func (r *Router) lookUpTLSA(ctx context.Context, host string, addrs dns.Result[netip.Addr], next []string) (*danePolicy, error) {
	bases, err := r.tlsaBaseDomains(ctx, host, addrs)
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		res, err := r.DNS.TLSA(ctx, fmt.Sprintf("_%d._tcp.%s", r.port(), base))
		switch {
		case errors.Is(err, dns.ErrTemporary):
			return nil, err
		case err != nil || !res.Authentic:
			continue
		}
		p := &danePolicy{baseDomain: base, referenceNames: append([]string{base}, next...), records: usableTLSA(res.Records)}
		return p, nil
	}
	return nil, nil
}

// tlsaBaseDomains returns the names at which a host's records may be, best first (RFC 7672 §2.2.2).
// The first is the end of the host's CNAME chain if the whole chain is signed, then comes the
// host's own name.
func (r *Router) tlsaBaseDomains(ctx context.Context, host string, addrs dns.Result[netip.Addr]) ([]string, error) {
	alias := addrs.Canonical != "" && addrs.Canonical != host
	switch {
	case addrs.Authentic && alias:
		return []string{addrs.Canonical, host}, nil
	case addrs.Authentic:
		return []string{host}, nil
	case !alias:
		return nil, nil
	}
	// The name may be signed although its CNAME leads to an unsigned zone.
	res, err := r.DNS.CNAME(ctx, host)
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return nil, err
	case err == nil && res.Authentic:
		return []string{host}, nil
	}
	return nil, nil
}

// usableTLSA returns the records that we support. Of several digests of the same kind it keeps only
// the strongest, besides full data (RFC 7671 §9).
func usableTLSA(records []dns.TLSA) []dns.TLSA {
	best := map[[2]uint8]uint8{}
	var good []dns.TLSA
	for _, t := range records {
		if !supportedTLSA(t) {
			continue
		}
		good = append(good, t)
		k := [2]uint8{t.Usage, t.Selector}
		best[k] = max(best[k], t.Matching)
	}
	return slices.DeleteFunc(good, func(t dns.TLSA) bool {
		return t.Matching != 0 && t.Matching < best[[2]uint8{t.Usage, t.Selector}]
	})
}

func supportedTLSA(t dns.TLSA) bool {
	if t.Usage != daneTA && t.Usage != daneEE || t.Selector > 1 {
		return false
	}
	switch t.Matching {
	case 0:
		var err error
		if t.Selector == 0 {
			_, err = x509.ParseCertificate(t.Data)
		} else {
			_, err = x509.ParsePKIXPublicKey(t.Data)
		}
		return err == nil
	case 1:
		return len(t.Data) == 32
	case 2:
		return len(t.Data) == 64
	}
	return false
}

// policyKey returns a key that distinguishes connections with different requirements.
func (p *danePolicy) policyKey() string {
	h := sha256.New()
	for _, t := range p.records {
		fmt.Fprintf(h, "%d %d %d %x\n", t.Usage, t.Selector, t.Matching, t.Data)
	}
	fmt.Fprintln(h, p.baseDomain, p.referenceNames)
	return "DANE " + hex.EncodeToString(h.Sum(nil)[:12])
}
