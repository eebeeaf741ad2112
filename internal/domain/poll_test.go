// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/notify"
)

// about reports whether a time is what the schedule says, within its jitter.
func about(got, want time.Duration) bool { return got >= want*9/10 && got <= want*11/10 }

func TestSchedule(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		poll := func(want time.Duration) {
			t.Helper()
			before := w.zone.QueryCount("_dmarc.shop.test")
			got, err := w.Get(t.Context(), w.ann, dom.ID)
			if err != nil {
				t.Fatal(err)
			}
			w.clock.Add(got.NextCheckAt.Sub(w.clock.Now()) - time.Second)
			if _, err := w.Poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.zone.QueryCount("_dmarc.shop.test") != before {
				t.Error("asked before it was due")
			}
			w.clock.Add(time.Second)
			wait, err := w.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if w.zone.QueryCount("_dmarc.shop.test") == before {
				t.Error("not asked though it was due")
			}
			if got, err = w.Get(t.Context(), w.ann, dom.ID); err != nil {
				t.Fatal(err)
			}
			if next := got.NextCheckAt.Sub(w.clock.Now()); !about(next, want) || wait > time.Minute || wait > next {
				t.Errorf("next check in %v, want about %v; the poller waits %v", next, want, wait)
			}
		}
		for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			poll(minutes * time.Minute)
		}
		w.publish(dom)
		poll(24 * time.Hour)
		poll(24 * time.Hour)
		w.zone.ServFail("_dmarc.shop.test")
		poll(time.Minute)
		poll(2 * time.Minute)
		w.zone.ClearFaults("_dmarc.shop.test")
		poll(24 * time.Hour)
		w.zone.Set("_dmarc.shop.test")
		poll(time.Minute)
		poll(2 * time.Minute)
	})
}

func TestTwoNodesShareThePolling(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		addr, zone := dnstest.Start(t, spfOfHost)
		w.zone = zone
		resolver := dnstest.Resolver(t, addr)
		nodes := []*domain.Domains{w.another(resolver), w.another(resolver), w.another(resolver)}
		const domains = 10
		for i := range domains {
			w.create(w.ann, fmt.Sprintf("d%d.test", i))
		}
		w.clock.Add(2 * time.Minute)
		var group sync.WaitGroup
		for _, n := range nodes {
			group.Go(func() {
				if _, err := n.Poll(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i := range domains {
			// The SRV record is queried once per check, without a search for hints.
			name := fmt.Sprintf("_imaps._tcp.d%d.test", i)
			if n := zone.QueryCount(name); n != 1 {
				t.Errorf("%s was asked for %d times", name, n)
			}
		}
	})
}

// A newly expected record is checked within minutes, even if other checks happen before.
func TestChangedRecordIsLookedForSoon(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		got, err := w.CheckDNS(t.Context(), w.ann, dom.ID)
		if err != nil || !about(got.NextCheckAt.Sub(w.clock.Now()), 24*time.Hour) {
			t.Fatalf("%v, next check at %v", err, got.NextCheckAt)
		}
		enforce := domain.STSEnforce
		if _, err := w.Update(t.Context(), w.ann, dom.ID, domain.Change{STS: &enforce}); err != nil {
			t.Fatal(err)
		}
		got, err = w.VerifyOwnership(t.Context(), w.ann, dom.ID)
		if err != nil || !about(got.NextCheckAt.Sub(w.clock.Now()), time.Minute) {
			t.Errorf("%v, next check at %v", err, got.NextCheckAt)
		}
	})
}

// An account with many domains doesn't delay those of others: a name server that never answers
// takes 20 seconds.
func TestAccountsTakeTurns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		const many = 12
		for i := range many {
			w.create(w.ann, fmt.Sprintf("d%d.test", i))
		}
		w.clock.Add(time.Second)
		w.create(w.bob, "shop.test")
		w.clock.Add(time.Hour)
		var mu sync.Mutex
		var order []string
		server := dnstest.ServeSource(t, dns.ServerConfig{}, func(_ context.Context, name string) (dns.NameData, error) {
			mu.Lock()
			defer mu.Unlock()
			if of, ok := strings.CutPrefix(name, "_mailstead."); ok {
				order = append(order, of)
			}
			return dns.NameData{}, errors.New("out of order")
		})
		if _, err := w.another(dnstest.Resolver(t, server.Addr())).Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := slices.Index(order, "shop.test."); at < 0 || at > 4 {
			t.Errorf("the other account's is number %d of %v", at+1, order)
		}
		slices.Sort(order)
		if n := len(slices.Compact(order)); n != many+1 {
			t.Errorf("%d domains were looked at, not all: %v", n, order)
		}
	})
}

// If a node dies during a check, other nodes check the domain.
func TestDeadNode(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.clock.Add(time.Minute)
		dead, cancel := context.WithCancel(t.Context())
		server := dnstest.ServeSource(t, dns.ServerConfig{}, func(context.Context, string) (dns.NameData, error) {
			cancel()
			return dns.NameData{}, dns.ErrDrop
		})
		if _, err := w.another(dnstest.Resolver(t, server.Addr())).Poll(dead); err == nil && dead.Err() == nil {
			t.Error("the node did not die")
		}
		if _, err := w.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Get(t.Context(), w.ann, dom.ID); err != nil || !got.CheckedAt.IsZero() {
			t.Errorf("looked at while another had it: %v, %v", got.CheckedAt, err)
		}
		w.clock.Add(5 * time.Minute)
		if _, err := w.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := w.Get(t.Context(), w.ann, dom.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.expect(got, domain.StatusVerified, true, true)
	})
}

func TestRun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		ring := make(chan time.Time)
		waits := make(chan time.Duration)
		w.SetAfter(func(d time.Duration) <-chan time.Time {
			select {
			case waits <- d:
			case <-t.Context().Done():
			}
			return ring
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		if wait := <-waits; wait != time.Minute {
			t.Errorf("with nothing to do it waits %v", wait)
		}

		dom := w.create(w.ann, "shop.test") // wakes it
		if wait := <-waits; wait != time.Minute {
			t.Errorf("with a domain due in a minute it waits %v", wait)
		}
		w.publish(dom)
		changed := w.Hub.Subscribe(notify.Key{Kind: notify.Domain, ID: int64(dom.ID)})
		defer changed.Close()
		w.clock.Add(time.Minute)
		ring <- w.clock.Now()
		<-changed.C
		got, err := w.Get(t.Context(), w.ann, dom.ID)
		if err != nil {
			t.Fatal(err)
		}
		w.expect(got, domain.StatusVerified, true, true)
		<-waits
		stop()
		// The last poll may still announce its wait.
		for {
			select {
			case <-waits:
				continue
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			}
			break
		}
	})
}
