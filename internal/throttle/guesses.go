// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"hash/maphash"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// Guesses slows and refuses the guessing of passwords, over all doors.
//
// Failures are counted for the network that guesses and for the address that
// is guessed at, and halve every hour. After a few of them answers are
// delayed; after some more no try is let through for a time that doubles with
// each further failure.
//
// The owner is not locked out: a network from which an address has signed in
// within the last 30 days is judged for that address by its own failures
// there, whatever others do; and the same wrong password again, as from a
// phone that was not told of the new one, is no new guess.
//
// Tries under way at the same time are judged alike, so a door also limits
// connections per network. What is counted is lost with the process.
type Guesses struct {
	Now    func() time.Time      // the clock
	Friend func(netip.Addr) bool // who is neither counted nor limited; may be nil

	seed maphash.Seed

	mu        sync.Mutex
	networks  recent[netip.Prefix, tally]
	addresses recent[uint64, tally]
	homes     recent[home, tally]
	wrong     recent[uint64, struct{}] // wrong passwords seen, with their address
}

// home is an address together with a network it has signed in from.
type home struct {
	address uint64
	network netip.Prefix
}

// tally is what is counted of one network, address or home.
type tally struct {
	failures float64
	at       time.Time // when failures was counted
	seen     time.Time // of a home: when it last signed in
}

// rule is how failures become delays.
type rule struct {
	slow, deny float64       // failures from which answers are delayed, tries refused
	first, max time.Duration // the refusal at deny failures, and the longest
}

// What is remembered, and for how long.
const (
	maxTallies = 100_000
	halfLife   = time.Hour
	homeLife   = 30 * 24 * time.Hour
	firstDelay = 250 * time.Millisecond
	maxDelay   = 4 * time.Second
)

// The rules. That for addresses is mild, for it also meets an owner who comes
// from a new network during an attack.
func networkRule() rule { return rule{slow: 3, deny: 10, first: 30 * time.Second, max: time.Hour} }
func addressRule() rule { return rule{slow: 10, deny: 30, first: 5 * time.Second, max: time.Minute} }

// NewGuesses returns an empty Guesses.
func NewGuesses() *Guesses {
	return &Guesses{
		Now:       time.Now,
		seed:      maphash.MakeSeed(),
		networks:  recent[netip.Prefix, tally]{max: maxTallies},
		addresses: recent[uint64, tally]{max: maxTallies},
		homes:     recent[home, tally]{max: maxTallies},
		wrong:     recent[uint64, struct{}]{max: maxTallies},
	}
}

// Check decides about a try before its password is looked at. If err is not
// nil (fault.Limited, with Retry) the door refuses. Else it waits for wait, at
// most 4 s, before it answers, then calls Failed or Succeeded. address is in
// its normal form; it need not exist.
func (g *Guesses) Check(address string, ip netip.Addr) (wait time.Duration, err error) {
	if g.friend(ip) {
		return 0, nil
	}
	now, h := g.Now(), g.home(address, ip)
	g.mu.Lock()
	defer g.mu.Unlock()
	var retry time.Duration
	if t := g.homes.find(h); t.isHome(now) {
		wait, retry = t.judge(now, networkRule())
	} else {
		wait, retry = g.networks.find(h.network).judge(now, networkRule())
		wait2, retry2 := g.addresses.find(h.address).judge(now, addressRule())
		wait, retry = max(wait, wait2), max(retry, retry2)
	}
	if retry > 0 {
		limited := fault.New(fault.Limited, "too_many_failed_logins", "Too many failed logins. Try again later.")
		limited.Retry = retry
		return 0, limited
	}
	return wait, nil
}

// Failed counts a wrong password. The same one again for the same address
// does not count.
func (g *Guesses) Failed(address string, ip netip.Addr, password string) {
	if g.friend(ip) {
		return
	}
	now, h := g.Now(), g.home(address, ip)
	try := maphash.Comparable(g.seed, [2]string{address, password})
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, fresh := g.wrong.get(try); !fresh {
		return
	}
	if t := g.homes.find(h); t.isHome(now) {
		t.add(now)
		return
	}
	t, _ := g.networks.get(h.network)
	t.add(now)
	t, _ = g.addresses.get(h.address)
	t.add(now)
}

// Succeeded notes a right password: from now on the network is one of the
// address's own. It pardons no failures of others: whoever has a mailbox here
// could else guess at those of others for ever.
func (g *Guesses) Succeeded(address string, ip netip.Addr) {
	if g.friend(ip) {
		return
	}
	now, h := g.Now(), g.home(address, ip)
	g.mu.Lock()
	defer g.mu.Unlock()
	t, _ := g.homes.get(h)
	*t = tally{at: now, seen: now}
}

func (g *Guesses) friend(ip netip.Addr) bool { return g.Friend != nil && g.Friend(ip.Unmap()) }

func (g *Guesses) home(address string, ip netip.Addr) home {
	return home{maphash.String(g.seed, address), Network(ip)}
}

func (t *tally) isHome(now time.Time) bool { return t != nil && now.Sub(t.seen) < homeLife }

func (t *tally) add(now time.Time) {
	t.failures = t.decayed(now) + 1
	t.at = now
}

func (t *tally) decayed(now time.Time) float64 {
	return t.failures * math.Exp2(-max(0, now.Sub(t.at).Hours())/halfLife.Hours())
}

// judge returns how long to delay the answer, and for how long to refuse.
func (t *tally) judge(now time.Time, r rule) (wait, retry time.Duration) {
	if t == nil {
		return 0, 0
	}
	// The refusal follows from the count at the last failure, so that decay
	// does not shorten it while it runs.
	if f := math.Round(t.failures); f >= r.deny {
		until := t.at.Add(doubled(r.first, f-r.deny, r.max))
		if until.After(now) {
			return 0, until.Sub(now)
		}
	}
	if f := math.Round(t.decayed(now)); f >= r.slow {
		wait = doubled(firstDelay, f-r.slow, maxDelay)
	}
	return wait, 0
}

// doubled returns d doubled for each whole one of times, at most limit.
func doubled(d time.Duration, times float64, limit time.Duration) time.Duration {
	for ; times >= 1 && d < limit; times-- {
		d *= 2
	}
	return min(d, limit)
}
