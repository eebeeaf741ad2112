// SPDX-License-Identifier: Apache-2.0

// Package dns asks DNS servers, and is one: the resolver that all of Mailstead
// uses, and the sandbox server that answers for the reserved top-level
// domains, which the public DNS never has.
package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"
)

// maxForwardChain is how many CNAMEs are followed.
const maxChain = 8

// Config says whom a Resolver asks, and how. The zero value asks the system's
// servers.
type Config struct {
	Server string // HOST:PORT; empty for those in /etc/resolv.conf
	// Zones are the servers, each HOST:PORT, of some zones: of names in them
	// nobody else is asked, and nothing is answered here, whatever is reserved.
	Zones map[string]string

	// TrustAD takes the AD bit of a server on a loopback address as proof
	// that DNSSEC validation passed. Of any other server it never counts.
	TrustAD bool

	Timeout time.Duration // for a question, however often it is sent; 9 s if 0

	CacheEntries   int           // 4096 if 0
	MaxTTL         time.Duration // longest stay of an answer in the cache; 1 h if 0
	MaxNegativeTTL time.Duration // the same of NXDOMAIN and no data; 5 min if 0
	MaxFailureTTL  time.Duration // longest that a failure is remembered; 5 min if 0, not at all if negative

	Now func() time.Time // time.Now if nil
}

// Resolver asks a recursive DNS server and keeps the answers. It is safe for
// concurrent use. Names are given in ASCII, with or without a trailing dot, in
// any case; names in answers are lowercase and without it.
type Resolver struct {
	upstreams   []upstream
	zones       map[string]upstream // by their canonical names
	timeout     time.Duration
	cache       *cache
	failures    *failureCache
	flights     *flightGroup
	now         func() time.Time
	bypassCache bool
	cacheMiss   *atomic.Bool // set: it asks nobody, and notes here that it would have to
}

// upstream is one address to ask.
type upstream struct {
	addr    string
	trusted bool // its AD bit counts
	timing  *serverTiming
}

// New checks the configuration. It sends nothing.
func New(c Config) (*Resolver, error) {
	r := &Resolver{timeout: c.Timeout, now: c.Now, flights: newFlightGroup(), zones: map[string]upstream{}}
	if r.timeout <= 0 {
		r.timeout = 9 * time.Second
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.cache = newCache(c, r.now)
	r.failures = newFailureCache(c, r.cache.capacity)
	addrs := []string{c.Server}
	if c.Server == "" {
		var err error
		if addrs, err = systemServers("/etc/resolv.conf"); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		s, err := newUpstream(addr, c.TrustAD)
		if err != nil {
			return nil, err
		}
		r.upstreams = append(r.upstreams, s)
	}
	for name, addr := range c.Zones {
		fqdn, ok := canonical(name)
		if !ok || fqdn == "." {
			return nil, errors.New("dns: a zone is given by its name, such as 10.in-addr.arpa; Server is for all others")
		}
		if _, twice := r.zones[fqdn]; twice {
			return nil, errors.New("dns: " + trimDot(fqdn) + " has two servers")
		}
		s, err := newUpstream(addr, c.TrustAD)
		if err != nil {
			return nil, err
		}
		r.zones[fqdn] = s
	}
	return r, nil
}

func newUpstream(addr string, trustAD bool) (upstream, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return upstream{}, errors.New("dns: a server is given as HOST:PORT, such as 127.0.0.1:53")
	}
	ip, err := netip.ParseAddr(host)
	return upstream{addr: addr, trusted: trustAD && err == nil && ip.Unmap().IsLoopback(), timing: &serverTiming{}}, nil
}

// systemServers reads resolv.conf. Without one the server is the local host
// (resolv.conf(5)).
func systemServers(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the system's DNS servers: %w", err)
	}
	c, err := wire.ClientConfigFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the system's DNS servers: %w", err)
	}
	if len(c.Servers) == 0 {
		return []string{"127.0.0.1:53"}, nil
	}
	var addrs []string
	for _, s := range c.Servers[:min(3, len(c.Servers))] {
		addrs = append(addrs, net.JoinHostPort(s, c.Port))
	}
	return addrs, nil
}

// Servers returns the addresses that are asked, in their order, and whether the
// AD bit of all of them counts.
func (r *Resolver) Servers() (addrs []string, trusted bool) {
	trusted = true
	for _, s := range r.upstreams {
		addrs, trusted = append(addrs, s.addr), trusted && s.trusted
	}
	return addrs, trusted
}

// Uncached returns a Resolver that does not answer from the cache, and asks again
// what failed a moment ago, for a check that a person asked for. It joins others
// who are asking the same. What it learns is still kept.
func (r *Resolver) Uncached() *Resolver {
	f := *r
	f.bypassCache = true
	return &f
}

// CacheOnly returns a Resolver that answers from what is remembered alone, at once.
// What is not there is ErrTemporary; missed then tells that this is all that it means.
func (r *Resolver) CacheOnly() (cached *Resolver, missed *atomic.Bool) {
	c := *r
	c.cacheMiss = new(atomic.Bool)
	return &c, c.cacheMiss
}

// Result is an answer. With ErrNotFound and ErrNoData it has no records, but
// the rest holds.
type Result[T any] struct {
	Records   []T
	Canonical string // the name that the records are at, after CNAMEs
	// Authentic tells that a trusted server has validated the answer by DNSSEC.
	Authentic bool
	TTL       time.Duration // how long the answer may be kept from now on
}

// Records asks for the records of any one type. CNAMEs are followed, unless
// they are what is asked for. Don't change the records: the cache shares them.
func (r *Resolver) Records(ctx context.Context, name string, qtype uint16) (Result[wire.RR], error) {
	fail := func(reason, cause error) error {
		return &Error{Reason: reason, Name: name, Type: typeName(qtype), Cause: cause}
	}
	fqdn, ok := canonicalQuery(name)
	if !ok {
		return Result[wire.RR]{}, fail(ErrNotFound, errors.New("not a domain name"))
	}
	res := Result[wire.RR]{Authentic: true}
	for hop := range maxChain {
		a, err := r.answer(ctx, question{fqdn, qtype})
		if err != nil {
			return Result[wire.RR]{}, fail(ErrTemporary, err)
		}
		ttl := max(0, a.expires.Sub(r.now()))
		if hop == 0 || ttl < res.TTL {
			res.TTL = ttl
		}
		res.Records, res.Authentic = a.records, res.Authentic && a.authentic
		res.Canonical = trimDot(a.canonical)
		if a.reason != nil {
			return res, fail(a.reason, nil)
		}
		if len(a.records) > 0 {
			return res, nil
		}
		fqdn = a.canonical // the chain goes on where this server knows no more
	}
	return Result[wire.RR]{}, fail(ErrTemporary, errCNAMEChain)
}

// answer finds the answer to one question in the cache, or asks for it;
// concurrent callers share the asking.
func (r *Resolver) answer(ctx context.Context, q question) (answer, error) {
	if _, ok := r.zoneServer(q.name); !ok {
		if a, ok := localAnswer(q); ok {
			a.expires = r.now().Add(r.cache.capTTL(localTTL*time.Second, a.reason != nil))
			return a, nil
		}
	}
	learn := func(ctx context.Context) (answer, error) { return r.resolve(ctx, q) }
	if r.bypassCache {
		return r.flights.do(ctx, q, learn)
	}
	if a, ok := r.cache.get(q); ok {
		return a, nil
	}
	if err := r.failures.get(q, r.now()); err != nil {
		return answer{}, err
	}
	if r.cacheMiss != nil {
		r.cacheMiss.Store(true)
		return answer{}, errNotCached
	}
	return r.flights.do(ctx, q, learn)
}

// resolve asks, and keeps what comes of it.
func (r *Resolver) resolve(ctx context.Context, q question) (answer, error) {
	began := r.now()
	a, err := r.query(ctx, q)
	if err != nil {
		there := slices.ContainsFunc(r.serversFor(q.name), func(s upstream) bool { return s.timing.answeredSince(began) })
		r.failures.record(q, err, there, r.now())
		return a, err
	}
	r.failures.recordAnswer(q, r.now())
	r.cache.put(q, a)
	return a, nil
}

// serversFor returns the servers to ask for a name: those of the zone that it is
// in, or the usual ones, which come in their order, but those that don't answer
// after the others.
func (r *Resolver) serversFor(fqdn string) []upstream {
	if s, ok := r.zoneServer(fqdn); ok {
		return []upstream{s}
	}
	if len(r.upstreams) == 1 {
		return r.upstreams
	}
	var first, last []upstream
	for now, i := r.now(), 0; i < len(r.upstreams); i++ {
		if s := r.upstreams[i]; s.timing.isUnresponsive(now) {
			last = append(last, s)
		} else {
			first = append(first, s)
		}
	}
	return append(first, last...)
}

// zoneServer returns the server that is named for the zone of a name.
func (r *Resolver) zoneServer(fqdn string) (upstream, bool) {
	if len(r.zones) > 0 {
		for name := fqdn; name != ""; _, name, _ = strings.Cut(name, ".") {
			if s, ok := r.zones[name]; ok {
				return s, true
			}
		}
	}
	return upstream{}, false
}

// canonical returns a name in lower case with the trailing dot. It refuses
// what the DNS could carry but nobody means: spaces, escapes, raw Unicode.
func canonical(name string) (string, bool) {
	if strings.IndexByte(name, ' ') >= 0 {
		return "", false
	}
	return canonicalQuery(name)
}

// canonicalQuery is canonical for a name that is asked for, which SPF's macros may
// have made of anything: the library writes a backslash before what is special
// in a zone file.
func canonicalQuery(name string) (string, bool) {
	special := 0
	for i := range len(name) {
		c := name[i]
		if c < ' ' || c == '\\' || c >= 0x7f {
			return "", false
		}
		if strings.IndexByte(zoneFileSpecials, c) >= 0 {
			special++
		}
	}
	if name == "" || len(name) > 254 {
		return "", false
	}
	if special > 0 {
		b := make([]byte, 0, len(name)+special)
		for i := range len(name) {
			if strings.IndexByte(zoneFileSpecials, name[i]) >= 0 {
				b = append(b, '\\')
			}
			b = append(b, name[i])
		}
		name = string(b)
	}
	if _, ok := wire.IsDomainName(name); !ok {
		return "", false
	}
	return strings.ToLower(wire.Fqdn(name)), true
}

// zoneFileSpecials is what the library escapes in names.
const zoneFileSpecials = ` '@;()"`

// trimDot drops the trailing dot, except of the root.
func trimDot(fqdn string) string {
	if fqdn == "." {
		return fqdn
	}
	return strings.ToLower(strings.TrimSuffix(fqdn, "."))
}

func typeName(qtype uint16) string {
	if s, ok := wire.TypeToString[qtype]; ok {
		return s
	}
	return fmt.Sprintf("TYPE%d", qtype)
}
