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
	"strings"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"
)

// maxChain is how many CNAMEs are followed.
const maxChain = 8

// Config says whom a Resolver asks, and how. The zero value asks the system's
// servers.
type Config struct {
	Server  string // HOST:PORT; empty for those in /etc/resolv.conf
	Sandbox string // HOST:PORT asked for names under reserved top-level domains; empty for the same as others

	// TrustAD takes the AD bit of a server on a loopback address as proof
	// that DNSSEC validation passed. Of any other server it never counts.
	TrustAD bool

	Timeout time.Duration // per try; 3 s if 0
	Tries   int           // per question; 3 if 0

	CacheEntries   int           // 4096 if 0
	MaxTTL         time.Duration // longest stay of an answer in the cache; 1 h if 0
	MaxNegativeTTL time.Duration // the same of NXDOMAIN and no data; 5 min if 0

	Now func() time.Time // time.Now if nil
}

// Resolver asks a recursive DNS server and keeps the answers. It is safe for
// concurrent use. Names are given in ASCII, with or without a trailing dot, in
// any case; names in answers are lowercase and without it.
type Resolver struct {
	servers []server
	sandbox []server // nil: servers
	timeout time.Duration
	tries   int
	cache   *cache
	flights *flights
	now     func() time.Time
	fresh   bool
	missed  *atomic.Bool // set: it asks nobody, and notes here that it would have to
}

// server is one address to ask.
type server struct {
	addr    string
	trusted bool // its AD bit counts
}

// New checks the configuration. It sends nothing.
func New(c Config) (*Resolver, error) {
	r := &Resolver{timeout: c.Timeout, tries: c.Tries, now: c.Now, flights: newFlights()}
	if r.timeout <= 0 {
		r.timeout = 3 * time.Second
	}
	if r.tries <= 0 {
		r.tries = 3
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.cache = newCache(c, r.now)
	addrs := []string{c.Server}
	if c.Server == "" {
		var err error
		if addrs, err = systemServers("/etc/resolv.conf"); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		s, err := newServer(addr, c.TrustAD)
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, s)
	}
	if c.Sandbox != "" {
		s, err := newServer(c.Sandbox, c.TrustAD)
		if err != nil {
			return nil, err
		}
		r.sandbox = []server{s}
	}
	return r, nil
}

func newServer(addr string, trustAD bool) (server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return server{}, errors.New("dns: a server is given as HOST:PORT, such as 127.0.0.1:53")
	}
	ip, err := netip.ParseAddr(host)
	return server{addr: addr, trusted: trustAD && err == nil && ip.Unmap().IsLoopback()}, nil
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
	for _, s := range r.servers {
		addrs, trusted = append(addrs, s.addr), trusted && s.trusted
	}
	return addrs, trusted
}

// Fresh returns a Resolver that does not answer from the cache, for a check
// that a person asked for. What it learns still goes there.
func (r *Resolver) Fresh() *Resolver {
	f := *r
	f.fresh = true
	return &f
}

// Cached returns a Resolver that answers from the cache alone, at once. What is
// not there is ErrTemporary; missed then tells that this is all that it means.
func (r *Resolver) Cached() (cached *Resolver, missed *atomic.Bool) {
	c := *r
	c.missed = new(atomic.Bool)
	return &c, c.missed
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
	fqdn, ok := spelled(name)
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
		res.Canonical = plain(a.canonical)
		if a.reason != nil {
			return res, fail(a.reason, nil)
		}
		if len(a.records) > 0 {
			return res, nil
		}
		fqdn = a.canonical // the chain goes on where this server knows no more
	}
	return Result[wire.RR]{}, fail(ErrTemporary, errChain)
}

// answer finds the answer to one question in the cache, or asks for it;
// concurrent callers share the asking.
func (r *Resolver) answer(ctx context.Context, q question) (answer, error) {
	if r.fresh {
		a, err := r.ask(ctx, q)
		if err == nil {
			r.cache.put(q, a)
		}
		return a, err
	}
	if a, ok := r.cache.get(q); ok {
		return a, nil
	}
	if r.missed != nil {
		r.missed.Store(true)
		return answer{}, errNotCached
	}
	return r.flights.do(ctx, q, func(ctx context.Context) (answer, error) {
		a, err := r.ask(ctx, q)
		if err == nil {
			r.cache.put(q, a)
		}
		return a, err
	})
}

// ask tries the servers in turn.
func (r *Resolver) ask(ctx context.Context, q question) (answer, error) {
	servers := r.servers
	if r.sandbox != nil && reserved(q.name) {
		servers = r.sandbox
	}
	var last error
	for try := range max(r.tries, len(servers)) {
		s := servers[try%len(servers)]
		a, err := r.askServer(ctx, s, q)
		if err == nil {
			return a, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
		// A server that has spoken will say the same again.
		var rc rcodeError
		if errors.As(err, &rc) && try+1 >= len(servers) {
			break
		}
	}
	return answer{}, last
}

func (r *Resolver) askServer(ctx context.Context, s server, q question) (answer, error) {
	m, err := exchange(ctx, r.timeout, s.addr, q)
	if err != nil {
		return answer{}, err
	}
	a, ttl, err := read(m, q)
	if err != nil {
		return answer{}, fmt.Errorf("the answer of %s: %w", s.addr, err)
	}
	a.authentic = m.AuthenticatedData && s.trusted
	a.expires = r.now().Add(r.cache.limit(ttl, a.reason != nil))
	return a, nil
}

// canonical returns a name in lower case with the trailing dot. It refuses
// what the DNS could carry but nobody means: spaces, escapes, raw Unicode.
func canonical(name string) (string, bool) {
	if strings.IndexByte(name, ' ') >= 0 {
		return "", false
	}
	return spelled(name)
}

// spelled is canonical for a name that is asked for, which SPF's macros may
// have made of anything: the library writes a backslash before what is special
// in a zone file.
func spelled(name string) (string, bool) {
	special := 0
	for i := range len(name) {
		c := name[i]
		if c < ' ' || c == '\\' || c >= 0x7f {
			return "", false
		}
		if strings.IndexByte(zoneSpecial, c) >= 0 {
			special++
		}
	}
	if name == "" || len(name) > 254 {
		return "", false
	}
	if special > 0 {
		b := make([]byte, 0, len(name)+special)
		for i := range len(name) {
			if strings.IndexByte(zoneSpecial, name[i]) >= 0 {
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

// zoneSpecial is what the library escapes in names.
const zoneSpecial = ` '@;()"`

// plain drops the trailing dot, except of the root.
func plain(fqdn string) string {
	if fqdn == "." {
		return fqdn
	}
	return strings.ToLower(strings.TrimSuffix(fqdn, "."))
}

// reserved reports whether a canonical name is under a top-level domain that
// the public DNS never has (RFC 2606 §2, RFC 6761 §6).
func reserved(fqdn string) bool {
	name := strings.TrimSuffix(fqdn, ".")
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "test", "example", "invalid", "localhost":
		return true
	}
	return false
}

func typeName(qtype uint16) string {
	if s, ok := wire.TypeToString[qtype]; ok {
		return s
	}
	return fmt.Sprintf("TYPE%d", qtype)
}
