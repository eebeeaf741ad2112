// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// LoginLimiter limits the guessing of passwords over all listeners and nodes.
//
// Failures count against the client's network and against the credential. Each
// counter allows a number of failures at once and one more for each interval
// that passes (see rule); beyond that it refuses the try before the password is
// looked at. After the first few failures, answers are delayed.
//
// The owner isn't locked out. From a network where a credential has signed in
// within 30 days, only its own failures from there count. Elsewhere each site, an
// IPv4 address or an IPv6 /48, may fail at a credential far less often than all
// sites together, so that it takes many of them to use that up. The same wrong
// password again, as from a phone that has the old one, counts once per node.
//
// Counters are rows of the database, and only failures write them. A try first
// reserves its place in the memory of its node, so that tries under way count,
// and then reads the counters. With N nodes, a counter with n failures and an
// interval t therefore answers at most N·n + T/t tries in any time T: each node
// may have n tries under way that the others don't see yet. All of them are
// counted, also those beyond n, so the burst is followed by a longer refusal.
// With one node the bound is n + T/t. When the database is away, no try is answered.
type LoginLimiter struct {
	DB     *db.DB
	Key    []byte                // secret, the same on all nodes: hides the addresses that don't exist
	Now    func() time.Time      // the clock
	Exempt func(netip.Addr) bool // who is neither counted nor limited; may be nil
	Sleep  func(context.Context, time.Duration) error

	seed       maphash.Seed
	countLocks [64]sync.Mutex // by guess: so that one is counted once
	wake       chan struct{}  // wakes Run

	mu      sync.Mutex
	pending map[counterKey]*pendingAttempts
	// failureCounts is how many failures this node has counted, by counter, several of
	// which may share a number: whoever has read the rows before is to read again.
	failureCounts  [256]uint64
	wrongPasswords lruMap[uint64, struct{}] // wrong passwords seen, with their credentials
	unwritten      map[counterKey]time.Time // successes that Run has still to write
}

// Credential names something that signs in with a secret of its own, such as
// "mailbox:12" and "apps:12" for the own password of a mailbox and its app
// passwords. Each has its own failures and its own known networks.
type Credential string

// AppPasswords is the kind, before the colon or space, of credentials that nobody
// can guess. They have no limit over all networks, which would only serve to lock
// their holders out.
const AppPasswords = "apps"

func (c Credential) guessable() bool {
	kind, _, _ := strings.Cut(strings.ReplaceAll(string(c), " ", ":"), ":")
	return kind != AppPasswords
}

// counterKey is what failures are counted by: a credential from anywhere, a network
// or site whatever the credential, or a credential from a network or site.
type counterKey struct {
	credential Credential
	network    string
}

// limitRule says how many failures a counter allows: so many at once, and one more
// every interval. From slow on, answers are delayed.
type limitRule struct {
	burst, delayFrom int64
	interval         time.Duration
}

// The rules. That for credentials is mild, since it also meets an owner who
// comes from a new network during an attack: it makes them wait a minute. That
// for sites keeps a client with many IPv6 networks from having as many limits, and
// that for a credential from a site keeps one site from using up the credential's:
// it takes 30 of them.
func networkLimit() limitRule { return limitRule{burst: 10, delayFrom: 3, interval: 6 * time.Minute} }
func siteLimit() limitRule    { return limitRule{burst: 100, delayFrom: 100, interval: 36 * time.Second} }
func credentialSiteLimit() limitRule {
	return limitRule{burst: 10, delayFrom: 100, interval: 30 * time.Minute}
}
func credentialLimit() limitRule { return limitRule{burst: 30, delayFrom: 10, interval: time.Minute} }

const (
	// KnownNetworkTTL is how long a network is known after a credential signed in from it.
	KnownNetworkTTL = 30 * 24 * time.Hour

	maxCredentials    = 6 // that one password may belong to
	maxWrongPasswords = 100_000
	firstDelay        = 250 * time.Millisecond
	maxDelay          = 4 * time.Second

	maxWaiting = 1000 // tries that wait for those under way, per counter
	maxWait    = 10 * time.Second
)

// NewLoginLimiter returns a LoginLimiter over the counters of a database. Run
// must run beside it.
func NewLoginLimiter(d *db.DB, key []byte) *LoginLimiter {
	return &LoginLimiter{
		DB: d, Key: key, Now: time.Now, Sleep: notify.Sleep,
		seed: maphash.MakeSeed(), wake: make(chan struct{}, 1),
		pending: map[counterKey]*pendingAttempts{}, wrongPasswords: lruMap[uint64, struct{}]{max: maxWrongPasswords}, unwritten: map[counterKey]time.Time{},
	}
}

// attempt is one attempt to sign in.
type attempt struct {
	l            *LoginLimiter
	password     string // or what stands for it
	passwordHash uint64 // the password, with the credentials in may
	network      counterState
	site         counterState // of IPv6
	candidates   []candidate
	allowed      []Credential // those that aren't at their limit
	delay        time.Duration
	blockedFor   time.Duration // of the credentials that are at their limit, until when; 0: none is
	needsRecheck bool          // a counter that applies has failures, or the network is new
	reserved     []reservation // reserved in memory
	turn         counterKey    // where the try was woken to take a place
}

// candidate is a credential that the password may belong to.
type candidate struct {
	credential  Credential
	total       counterState // over all networks where it isn't known
	fromSite    counterState // over those of the client's site
	fromNetwork counterState
	known       bool // the network is
	seenAt      time.Time
}

// counterState is how a counter stands.
type counterState struct {
	counterKey
	limitRule
	clearAt time.Time
}

// Try runs verify with those of the credentials that may be tried now, and
// returns the one whose password was right, or "" when it was wrong. At the
// limit it returns fault.RateLimited, with Retry, and verify has not run or its
// result is not told. guess is the password, or what stands for it. Of
// an unknown address the caller gives what Hashed makes of it. The answer is delayed by 4 s at most after failures.
//
// A failure counts against all credentials that were tried. A success clears the
// failures of its credential from this network, and makes the network known for it.
func (l *LoginLimiter) Try(ctx context.Context, from netip.Addr, guess string, of []Credential, verify func(may []Credential) (Credential, error)) (right Credential, err error) {
	if l.exempt(from) {
		return verify(of)
	}
	t := l.newAttempt(from, guess, of)
	defer l.release(t)
	if err := t.begin(ctx); err != nil {
		return "", err
	}
	if err := l.Sleep(ctx, t.delay); err != nil {
		return "", err
	}
	right, err = verify(t.allowed)
	if err != nil {
		return "", err
	}
	// Whoever hangs up does not keep the try from being counted.
	ctx = context.WithoutCancel(ctx)
	if right == "" {
		return "", t.recordFailure(ctx)
	}
	return right, t.recordSuccess(ctx, right)
}

func (l *LoginLimiter) newAttempt(from netip.Addr, guess string, of []Credential) *attempt {
	network := Network(from).String()
	t := &attempt{l: l, password: guess, network: counterState{counterKey: counterKey{"", network}, limitRule: networkLimit()}}
	if site := site(from); site.IsValid() {
		t.site = counterState{counterKey: counterKey{"", site.String()}, limitRule: siteLimit()}
	}
	for _, c := range of[:min(len(of), maxCredentials)] {
		t.candidates = append(t.candidates, candidate{
			credential:  c,
			total:       counterState{counterKey: counterKey{c, ""}, limitRule: credentialLimit()},
			fromSite:    counterState{counterKey: counterKey{c, cmp.Or(t.site.network, network)}, limitRule: credentialSiteLimit()},
			fromNetwork: counterState{counterKey: counterKey{c, network}, limitRule: networkLimit()},
		})
	}
	return t
}

// hash identifies a password tried with the credentials in may. What was wrong for
// some of them was not tried with the others, nor counted against these.
func (t *attempt) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(t.l.seed)
	for _, c := range t.allowed {
		_, _ = h.WriteString(string(c) + "\x00")
	}
	_, _ = h.WriteString(t.password)
	return h.Sum64()
}

// begin decides which credentials may be tried, and reserves the try's place at
// their counters. It waits while only tries under way are in the way.
func (t *attempt) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	for placed := false; !placed; {
		before := t.l.failuresCounted(t)
		if err := t.l.readCounters(ctx, t); err != nil {
			return err
		}
		places := t.evaluate(t.l.Now())
		if len(places) == 0 && len(t.allowed) == 0 {
			return limitedError(t.blockedFor)
		}
		var err error
		if placed, err = t.l.reserve(ctx, t, before, places); err != nil {
			return err
		}
	}
	return nil
}

// counters are the counters that apply to a candidate.
func (t *attempt) counters(c *candidate) []*counterState {
	if c.known {
		return []*counterState{&c.fromNetwork}
	}
	all := []*counterState{&t.network}
	if t.site.network != "" {
		all = append(all, &t.site)
	}
	if c.credential.guessable() {
		all = append(all, &c.fromSite, &c.total)
	}
	return all
}

// reservation is how many tries may be under way at a counter.
type reservation struct {
	counterKey
	capacity int64
}

// evaluate decides by what was read which credentials may be tried, and returns the
// places that this takes.
func (t *attempt) evaluate(now time.Time) (places []reservation) {
	t.allowed, t.delay, t.blockedFor, t.needsRecheck = nil, 0, 0, false
	for i := range t.candidates {
		c := &t.candidates[i]
		t.needsRecheck = t.needsRecheck || !c.known
		refused, delay := time.Duration(0), time.Duration(0)
		var need []reservation
		for _, g := range t.counters(c) {
			failures := g.failures(now)
			t.needsRecheck = t.needsRecheck || failures > 0
			refused, delay = max(refused, g.blockedFor(now)), max(delay, g.delay(failures))
			need = append(need, reservation{g.counterKey, g.burst - failures})
		}
		if refused > 0 {
			t.blockedFor = max(t.blockedFor, refused)
			continue
		}
		t.allowed, t.delay = append(t.allowed, c.credential), max(t.delay, delay)
		for _, p := range need {
			if !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	t.passwordHash = t.hash()
	return places
}

// failures are those that are not forgotten yet.
func (g *counterState) failures(now time.Time) int64 {
	return int64((max(0, g.clearAt.Sub(now)) + g.interval - 1) / g.interval)
}

// blockedFor is for how long the counter allows no try; 0 if it does.
func (g *counterState) blockedFor(now time.Time) time.Duration {
	return max(0, max(0, g.clearAt.Sub(now))-time.Duration(g.burst-1)*g.interval)
}

// delay is how long an answer waits after so many failures.
func (g *counterState) delay(failures int64) time.Duration {
	if failures < g.delayFrom {
		return 0
	}
	d := firstDelay
	for n := g.delayFrom; n < failures && d < maxDelay; n++ {
		d *= 2
	}
	return min(d, maxDelay)
}

// recordFailure counts the try against all credentials that were tried. Its result is
// told only if all counters were within their limits.
func (t *attempt) recordFailure(ctx context.Context) error {
	over, err := t.countFailure(ctx)
	if err != nil {
		return err
	}
	if over = max(over, t.blockedFor); over > 0 {
		return limitedError(over)
	}
	return nil
}

func (t *attempt) countFailure(ctx context.Context) (over time.Duration, err error) {
	l := t.l
	once := &l.countLocks[t.passwordHash%uint64(len(l.countLocks))]
	once.Lock()
	defer once.Unlock()
	if l.isRepeated(t.passwordHash) {
		return 0, nil
	}
	var of []*counterState
	for i := range t.candidates {
		if c := &t.candidates[i]; slices.Contains(t.allowed, c.credential) {
			of = append(of, t.counters(c)...)
			if c.known && t.site.network != "" { // not limited by it, or others of the site could lock the owner out
				of = append(of, &t.site)
			}
		}
	}
	// In one order everywhere, so that no two transactions wait for each other.
	slices.SortFunc(of, func(a, b *counterState) int { return compareCounters(a.counterKey, b.counterKey) })
	of = slices.CompactFunc(of, func(a, b *counterState) bool { return a.counterKey == b.counterKey })
	if over, err = l.countFailures(ctx, of); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongPasswords.getOrCreate(t.passwordHash)
	for _, g := range of {
		l.failureCounts[l.shard(g.counterKey)]++
	}
	return over, nil
}

// recordSuccess clears the failures of the credential that was right. If the network
// is new, or there were failures, its counters are read once more: what was
// counted meanwhile, on any node, counts.
func (t *attempt) recordSuccess(ctx context.Context, right Credential) error {
	l, now := t.l, t.l.Now()
	i := slices.IndexFunc(t.candidates, func(c candidate) bool { return c.credential == right })
	if i < 0 {
		return fault.New(fault.Internal, "unknown_credential", "The right credential is none of those that were tried.")
	}
	c := &t.candidates[i]
	if t.needsRecheck {
		known := c.known
		if err := l.readCounters(ctx, t); err != nil {
			return err
		}
		c.known = known
		over := time.Duration(0)
		for _, g := range t.counters(c) {
			over = max(over, g.blockedFor(now))
		}
		if over > 0 {
			// A wrong one takes as long, so that time does not tell.
			counted, err := t.countFailure(ctx)
			if err != nil {
				return err
			}
			return limitedError(max(over, counted))
		}
	}
	if c.fromNetwork.failures(now) > 0 {
		_ = l.resetCounter(ctx, c.fromNetwork.counterKey) // if it fails, they are forgotten later
	}
	if now.Sub(c.seenAt) >= seenInterval {
		l.queueNetwork(c.fromNetwork.counterKey, now)
	}
	return nil
}

func limitedError(retry time.Duration) error {
	limited := fault.New(fault.RateLimited, "too_many_failed_logins", "Too many failed logins. Try again later.")
	limited.RetryAfter = max(retry, time.Second)
	return limited
}

func (l *LoginLimiter) exempt(ip netip.Addr) bool { return l.Exempt != nil && l.Exempt(ip.Unmap()) }

// site is the network that an IPv6 client's provider gave it at most; the zero
// Prefix for IPv4.
func site(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	if !ip.Is6() {
		return netip.Prefix{}
	}
	p, _ := ip.Prefix(48) // never fails for IPv6
	return p
}
