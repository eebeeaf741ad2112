// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

const (
	// networkRequestsPerMinute limits the requests without a key from one network. It is high
	// because mail providers make requests for many people from few addresses.
	networkRequestsPerMinute = 3000
	maxNetworks              = 100_000
)

// networkLimiter limits the requests without a key per network.
type networkLimiter struct {
	limiter *ratelimit.Limiter[netip.Prefix]
	exempt  func(netip.Addr) bool // addresses exempt from the limit; may be nil
}

func (a *API) newNetworkLimiter() *networkLimiter {
	return &networkLimiter{limiter: ratelimit.NewLimiter[netip.Prefix](networkRequestsPerMinute, time.Minute, maxNetworks), exempt: a.Exempt}
}

func (k *networkLimiter) allow(r *http.Request) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return err
	}
	if k.exempt != nil && k.exempt(from.Addr()) {
		return nil
	}
	if wait, ok := k.limiter.Allow(ratelimit.Network(from.Addr()), 1); !ok {
		limited := fault.New(fault.RateLimited, "too_many_requests", "There were too many requests from your network. Please try again in a minute.")
		limited.RetryAfter = wait
		return limited
	}
	return nil
}
