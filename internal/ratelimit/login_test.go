// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

const (
	alice     Credential = "mailbox:1"
	aliceApps Credential = "apps:1"
	bob       Credential = "mailbox:2"
)

// node is the limiter of one node, whose clock the test moves.
type node struct {
	*LoginLimiter
	*clock
	t      *testing.T
	n      int
	waited []time.Duration
}

func newNode(t *testing.T, d *db.DB, c *clock) *node {
	l := &node{LoginLimiter: NewLoginLimiter(d, []byte("a key"), nil), clock: c, t: t}
	l.LoginLimiter.Now = c.Now
	var mu sync.Mutex
	l.Sleep = func(_ context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		l.waited = append(l.waited, d)
		return nil
	}
	return l
}

func eachNode(t *testing.T, f func(t *testing.T, l *node)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newNode(t, d, newClock())) })
}

// try returns the result of an attempt: "right", "wrong" or "limited".
func (l *node) try(right Credential, guess, from string, of ...Credential) string {
	l.t.Helper()
	got, err := l.Try(l.t.Context(), ip(from), guess, of, func([]Credential) (Credential, error) { return right, nil })
	var limited *fault.Error
	switch {
	case errors.As(err, &limited) && limited.Kind == fault.RateLimited && limited.RetryAfter > 0:
		return "limited"
	case err != nil:
		l.t.Fatal(err)
	case got == "":
		return "wrong"
	}
	return "right"
}

// guess tries a new wrong password.
func (l *node) guess(from string, of ...Credential) string {
	l.t.Helper()
	l.n++
	return l.try("", fmt.Sprint("guess ", l.n), from, of...)
}

// answered counts the guesses out of 60 that are answered.
func (l *node) answered(from string, of ...Credential) (n int) {
	l.t.Helper()
	for range 60 {
		if l.guess(from, of...) == "wrong" {
			n++
		}
	}
	return n
}

func (l *node) signIn(from string, c Credential) string {
	l.t.Helper()
	return l.try(c, "right", from, c)
}

func TestGuessingFromANetwork(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for i := range 10 {
			if got := l.guess("192.0.2.1", Credential(fmt.Sprint("mailbox:", i))); got != "wrong" {
				t.Fatalf("guess %d: %s", i, got)
			}
		}
		if got := fmt.Sprint(l.waited); got != "[0s 0s 0s 250ms 500ms 1s 2s 4s 4s 4s]" {
			t.Errorf("delays: %s", got)
		}
		for range 3 {
			_, err := l.Try(t.Context(), ip("192.0.2.1"), "x", []Credential{alice}, func([]Credential) (Credential, error) {
				t.Error("the password was looked at")
				return "", nil
			})
			var limited *fault.Error
			if !errors.As(err, &limited) || limited.RetryAfter != 6*time.Minute {
				t.Fatalf("refused with %v", err)
			}
			l.forward(6*time.Minute - time.Second)
			if got := l.guess("192.0.2.1", alice); got != "limited" {
				t.Fatalf("a second too early: %s", got)
			}
			l.forward(time.Second)
			if got := l.guess("192.0.2.1", alice); got != "wrong" {
				t.Fatalf("in time: %s", got)
			}
		}
		if got := l.guess("192.0.2.2", alice); got != "wrong" {
			t.Errorf("a neighbour: %s", got)
		}
		l.forward(time.Hour)
		if got := l.answered("192.0.2.1", bob); got != 10 {
			t.Errorf("an hour later %d guesses are answered", got)
		}
	})
}

// A client with many IPv6 networks of one site does not get as many limits.
func TestGuessingFromASite(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		answered := 0
		for i := range 200 {
			if l.guess(fmt.Sprintf("2001:db8:7:%x::1", i), Credential(fmt.Sprint("mailbox:", i))) == "wrong" {
				answered++
			}
		}
		if answered != 100 {
			t.Errorf("%d guesses are answered", answered)
		}
	})
}

// Many networks guess one password. Its owner can still sign in from known networks, and from
// others within a minute.
func TestOwnerIsNotLockedOut(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		if got := l.signIn("198.51.100.1", alice); got != "right" {
			t.Fatal(got)
		}
		answered := 0
		for i := range 100 {
			if l.guess(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String(), alice) == "wrong" {
				answered++
			}
		}
		if answered != 30 {
			t.Errorf("%d guesses were answered", answered)
		}
		for range 20 {
			if got := l.signIn("198.51.100.1", alice); got != "right" {
				t.Fatalf("the owner at home: %s", got)
			}
		}
		if got := l.signIn("203.0.113.1", alice); got != "limited" {
			t.Errorf("from a new network: %s", got)
		}
		l.forward(time.Minute)
		if got := l.signIn("203.0.113.1", alice); got != "right" {
			t.Errorf("from a new network, a minute later: %s", got)
		}
		if got := l.signIn("203.0.113.2", bob); got != "right" {
			t.Errorf("somebody else: %s", got)
		}
		// An attacker behind the owner's router is limited by the failures from there.
		if got := l.answered("198.51.100.1", alice); got != 10 {
			t.Errorf("%d guesses from home were answered", got)
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.forward(KnownNetworkTTL)
		l.answered("198.51.100.1", bob)
		if got := l.signIn("198.51.100.1", alice); got != "limited" {
			t.Errorf("from a network that was not used for a month: %s", got)
		}
	})
}

// A client with all networks of a site, or with one IPv4 address, does not lock the owner out of
// new networks.
func TestOneSiteLocksNobodyOut(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for name, from := range map[string]func(i int) string{
			"a /48":           func(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i) },
			"an IPv4 address": func(int) string { return "192.0.2.1" },
		} {
			answered := 0
			for i := range 3 * 360 { // three hours
				if l.guess(from(i), alice) == "wrong" {
					answered++
				}
				if i%30 == 29 {
					if got := l.try(alice, "right", fmt.Sprintf("10.%d.%d.1", len(name), i/30), alice); got != "right" {
						t.Errorf("%s: the owner after %d guesses: %s", name, i, got)
					}
				}
				l.forward(10 * time.Second)
			}
			if answered != 10+5 {
				t.Errorf("%s: %d guesses were answered", name, answered)
			}
		}
	})
}

// An attacker signs in with its own credential between guesses at another.
func TestSuccessClearsItsOwnFailuresAlone(t *testing.T) {
	for name, other := range map[string]Credential{"an app password of the mailbox": aliceApps, "a mailbox of one's own": bob} {
		eachNode(t, func(t *testing.T, l *node) {
			answered := 0
			for range 60 {
				if got := l.signIn("192.0.2.1", other); got != "right" && got != "limited" {
					t.Fatal(got)
				}
				if l.guess("192.0.2.1", alice) == "wrong" {
					answered++
				}
			}
			if answered != 10 {
				t.Errorf("%s: %d of 60 guesses were answered", name, answered)
			}
			if got := l.signIn("192.0.2.1", other); got != "right" {
				t.Errorf("%s: the other one: %s", name, got)
			}
		})
	}
}

// A password is tried against every mailbox of an address. The owner of one of them guesses the
// password of the other.
func TestNamesakes(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		tried := 0
		for i := range 60 {
			if got := l.try(bob, "bob's own", "192.0.2.1", alice, bob); got != "right" {
				t.Fatalf("bob at guess %d: %s", i, got)
			}
			l.n++
			_, _ = l.Try(t.Context(), ip("192.0.2.1"), fmt.Sprint("guess ", l.n), []Credential{alice, bob}, func(may []Credential) (Credential, error) {
				for _, c := range may {
					if c == alice {
						tried++
					}
				}
				return "", nil
			})
		}
		if tried != 10 {
			t.Errorf("%d guesses at alice's password", tried)
		}
	})
}

// A password that was tried with only one mailbox of an address, while the other was at its limit,
// counts when it is tried with the other.
func TestGuessWithOneNamesakeCountsForTheOther(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		const own, other = "192.0.2.1", "198.51.100.7"
		tried := 0
		do := func(from, guess string) {
			_, err := l.Try(t.Context(), ip(from), guess, []Credential{alice, bob}, func(may []Credential) (Credential, error) {
				if slices.Contains(may, alice) {
					tried++
				}
				if guess == "bob's own" {
					return bob, nil
				}
				return "", nil
			})
			if err != nil && !fault.Is(err, fault.RateLimited) {
				t.Fatal(err)
			}
		}
		do(own, "bob's own")
		for i := range 12 {
			do(own, fmt.Sprint("first ", i))
			do(own, "bob's own")
		}
		tried = 0
		for i := range 60 {
			do(own, fmt.Sprint("guess ", i))
			do(own, "bob's own")
		}
		if tried != 0 {
			t.Fatalf("alice at her limit: tried %d times", tried)
		}
		for i := range 60 {
			do(other, fmt.Sprint("guess ", i))
		}
		if tried != 10 {
			t.Errorf("%d guesses at alice's password from another network", tried)
		}
	})
}

// With SCRAM it is unknown which password was meant: each credential counts, and the network counts
// once.
func TestSeveralCredentialsAtOnce(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		if got := l.answered("192.0.2.1", alice, aliceApps); got != 10 {
			t.Errorf("%d guesses are answered", got)
		}
		for i := range 40 {
			l.guess(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String(), alice, aliceApps)
		}
		// App passwords can't be guessed, so clients elsewhere can't use up their limit.
		for c, want := range map[Credential]string{alice: "limited", aliceApps: "wrong"} {
			if got := l.guess("203.0.113.1", c); got != want {
				t.Errorf("%s: %s", c, got)
			}
		}
	})
}

func TestFailuresAreClearedBySuccess(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		l.signIn("192.0.2.1", alice)
		for range 5 {
			for range 9 {
				if got := l.guess("192.0.2.1", alice); got != "wrong" {
					t.Fatal(got)
				}
			}
			if got := l.signIn("192.0.2.1", alice); got != "right" {
				t.Fatal(got)
			}
		}
	})
}

func TestSamePasswordAgainCountsOnce(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for range 30 {
			if got := l.try("", "the old one", "192.0.2.1", alice); got != "wrong" {
				t.Fatal(got)
			}
		}
		var wg sync.WaitGroup
		for range 100 { // and a phone that opens many connections at once
			wg.Go(func() { l.tryAt(t, ip("192.0.2.1"), "the older one", alice) })
		}
		wg.Wait()
		if got := l.answered("192.0.2.1", alice); got != 8 {
			t.Errorf("%d more are answered", got)
		}
		for i := range 11 {
			l.try("", "the old one", "192.0.2.2", Credential(fmt.Sprint("mailbox:", i)))
		}
		if got := l.guess("192.0.2.2", alice); got != "limited" {
			t.Error("one password for many addresses is guessing")
		}
	})
}

func TestFriendsAreNotCounted(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		l.Exempt = netip.Addr.IsLoopback
		if got := l.answered("::ffff:127.0.0.1", alice); got != 60 {
			t.Errorf("%d guesses of a friend were answered", got)
		}
		if n := rows(t, l.DB); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

var (
	countRows = db.SQL(`SELECT (SELECT COUNT(*) FROM login_failure) + (SELECT COUNT(*) FROM login_network)`)
	noTable   = db.SQL(`ALTER TABLE login_failure RENAME TO login_failure_away`)
	oldTable  = db.SQL(`ALTER TABLE login_failure_away RENAME TO login_failure`)
)

func rows(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.One(t.Context(), countRows.With(), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A successful login from a known network writes nothing.
func TestGoodSignInsWriteNothing(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for range 3 {
			l.signIn("192.0.2.1", alice)
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := rows(t, l.DB); n != 1 {
				t.Fatalf("%d rows", n)
			}
		}
		l.signIn("192.0.2.1", alice)
		if len(l.unwritten) != 0 {
			t.Error("a known network is to be written again within a day")
		}
		l.forward(25 * time.Hour)
		l.signIn("192.0.2.1", alice)
		if len(l.unwritten) != 1 {
			t.Error("that a network is still in use is not written")
		}
	})
}

// After a password change, networks that were known for the old password have no advantage.
func TestForgetNetworks(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		l.signIn("192.0.2.1", alice)
		l.signIn("192.0.2.1", bob)
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.signIn("192.0.2.2", alice) // and not yet written
		if err := l.DB.Tx(t.Context(), func(tx *db.Tx) error { return l.ForgetNetworks(t.Context(), tx, alice) }); err != nil {
			t.Fatal(err)
		}
		for _, c := range []Credential{alice, bob} {
			for i := range 30 {
				l.guess(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String(), c)
			}
		}
		for _, from := range []string{"192.0.2.1", "192.0.2.2"} {
			if got := l.signIn(from, alice); got != "limited" {
				t.Errorf("alice from %s: %s", from, got)
			}
		}
		if got := l.signIn("192.0.2.1", bob); got != "right" {
			t.Errorf("bob: %s", got)
		}
	})
}

// Failures from known networks count against their site's limit, but never block a known network.
func TestKnownNetworksCountForTheirSite(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		at := func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i) }
		for i := range 11 {
			l.signIn(at(i), alice)
		}
		for i := range 10 {
			if got := l.answered(at(i), alice); got != 10 {
				t.Fatalf("network %d: %d guesses are answered", i, got)
			}
		}
		if got := l.guess(at(20), bob); got != "limited" {
			t.Errorf("a new network of the site: %s", got)
		}
		if got := l.signIn(at(10), alice); got != "right" {
			t.Errorf("a known network of the site: %s", got)
		}
	})
}

// A credential keeps a limited number of networks, the newest.
func TestKnownNetworksAreBounded(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for i := range 3 * maxNetworks {
			l.signIn(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String(), alice)
			l.forward(time.Second)
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := rows(t, l.DB); n != maxNetworks {
			t.Errorf("%d rows", n)
		}
		l.guess("198.51.100.1", bob)
		l.forward(KnownNetworkTTL + time.Hour)
		for _, prune := range []func(context.Context, time.Time, int) (int, error){l.PruneFailures, l.PruneNetworks} {
			if n, err := prune(t.Context(), l.now, 1); n != 1 || err != nil {
				t.Errorf("pruned %d: %v", n, err)
			}
			if _, err := prune(t.Context(), l.now, 1000); err != nil {
				t.Error(err)
			}
		}
		if n := rows(t, l.DB); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// While failures can't be counted, no guess is answered. Afterwards the counters are unchanged.
func TestDatabaseAway(t *testing.T) {
	eachNode(t, func(t *testing.T, l *node) {
		for range 9 {
			l.guess("192.0.2.1", alice)
		}
		for _, right := range []Credential{"", alice} {
			_, err := l.Try(t.Context(), ip("192.0.2.1"), "x", []Credential{alice}, func([]Credential) (Credential, error) {
				dbtest.Exec(t, l.DB, noTable.With())
				return right, nil
			})
			dbtest.Exec(t, l.DB, oldTable.With())
			if err == nil || fault.Is(err, fault.RateLimited) {
				t.Errorf("with the counters away: %v", err)
			}
		}
		if got := l.answered("192.0.2.1", alice); got != 1 {
			t.Errorf("%d more are answered", got)
		}
	})
}

// race makes 200 concurrent guesses over some nodes, and returns how many are answered.
func race(t *testing.T, nodes []*node, guess func(l *LoginLimiter, i int) bool) int {
	var answered atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range 200 {
		wg.Go(func() {
			<-begin
			if guess(nodes[i%len(nodes)].LoginLimiter, i) {
				answered.Add(1)
			}
		})
	}
	close(begin)
	wg.Wait()
	return int(answered.Load())
}

func nodes(t *testing.T, url string, n int) (all []*node) {
	c := newClock()
	for range n {
		d, err := db.Open(t.Context(), db.Options{URL: url, Fatal: func(err error) { panic(err) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		all = append(all, newNode(t, d, c))
	}
	return all
}

// Concurrent guesses, from one network and from many, stay within the limits; with several nodes,
// within the limits of each node.
func TestRace(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		for n := 1; n <= 2; n++ {
			all := nodes(t, url, n)
			from := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(n), byte(i)}) }
			got := race(t, all, func(l *LoginLimiter, i int) bool {
				return l.tryAt(t, from(0), fmt.Sprint(i), Credential(fmt.Sprint("mailbox:", i)))
			})
			if got < 10 || got > 10*n {
				t.Errorf("%d nodes: %d guesses from one network were answered", n, got)
			}
			got = race(t, all, func(l *LoginLimiter, i int) bool {
				return l.tryAt(t, from(i+1), fmt.Sprint(i), Credential(fmt.Sprint("user:", n)))
			})
			if got < 30 || got > 30*n {
				t.Errorf("%d nodes: %d guesses at one password were answered", n, got)
			}
			for _, l := range all {
				if l.tryAt(t, from(0), "more", alice) || l.tryAt(t, from(250), "more", Credential(fmt.Sprint("user:", n))) {
					t.Errorf("%d nodes: one more was answered", n)
				}
				if len(l.pending) != 0 {
					t.Errorf("%d counters are still in use", len(l.pending))
				}
			}
		}
	})
}

func (l *LoginLimiter) tryAt(t *testing.T, from netip.Addr, guess string, c Credential) bool {
	_, err := l.Try(t.Context(), from, guess, []Credential{c}, func([]Credential) (Credential, error) { return "", nil })
	if err != nil && !fault.Is(err, fault.RateLimited) {
		t.Error(err)
	}
	return err == nil
}

// The right password among many concurrent wrong ones is rejected once the limit is reached,
// although it was allowed before.
func TestSuccessAfterTheLimitIsNotTold(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		all := nodes(t, url, 2)
		_, err := all[0].Try(t.Context(), ip("192.0.2.1"), "right", []Credential{alice}, func([]Credential) (Credential, error) {
			if got := all[1].answered("192.0.2.1", bob); got != 10 {
				t.Errorf("%d guesses were answered", got)
			}
			return alice, nil
		})
		if !fault.Is(err, fault.RateLimited) {
			t.Errorf("got %v", err)
		}
	})
}

// Concurrent successful logins wait for each other and are not rejected.
func TestManyGoodLogins(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		all := nodes(t, url, 1)
		got := race(t, all, func(l *LoginLimiter, i int) bool {
			c := Credential(fmt.Sprint("mailbox:", i%40))
			right, err := l.Try(t.Context(), ip("192.0.2.1"), "right", []Credential{c}, func([]Credential) (Credential, error) { return c, nil })
			return right == c && err == nil
		})
		if got != 200 {
			t.Errorf("%d of 200 got in", got)
		}
	})
}

func TestTake(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		all := nodes(t, url, 2)
		codes := Limit{Credential: "factor:1", Burst: 10, Interval: time.Minute}
		got := race(t, all, func(l *LoginLimiter, i int) bool {
			_, err := l.Take(t.Context(), codes, Limit{Credential: "factor", Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Burst: 1, Interval: time.Minute})
			if err != nil && !fault.Is(err, fault.RateLimited) {
				t.Error(err)
			}
			return err == nil
		})
		if got != 10 {
			t.Errorf("%d were taken", got)
		}
		l := all[0]
		l.forward(time.Minute)
		giveBack, err := l.Take(t.Context(), codes)
		if err != nil {
			t.Fatal(err)
		}
		_, err = all[1].Take(t.Context(), codes)
		var limited *fault.Error
		if !errors.As(err, &limited) || limited.RetryAfter != time.Minute {
			t.Errorf("got %v", err)
		}
		if err := giveBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err = all[1].Take(t.Context(), codes); err != nil {
			t.Error(err)
		}
	})
}
