// SPDX-License-Identifier: Apache-2.0

package throttle

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
	"github.com/mailstead/mailstead/internal/signal"
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
	Friend func(netip.Addr) bool // who is neither counted nor limited; may be nil
	Pause  func(context.Context, time.Duration) error

	seed     maphash.Seed
	counting [64]sync.Mutex // by guess: so that one is counted once
	news     chan struct{}  // wakes Run

	mu    sync.Mutex
	loads map[counter]*load
	// counted is how many failures this node has counted, by counter, several of
	// which may share a number: whoever has read the rows before is to read again.
	counted [256]uint64
	wrong   recent[uint64, struct{}] // wrong passwords seen, with their credentials
	known   map[counter]time.Time    // successes that Run has still to write
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

// counter is what failures are counted by: a credential from anywhere, a network
// or site whatever the credential, or a credential from a network or site.
type counter struct {
	credential Credential
	network    string
}

// rule says how many failures a counter allows: so many at once, and one more
// every interval. From slow on, answers are delayed.
type rule struct {
	tries, slow int64
	every       time.Duration
}

// The rules. That for credentials is mild, since it also meets an owner who
// comes from a new network during an attack: it makes them wait a minute. That
// for sites keeps a client with many IPv6 networks from having as many limits, and
// that for a credential from a site keeps one site from using up the credential's:
// it takes 30 of them.
func networkRule() rule    { return rule{tries: 10, slow: 3, every: 6 * time.Minute} }
func siteRule() rule       { return rule{tries: 100, slow: 100, every: 36 * time.Second} }
func fromSiteRule() rule   { return rule{tries: 10, slow: 100, every: 30 * time.Minute} }
func credentialRule() rule { return rule{tries: 30, slow: 10, every: time.Minute} }

const (
	// KnownFor is how long a network is known after a credential signed in from it.
	KnownFor = 30 * 24 * time.Hour

	maxCredentials = 6 // that one password may belong to
	maxWrong       = 100_000
	firstDelay     = 250 * time.Millisecond
	maxDelay       = 4 * time.Second

	maxWaiting  = 1000 // tries that wait for those under way, per counter
	longestWait = 10 * time.Second
)

// NewLoginLimiter returns a LoginLimiter over the counters of a database. Run
// must run beside it.
func NewLoginLimiter(d *db.DB, key []byte) *LoginLimiter {
	return &LoginLimiter{
		DB: d, Key: key, Now: time.Now, Pause: signal.Sleep,
		seed: maphash.MakeSeed(), news: make(chan struct{}, 1),
		loads: map[counter]*load{}, wrong: recent[uint64, struct{}]{max: maxWrong}, known: map[counter]time.Time{},
	}
}

// try is one attempt to sign in.
type try struct {
	l         *LoginLimiter
	password  string // or what stands for it
	guess     uint64 // the password, with the credentials in may
	network   gauge
	site      gauge // of IPv6
	all       []candidate
	may       []Credential // those that aren't at their limit
	delay     time.Duration
	refused   time.Duration // of the credentials that are at their limit, until when; 0: none is
	unsettled bool          // a counter that applies has failures, or the network is new
	held      []place       // reserved in memory
	turn      counter       // where the try was woken to take a place
}

// candidate is a credential that the password may belong to.
type candidate struct {
	id       Credential
	total    gauge // over all networks where it isn't known
	fromSite gauge // over those of the client's site
	here     gauge
	known    bool // the network is
	seen     time.Time
}

// gauge is how a counter stands.
type gauge struct {
	counter
	rule
	clearAt time.Time
}

// Try runs verify with those of the credentials that may be tried now, and
// returns the one whose password was right, or "" when it was wrong. At the
// limit it returns fault.Limited, with Retry, and verify has not run or its
// result is not told. guess is the password, or what stands for it. Of
// an unknown address the caller gives what Hashed makes of it. The answer is delayed by 4 s at most after failures.
//
// A failure counts against all credentials that were tried. A success clears the
// failures of its credential from this network, and makes the network known for it.
func (l *LoginLimiter) Try(ctx context.Context, from netip.Addr, guess string, of []Credential, verify func(may []Credential) (Credential, error)) (right Credential, err error) {
	if l.friend(from) {
		return verify(of)
	}
	t := l.newTry(from, guess, of)
	defer l.release(t)
	if err := t.begin(ctx); err != nil {
		return "", err
	}
	if err := l.Pause(ctx, t.delay); err != nil {
		return "", err
	}
	right, err = verify(t.may)
	if err != nil {
		return "", err
	}
	// Whoever hangs up does not keep the try from being counted.
	ctx = context.WithoutCancel(ctx)
	if right == "" {
		return "", t.failed(ctx)
	}
	return right, t.succeeded(ctx, right)
}

func (l *LoginLimiter) newTry(from netip.Addr, guess string, of []Credential) *try {
	network := Network(from).String()
	t := &try{l: l, password: guess, network: gauge{counter: counter{"", network}, rule: networkRule()}}
	if site := site(from); site.IsValid() {
		t.site = gauge{counter: counter{"", site.String()}, rule: siteRule()}
	}
	for _, c := range of[:min(len(of), maxCredentials)] {
		t.all = append(t.all, candidate{
			id:       c,
			total:    gauge{counter: counter{c, ""}, rule: credentialRule()},
			fromSite: gauge{counter: counter{c, cmp.Or(t.site.network, network)}, rule: fromSiteRule()},
			here:     gauge{counter: counter{c, network}, rule: networkRule()},
		})
	}
	return t
}

// key identifies a password tried with the credentials in may. What was wrong for
// some of them was not tried with the others, nor counted against these.
func (t *try) key() uint64 {
	var h maphash.Hash
	h.SetSeed(t.l.seed)
	for _, c := range t.may {
		_, _ = h.WriteString(string(c) + "\x00")
	}
	_, _ = h.WriteString(t.password)
	return h.Sum64()
}

// begin decides which credentials may be tried, and reserves the try's place at
// their counters. It waits while only tries under way are in the way.
func (t *try) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	for placed := false; !placed; {
		before := t.l.countedAt(t)
		if err := t.l.read(ctx, t); err != nil {
			return err
		}
		places := t.judge(t.l.Now())
		if len(places) == 0 && len(t.may) == 0 {
			return tooMany(t.refused)
		}
		var err error
		if placed, err = t.l.reserve(ctx, t, before, places); err != nil {
			return err
		}
	}
	return nil
}

// gauges are the counters that apply to a candidate.
func (t *try) gauges(c *candidate) []*gauge {
	if c.known {
		return []*gauge{&c.here}
	}
	all := []*gauge{&t.network}
	if t.site.network != "" {
		all = append(all, &t.site)
	}
	if c.id.guessable() {
		all = append(all, &c.fromSite, &c.total)
	}
	return all
}

// place is how many tries may be under way at a counter.
type place struct {
	counter
	room int64
}

// judge decides by what was read which credentials may be tried, and returns the
// places that this takes.
func (t *try) judge(now time.Time) (places []place) {
	t.may, t.delay, t.refused, t.unsettled = nil, 0, 0, false
	for i := range t.all {
		c := &t.all[i]
		t.unsettled = t.unsettled || !c.known
		refused, delay := time.Duration(0), time.Duration(0)
		var need []place
		for _, g := range t.gauges(c) {
			failures := g.failures(now)
			t.unsettled = t.unsettled || failures > 0
			refused, delay = max(refused, g.refuses(now)), max(delay, g.delay(failures))
			need = append(need, place{g.counter, g.tries - failures})
		}
		if refused > 0 {
			t.refused = max(t.refused, refused)
			continue
		}
		t.may, t.delay = append(t.may, c.id), max(t.delay, delay)
		for _, p := range need {
			if !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	t.guess = t.key()
	return places
}

// failures are those that are not forgotten yet.
func (g *gauge) failures(now time.Time) int64 {
	return int64((max(0, g.clearAt.Sub(now)) + g.every - 1) / g.every)
}

// refuses is for how long the counter allows no try; 0 if it does.
func (g *gauge) refuses(now time.Time) time.Duration {
	return max(0, max(0, g.clearAt.Sub(now))-time.Duration(g.tries-1)*g.every)
}

// delay is how long an answer waits after so many failures.
func (g *gauge) delay(failures int64) time.Duration {
	if failures < g.slow {
		return 0
	}
	d := firstDelay
	for n := g.slow; n < failures && d < maxDelay; n++ {
		d *= 2
	}
	return min(d, maxDelay)
}

// failed counts the try against all credentials that were tried. Its result is
// told only if all counters were within their limits.
func (t *try) failed(ctx context.Context) error {
	over, err := t.count(ctx)
	if err != nil {
		return err
	}
	if over = max(over, t.refused); over > 0 {
		return tooMany(over)
	}
	return nil
}

func (t *try) count(ctx context.Context) (over time.Duration, err error) {
	l := t.l
	once := &l.counting[t.guess%uint64(len(l.counting))]
	once.Lock()
	defer once.Unlock()
	if l.repeated(t.guess) {
		return 0, nil
	}
	var of []*gauge
	for i := range t.all {
		if c := &t.all[i]; slices.Contains(t.may, c.id) {
			of = append(of, t.gauges(c)...)
			if c.known && t.site.network != "" { // not limited by it, or others of the site could lock the owner out
				of = append(of, &t.site)
			}
		}
	}
	// In one order everywhere, so that no two transactions wait for each other.
	slices.SortFunc(of, func(a, b *gauge) int { return compare(a.counter, b.counter) })
	of = slices.CompactFunc(of, func(a, b *gauge) bool { return a.counter == b.counter })
	if over, err = l.count(ctx, of); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong.get(t.guess)
	for _, g := range of {
		l.counted[l.number(g.counter)]++
	}
	return over, nil
}

// succeeded clears the failures of the credential that was right. If the network
// is new, or there were failures, its counters are read once more: what was
// counted meanwhile, on any node, counts.
func (t *try) succeeded(ctx context.Context, right Credential) error {
	l, now := t.l, t.l.Now()
	i := slices.IndexFunc(t.all, func(c candidate) bool { return c.id == right })
	if i < 0 {
		return fault.New(fault.Internal, "unknown_credential", "The right credential is none of those that were tried.")
	}
	c := &t.all[i]
	if t.unsettled {
		known := c.known
		if err := l.read(ctx, t); err != nil {
			return err
		}
		c.known = known
		over := time.Duration(0)
		for _, g := range t.gauges(c) {
			over = max(over, g.refuses(now))
		}
		if over > 0 {
			// A wrong one takes as long, so that time does not tell.
			counted, err := t.count(ctx)
			if err != nil {
				return err
			}
			return tooMany(max(over, counted))
		}
	}
	if c.here.failures(now) > 0 {
		_ = l.forget(ctx, c.here.counter) // if it fails, they are forgotten later
	}
	if now.Sub(c.seen) >= seenAgain {
		l.remember(c.here.counter, now)
	}
	return nil
}

func tooMany(retry time.Duration) error {
	limited := fault.New(fault.Limited, "too_many_failed_logins", "Too many failed logins. Try again later.")
	limited.Retry = max(retry, time.Second)
	return limited
}

func (l *LoginLimiter) friend(ip netip.Addr) bool { return l.Friend != nil && l.Friend(ip.Unmap()) }

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
