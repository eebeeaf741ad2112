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
	"github.com/mailstead/mailstead/internal/lru"
	"github.com/mailstead/mailstead/internal/notify"
)

// LoginLimiter limits password guessing over all listeners and nodes.
//
// Failures count against the client's network and against the credential. Each counter allows a
// number of failures at once and one more per interval (see limitRule). Above that, it rejects the
// attempt before the password is verified. After the first few failures, responses are delayed.
//
// The owner isn't locked out. From a network where a credential has signed in within 30 days, only
// its own failures from there count. Elsewhere each site, an IPv4 address or an IPv6 /48, may fail
// at a credential far less often than all sites together, so that using up the common limit takes
// many sites. The same wrong password again, as from a phone that has the old one, counts once per
// node.
//
// Counters are rows of the database, and only failures write them. An attempt first reserves its
// slot in the memory of its node, so that running attempts count, and then reads the counters. With
// N nodes, a counter with n failures and an interval t therefore allows at most N·n + T/t attempts
// in any time T: each node may have n running attempts that the others don't see yet. All of them
// are counted, also those beyond n, so a longer rejection follows the burst. With one node the
// bound is n + T/t. When the database is unavailable, no attempt is allowed.
type LoginLimiter struct {
	DB     *db.DB
	Key    []byte                // secret, the same on all nodes: hashes the addresses that don't exist
	Now    func() time.Time      // the clock
	Exempt func(netip.Addr) bool // clients that are neither counted nor limited; may be nil
	Sleep  func(context.Context, time.Duration) error

	seed       maphash.Seed
	countLocks [64]sync.Mutex // by password hash: each wrong password is counted once
	wake       chan struct{}  // wakes Run

	mu      sync.Mutex
	pending map[counterKey]*pendingAttempts
	// failureCounts is the number of failures that this node has counted, by counter. Several
	// counters may share an element. An attempt whose sum changed after it read the rows must read
	// them again.
	failureCounts  [256]uint64
	wrongPasswords lru.Map[uint64, struct{}] // wrong passwords seen, with their credentials
	unwritten      map[counterKey]time.Time  // successes that Run still has to write
}

// Credential identifies a secret, or a set of secrets, for signing in. For example, "mailbox:12" is
// a mailbox's own password and "apps:12" its app passwords. Each has its own failures and its own
// known networks.
type Credential string

// AppPasswordKind is the kind, before the colon or space, of credentials that nobody can guess.
// They have no limit over all networks, which could only lock their owners out.
const AppPasswordKind = "apps"

func (c Credential) guessable() bool {
	kind, _, _ := strings.Cut(strings.ReplaceAll(string(c), " ", ":"), ":")
	return kind != AppPasswordKind
}

// counterKey identifies a counter of failures: for a credential from anywhere, for a network or
// site with any credential, or for a credential from a network or site.
type counterKey struct {
	credential Credential
	network    string
}

// limitRule is the limit of a counter: burst failures at once, and one more every interval. From
// delayFrom failures on, responses are delayed.
type limitRule struct {
	burst, delayFrom int64
	interval         time.Duration
}

// The rules. The rule for credentials is mild, since it also affects an owner who comes from a new
// network during an attack: that owner waits a minute. The rule for sites limits a client with many
// IPv6 networks, which would otherwise have as many limits. The rule for a credential from a site
// keeps one site from using up the credential's limit: that takes 30 sites.
func networkLimit() limitRule { return limitRule{burst: 10, delayFrom: 3, interval: 6 * time.Minute} }
func siteLimit() limitRule    { return limitRule{burst: 100, delayFrom: 100, interval: 36 * time.Second} }
func credentialSiteLimit() limitRule {
	return limitRule{burst: 10, delayFrom: 100, interval: 30 * time.Minute}
}
func credentialLimit() limitRule { return limitRule{burst: 30, delayFrom: 10, interval: time.Minute} }

const (
	// KnownNetworkTTL is how long a network stays known after a credential signed in from it.
	KnownNetworkTTL = 30 * 24 * time.Hour

	maxCredentials    = 6 // maximum of credentials that one password may belong to
	maxWrongPasswords = 100_000
	firstDelay        = 250 * time.Millisecond
	maxDelay          = 4 * time.Second

	maxWaiting = 1000 // maximum of attempts that wait for running ones, per counter
	maxWait    = 10 * time.Second
)

// NewLoginLimiter returns a LoginLimiter with its counters in a database. exempt reports clients
// without limits; it may be nil. The caller must also call Run.
func NewLoginLimiter(d *db.DB, key []byte, exempt func(netip.Addr) bool) *LoginLimiter {
	return &LoginLimiter{
		DB: d, Key: key, Exempt: exempt, Now: time.Now, Sleep: notify.Sleep,
		seed: maphash.MakeSeed(), wake: make(chan struct{}, 1),
		pending: map[counterKey]*pendingAttempts{}, wrongPasswords: lru.Map[uint64, struct{}]{Max: maxWrongPasswords}, unwritten: map[counterKey]time.Time{},
	}
}

// attempt is one attempt to sign in.
type attempt struct {
	l            *LoginLimiter
	password     string // the password or its substitute
	passwordHash uint64 // hash of the password and the allowed credentials
	network      counterState
	site         counterState // set for IPv6 only
	candidates   []candidate
	allowed      []Credential // credentials below their limit
	delay        time.Duration
	blockedFor   time.Duration // longest block of a credential at its limit; 0: none
	needsRecheck bool          // an applicable counter has failures, or the network is new
	reserved     []reservation // slots reserved in memory
	turn         counterKey    // counter at which the attempt was woken to take a slot
}

// candidate is a credential that the password may belong to.
type candidate struct {
	credential  Credential
	total       counterState // failures from all networks that aren't known
	fromSite    counterState // failures from the client's site
	fromNetwork counterState
	known       bool // whether the network is known
	seenAt      time.Time
}

// counterState is the state of a counter.
type counterState struct {
	counterKey
	limitRule
	clearAt time.Time
}

// Try runs verify with those of the credentials that may be tried now. It returns the credential
// whose password was right, or "" if the password was wrong. At the limit it returns a
// fault.RateLimited with RetryAfter, and verify has not run or its result is not disclosed. guess
// is the password or its substitute. For an unknown address the caller passes the result of
// HashedCredential. After failures the response is delayed by at most 4 s.
//
// A failure counts against all credentials that were tried. A success clears the failures of its
// credential from this network, and makes the network known for it.
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
	// A client that disconnects does not keep the attempt from being counted.
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

// hash identifies a password tried with the allowed credentials. A password that was wrong for some
// credentials was not tried with the others, nor counted against them.
func (t *attempt) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(t.l.seed)
	for _, c := range t.allowed {
		_, _ = h.WriteString(string(c) + "\x00")
	}
	_, _ = h.WriteString(t.password)
	return h.Sum64()
}

// begin decides which credentials may be tried, and reserves the attempt's slots at their counters.
// It waits while only running attempts block it.
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

// counters returns the counters that apply to a candidate.
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

// reservation is a slot at a counter, with the number of attempts that may run there.
type reservation struct {
	counterKey
	capacity int64
}

// evaluate decides from the counters which credentials may be tried, and returns the slots that
// this takes.
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

// failures returns the number of failures that still count.
func (g *counterState) failures(now time.Time) int64 {
	return int64((max(0, g.clearAt.Sub(now)) + g.interval - 1) / g.interval)
}

// blockedFor returns how long the counter allows no attempt; 0 if it allows one.
func (g *counterState) blockedFor(now time.Time) time.Duration {
	return max(0, max(0, g.clearAt.Sub(now))-time.Duration(g.burst-1)*g.interval)
}

// delay returns the delay of a response after a number of failures.
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

// recordFailure counts the attempt against all credentials that were tried. It discloses the result
// only if all counters were within their limits.
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
			if c.known && t.site.network != "" { // counted but not limited: otherwise other clients of the site could lock the owner out
				of = append(of, &t.site)
			}
		}
	}
	// All transactions use the same order, so that no two wait for each other.
	slices.SortFunc(of, func(a, b *counterState) int { return compareCounters(a.counterKey, b.counterKey) })
	of = slices.CompactFunc(of, func(a, b *counterState) bool { return a.counterKey == b.counterKey })
	if over, err = l.countFailures(ctx, of); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongPasswords.GetOrCreate(t.passwordHash)
	for _, g := range of {
		l.failureCounts[l.shard(g.counterKey)]++
	}
	return over, nil
}

// recordSuccess clears the failures of the credential that was right. If the network is new, or
// there were failures, it reads the counters once more: failures counted meanwhile on any node
// apply.
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
			// A wrong password takes as long, so that timing does not disclose the result.
			counted, err := t.countFailure(ctx)
			if err != nil {
				return err
			}
			return limitedError(max(over, counted))
		}
	}
	if c.fromNetwork.failures(now) > 0 {
		_ = l.resetCounter(ctx, c.fromNetwork.counterKey) // if it fails, the failures expire later
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

// site returns the largest network that a provider gives an IPv6 client, a /48; the zero Prefix for
// IPv4.
func site(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	if !ip.Is6() {
		return netip.Prefix{}
	}
	p, _ := ip.Prefix(48) // never fails for IPv6
	return p
}
