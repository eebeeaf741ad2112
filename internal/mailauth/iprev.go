// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/internal/dns"
)

// maxReverseNames is how many names of an address are tried.
const maxReverseNames = 5

// IPRev says whether an address has a name that leads back to it (RFC 8601
// §2.7.3).
type IPRev struct {
	Result Result
	Addr   netip.Addr
	Name   string // of a pass
}

// VerifyIPRev looks for the name of a client.
func VerifyIPRev(ctx context.Context, r *dns.Resolver, ip netip.Addr) IPRev {
	out := IPRev{Result: PermError, Addr: ip.Unmap().WithZone("")}
	names, err := r.PTR(ctx, out.Addr)
	if err != nil {
		if errors.Is(err, dns.ErrTemporary) {
			out.Result = TempError
		}
		return out
	}
	out.Result = Fail
	for _, name := range names.Records[:min(len(names.Records), maxReverseNames)] {
		addrs, err := r.AddrsByFamily(ctx, name, out.Addr.Is4())
		switch {
		case errors.Is(err, dns.ErrTemporary):
			out.Result = TempError
		case slices.Contains(addrs.Records, out.Addr):
			out.Result, out.Name = Pass, name
			return out
		}
	}
	return out
}
