// SPDX-License-Identifier: Apache-2.0

// Package dns has the DNS resolver that all of Mailstead uses, and the sandbox's DNS server, which
// answers for the reserved top-level domains that the public DNS does not have.
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

// maxChain is how many CNAMEs are followed.
const maxChain = 8

// Config configures a Resolver. The zero value uses the system's servers.
type Config struct {
	Server string // HOST:PORT; empty: those in /etc/resolv.conf
	// Zones maps zones to their servers, each HOST:PORT. Names in these zones are asked only of
	// those servers, and get no local answers even if they are reserved.
	Zones map[string]string

	// TrustAD accepts the AD bit of a server on a loopback address as proof of DNSSEC validation.
	// The AD bit of any other server is ignored.
	TrustAD bool

	Timeout time.Duration // for a question with all its retries; 9 s if 0

	CacheEntries   int           // 4096 if 0
	MaxTTL         time.Duration // maximum time that an answer is cached; 1 h if 0
	MaxNegativeTTL time.Duration // the same for NXDOMAIN and no data; 5 min if 0
	MaxFailureTTL  time.Duration // maximum time that a failure is remembered; 5 min if 0, none if negative

	Now func() time.Time // time.Now if nil
}

// Resolver queries a recursive DNS server and caches the answers. It is safe for concurrent use. It
// accepts names in ASCII, with or without a trailing dot, in any case. Names in answers are
// lowercase and have no trailing dot.
type Resolver struct {
	upstreams   []upstream
	zones       map[string]upstream // by canonical name
	timeout     time.Duration
	cache       *cache
	failures    *failureCache
	flights     *flightGroup
	now         func() time.Time
	bypassCache bool
	cacheMiss   *atomic.Bool // if set: send no queries, and record here that one was needed
}

// upstream is a server to query.
type upstream struct {
	addr    string
	trusted bool // whether its AD bit is trusted
	timing  *serverTiming
}

// New returns a Resolver, or an error if the configuration is invalid. It sends no queries.
func New(c Config) (*Resolver, error) {
	r := &Resolver{timeout: c.Timeout, now: c.Now, flights: newFlightGroup(), zones: map[string]upstream{}}
	if r.timeout <= 0 {
		r.timeout = 9 * time.Second
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.cache = newCache(c, r.now)
	r.failures = newFailureCache(c, r.cache.answers.Max)
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

// systemServers reads the servers from resolv.conf. Without any, it is the local host
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

// Servers returns the addresses of the servers, in order, and whether the AD bit of all of them is
// trusted.
func (r *Resolver) Servers() (addrs []string, trusted bool) {
	trusted = true
	for _, s := range r.upstreams {
		addrs, trusted = append(addrs, s.addr), trusted && s.trusted
	}
	return addrs, trusted
}

// Uncached returns a Resolver that ignores cached answers and failures, for a check that a user
// requested. It shares queries that are already running, and caches the answers.
func (r *Resolver) Uncached() *Resolver {
	f := *r
	f.bypassCache = true
	return &f
}

// CacheOnly returns a Resolver that answers at once, and only from its caches. Anything else is
// ErrTemporary, and missed is then set.
func (r *Resolver) CacheOnly() (cached *Resolver, missed *atomic.Bool) {
	c := *r
	c.cacheMiss = new(atomic.Bool)
	return &c, c.cacheMiss
}

// Result is an answer. With ErrNotFound and ErrNoData it has no records, but the other fields are
// valid.
type Result[T any] struct {
	Records   []T
	Canonical string // the name of the records, after CNAMEs
	// Authentic is set if a trusted server has validated the answer by DNSSEC.
	Authentic bool
	TTL       time.Duration // how long the answer may be cached from now on
}

// Records looks up the records of any one type. It follows CNAMEs, unless those are the type. Don't
// change the records: the cache shares them.
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
		fqdn = a.canonical // the chain continues outside of what this server knows
	}
	return Result[wire.RR]{}, fail(ErrTemporary, errCNAMEChain)
}

// answer returns the answer to one question, from the cache or by a query. Concurrent callers share
// queries.
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

// resolve sends the question, and caches the answer or the failure.
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

// serversFor returns the servers to ask for a name: the server of its zone, or the usual ones in
// order, with those that don't respond last.
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

// zoneServer returns the configured server for the zone of a name.
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

// canonical returns a name in lower case with the trailing dot. It rejects names that DNS allows
// but nobody uses: those with spaces, escapes or raw Unicode.
func canonical(name string) (string, bool) {
	if strings.IndexByte(name, ' ') >= 0 {
		return "", false
	}
	return canonicalQuery(name)
}

// canonicalQuery is canonical for a name to look up, which SPF macros may have made from anything.
// It escapes special characters with a backslash, as the library does in zone files.
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

// zoneFileSpecials are the characters that the library escapes in names.
const zoneFileSpecials = ` '@;()"`

// trimDot removes the trailing dot, except from the root, and returns the name in lower case.
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
