// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/internal/dns"
)

// maxReverseNames is the number of names of an address that are tried.
const maxReverseNames = 5

// IPRev is the result of the check that an address has a name that resolves back to it (RFC 8601
// §2.7.3).
type IPRev struct {
	Result Result
	Addr   netip.Addr
	Name   string // only with a pass
}

// VerifyIPRev looks up and confirms the name of a client.
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
