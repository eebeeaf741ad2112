// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
)

// TestCheckHost checks the counts of missing, wrong and unchecked records, and that the result is
// shared for a few seconds.
func TestCheckHost(t *testing.T) {
	w := open(t, dbOf(t))
	check := func(failed, unknown int) *domain.HostCheck {
		t.Helper()
		c, err := w.CheckHost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.FailedCount() != failed || c.UnknownCount() != unknown || c.CheckedAt.IsZero() {
			t.Errorf("%d failed and %d unknown, want %d and %d: %+v", c.FailedCount(), c.UnknownCount(), failed, unknown, c.Records)
		}
		return c
	}
	w.Addrs = w.Addrs[:1]
	first := check(6, 0) // all except spf., which open publishes
	w.zone.Set(host, "A 127.0.0.1")
	for _, r := range first.Records {
		if r.Status == domain.RecordFailed && r.Type != "A" {
			w.zone.Publish(r.Type, r.Name, r.Value, r.Priority)
		}
	}
	if again := check(6, 0); again != first {
		t.Error("it asked the DNS again at once")
	}
	w.clock.Add(5 * time.Second)
	if zone := check(0, 0).Zone(); !strings.Contains(zone, "\nspf."+host+". 3600 IN TXT ") {
		t.Error(zone)
	}
	w.zone.Set("spf."+host, `TXT "v=spf1 ip4:9.9.9.9 -all"`)
	w.clock.Add(5 * time.Second)
	check(3, 0) // including the records that include it
	w.zone.Set("spf."+host, `TXT "v=spf1 ip4:127.0.0.1 -all"`)
	w.zone.ServFail("bounces." + host)
	w.clock.Add(5 * time.Second)
	for _, r := range check(0, 2).Records {
		if r.Status == domain.RecordTemporaryFailure && (r.Value == "" || !strings.Contains(r.Error, "could not be checked")) {
			t.Errorf("%+v", r)
		}
	}
	w.zone.ClearFaults("bounces." + host)
	w.clock.Add(5 * time.Second)
	check(0, 0)
}

// TestCheckHostOnce checks that concurrent callers cause only one round of DNS queries.
func TestCheckHostOnce(t *testing.T) {
	addr, zone := dnstest.Start(t)
	begun, held := make(chan struct{}), make(chan struct{})
	path := dnstest.StartProxy(t, addr, func(n int, _ *wire.Msg) dnstest.Fault {
		if n == 1 {
			close(begun)
		}
		return dnstest.Fault{Delay: held}
	})
	w := open(t, dbOf(t))
	ask := func(d *domain.Domains) *domain.HostCheck {
		c, err := d.CheckHost(t.Context())
		if err != nil {
			t.Error(err)
		}
		return c
	}
	alone := w.another(dnstest.Resolver(t, addr))
	ask(alone)
	once := zone.TotalQueries()

	d := w.another(dnstest.Resolver(t, path.Addr))
	all := make([]*domain.HostCheck, 20)
	var askers sync.WaitGroup
	for i := range all {
		askers.Go(func() { all[i] = ask(d) })
	}
	// One caller has started; another leaves, and a third has little time.
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if c, err := d.CheckHost(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", c, err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := d.CheckHost(short)
	if err != nil || c.FailedCount() != 0 || c.UnknownCount() == 0 || c.Records[0].Value == "" {
		t.Errorf("without an answer in time: %+v, %v", c, err)
	}
	close(held)
	askers.Wait()
	for _, c := range all {
		if c != all[0] {
			t.Error("there was more than one check")
		}
	}
	if n := zone.TotalQueries() - once; n > 3*once { // a query is repeated while it waits
		t.Errorf("%d questions, and %d for one check", n, once)
	}
}

// TestCheckHostInTime checks that a check without answers ends at its caller's deadline.
func TestCheckHostInTime(t *testing.T) {
	w := open(t, dbOf(t))
	for _, r := range []string{host, "spf." + host, "bounces." + host, "_dmarc." + host} {
		w.zone.Drop(r)
	}
	if _, err := w.HostDKIMKey(t.Context()); err != nil { // which takes a while
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c, err := w.CheckHost(ctx)
	if err != nil || c.UnknownCount() < 6 || c.FailedCount() != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
