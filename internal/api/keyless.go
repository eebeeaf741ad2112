// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/throttle"
)

const (
	// perMinute is how often one network may ask for what needs no key; mail
	// providers ask for many people from few addresses.
	perMinute   = 3000
	maxNetworks = 100_000
)

// keyless bounds what a network may ask for without a key.
type keyless struct {
	limit  *throttle.Limiter[netip.Prefix]
	friend func(netip.Addr) bool // whom limit does not apply to; may be nil
}

func (a *API) keyless() *keyless {
	return &keyless{limit: throttle.NewLimiter[netip.Prefix](perMinute, time.Minute, maxNetworks), friend: a.Friend}
}

func (k *keyless) allow(r *http.Request) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return err
	}
	if k.friend != nil && k.friend(from.Addr()) {
		return nil
	}
	if wait, ok := k.limit.Allow(throttle.Network(from.Addr()), 1); !ok {
		limited := fault.New(fault.Limited, "too_many_requests", "There were too many requests from your network. Please try again in a minute.")
		limited.Retry = wait
		return limited
	}
	return nil
}
