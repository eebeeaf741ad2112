// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

const (
	// failureBackoff is how long a name is not tried again after a failure. Let's Encrypt allows
	// five failures an hour.
	failureBackoff = 20 * time.Minute

	maxBackoffs   = 10_000           // maximum number of names
	lookupTimeout = 10 * time.Second // for the check whether a name points here
)

// onDemandPolicy avoids requests to the authority that would fail. Untrusted clients choose the
// further names and how often they ask, and all names share the authority's limits.
type onDemandPolicy struct {
	ACMEOptions

	mu       sync.Mutex
	backoffs map[string]time.Time // end of each name's backoff
}

// cancelKey is the context key of the function that ends a handshake's wait.
type cancelKey struct{}

func (o *onDemandPolicy) handleEvent(ctx context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch event {
	case "cert_obtaining":
		if err := o.checkName(ctx, name); err != nil {
			return certmagic.ErrNoRetry{Err: err}
		}
	case "cert_failed":
		o.backOff(name)
		if stop, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
			stop() // a client waits, and would wait a minute for the next try
		}
	}
	return o.ACMEOptions.handleEvent(ctx, event, data)
}

// checkName returns an error if the authority should not be asked for a name now.
func (o *onDemandPolicy) checkName(ctx context.Context, name string) error {
	o.mu.Lock()
	end := o.backoffs[name]
	o.mu.Unlock()
	if o.Now().Before(end) {
		return fmt.Errorf("%s failed a moment ago", name)
	}
	return o.checkPointsHere(ctx, name)
}

// checkPointsHere returns an error if a name's DNS does not point here. It bypasses the cache, so
// that a name works as soon as it is published.
func (o *onDemandPolicy) checkPointsHere(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	there, err := o.DNS.Uncached().Addrs(ctx, name)
	if err != nil {
		return err
	}
	here, err := o.DNS.Uncached().Addrs(ctx, o.Host)
	if err != nil {
		return err
	}
	ours := func(a netip.Addr) bool { return slices.Contains(here.Records, a) }
	if there.Canonical != here.Canonical && !slices.ContainsFunc(there.Records, ours) {
		return errors.New(name + " leads elsewhere")
	}
	return nil
}

func (o *onDemandPolicy) backOff(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.Now()
	maps.DeleteFunc(o.backoffs, func(_ string, end time.Time) bool { return !now.Before(end) })
	if len(o.backoffs) >= maxBackoffs {
		clear(o.backoffs)
	}
	o.backoffs[name] = now.Add(failureBackoff)
}
