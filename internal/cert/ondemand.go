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
	// rest is for how long a name is left alone after a failure. Let's Encrypt
	// bears five in an hour.
	rest = 20 * time.Minute

	maxRests = 10_000           // names
	askFor   = 10 * time.Second // whether a name leads here
)

// onDemand spares the authority what will fail: strangers choose which further
// names are asked for and how often, and its limits are those of all names.
type onDemand struct {
	Authority

	mu    sync.Mutex
	rests map[string]time.Time // the ends
}

// stopper is the key of the function that ends a handshake's wait.
type stopper struct{}

func (o *onDemand) event(ctx context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch event {
	case "cert_obtaining":
		if err := o.promising(ctx, name); err != nil {
			return certmagic.ErrNoRetry{Err: err}
		}
	case "cert_failed":
		o.leaveAlone(name)
		if stop, ok := ctx.Value(stopper{}).(context.CancelFunc); ok {
			stop() // a client waits, and would for a minute until the next try
		}
	}
	return o.Authority.event(ctx, event, data)
}

// promising says why the authority should not be asked for a name now, if so.
func (o *onDemand) promising(ctx context.Context, name string) error {
	o.mu.Lock()
	end := o.rests[name]
	o.mu.Unlock()
	if o.Now().Before(end) {
		return fmt.Errorf("%s failed a moment ago", name)
	}
	return o.leadsHere(ctx, name)
}

// leadsHere asks the DNS, never the cache: a name works as soon as it is
// published.
func (o *onDemand) leadsHere(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	there, err := o.DNS.Fresh().Addrs(ctx, name)
	if err != nil {
		return err
	}
	here, err := o.DNS.Fresh().Addrs(ctx, o.Host)
	if err != nil {
		return err
	}
	ours := func(a netip.Addr) bool { return slices.Contains(here.Records, a) }
	if there.Canonical != here.Canonical && !slices.ContainsFunc(there.Records, ours) {
		return errors.New(name + " leads elsewhere")
	}
	return nil
}

func (o *onDemand) leaveAlone(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.Now()
	maps.DeleteFunc(o.rests, func(_ string, end time.Time) bool { return !now.Before(end) })
	if len(o.rests) >= maxRests {
		clear(o.rests)
	}
	o.rests[name] = now.Add(rest)
}
