// SPDX-License-Identifier: Apache-2.0

package route

import (
	"container/list"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
)

const (
	// fetchTimeout bounds the fetching of one policy (RFC 8461 §3.3).
	fetchTimeout = time.Minute
	// fetchRetryDelay is how long a version that could not be fetched is left
	// alone; mail meanwhile goes by the one before, if there is one.
	fetchRetryDelay = 5 * time.Minute
	// reloadInterval is how long the memory is believed before the table is read
	// once more: another node may have fetched something.
	reloadInterval = 10 * time.Minute
	// maxFetchWaiters bounds the deliveries that wait for a policy to arrive, so
	// that domains whose policy hosts hang can't take all runs of the queue;
	// what is above it is deferred.
	maxFetchWaiters = 100
	// maxCacheSize bounds the policies in memory, in octets.
	maxCacheSize = 16 << 20
)

// STSOptions are what an STSResolver works with.
type STSOptions struct {
	DB  *db.DB
	DNS *dns.Resolver
	// Roots are the certificate authorities to trust; nil: the system's.
	Roots *x509.CertPool
	// AllowNets are networks that policies may be fetched from although they are
	// not public.
	AllowNets []netip.Prefix
	Port      uint16 // of policy hosts; 0: 443
	Now       func() time.Time
	Log       *slog.Logger
}

// STSResolver knows the MTA-STS policies of domains (RFC 8461). It is safe for
// concurrent use.
type STSResolver struct {
	opts       STSOptions
	ctx        context.Context // of fetches; ends with Run
	cancel     context.CancelFunc
	fetches    sync.WaitGroup // fetches
	fetchGroup singleflight.Group
	waitSlots  chan struct{}

	mu      sync.Mutex
	entries map[string]*list.Element
	lru     *list.List // of *standing, the most recently used in front
	size    int
}

// policyEntry is what is known of a domain's policy.
type policyEntry struct {
	domain   string
	id       string
	policy   *STSPolicy // nil: none
	expires  time.Time  // of the policy
	loadedAt time.Time  // when the table was looked at
	size     int        // octets

	failedID string // a version that could not be had
	failedAt time.Time
}

// errTooManyFetches says that too many wait for policies already.
var errTooManyFetches = errors.New("too many policies are being fetched")

// NewSTSResolver returns an STSResolver.
func NewSTSResolver(o STSOptions) *STSResolver {
	if o.Port == 0 {
		o.Port = 443
	}
	s := &STSResolver{opts: o, waitSlots: make(chan struct{}, maxFetchWaiters), entries: map[string]*list.Element{}, lru: list.New()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Policy returns the policy of a domain (A-labels), nil if it has none: the
// one that its TXT record speaks of, fetched if need be, else the last one
// until it expires. Those who ask at the same time share a fetch. An error
// says that it is not known at this moment whether there is one.
func (s *STSResolver) Policy(ctx context.Context, domain string) (*STSPolicy, error) {
	id, err := s.lookUpID(ctx, domain)
	if err != nil {
		return nil, err
	}
	now := s.opts.Now()
	e, err := s.lookUpEntry(ctx, domain)
	if err != nil {
		return nil, err
	}
	if id == "" || e.isFresh(id, now) {
		return e.current(now), nil
	}
	return s.fetchShared(ctx, domain, id)
}

// lookUpID asks for a policy's version. Neither the lack of an answer nor that
// of a record ends a policy that is known (RFC 8461 §5.1).
func (s *STSResolver) lookUpID(ctx context.Context, domain string) (string, error) {
	res, err := s.opts.DNS.TXT(ctx, "_mta-sts."+domain)
	if err != nil {
		return "", ctx.Err()
	}
	return parseSTSRecord(res.Records), nil
}

// current is the policy that counts.
func (e *policyEntry) current(now time.Time) *STSPolicy {
	if e.policy == nil || !now.Before(e.expires) {
		return nil
	}
	return e.policy
}

// isFresh reports whether there is no reason to fetch a version.
func (e *policyEntry) isFresh(id string, now time.Time) bool {
	return e.id == id && e.current(now) != nil || e.failedID == id && now.Sub(e.failedAt) < fetchRetryDelay
}

// fetchShared has a version fetched, and waits for that.
func (s *STSResolver) fetchShared(ctx context.Context, domain, id string) (*STSPolicy, error) {
	select {
	case s.waitSlots <- struct{}{}:
		defer func() { <-s.waitSlots }()
	default:
		return nil, errTooManyFetches
	}
	done := s.fetchGroup.DoChan(domain+" "+id, func() (any, error) {
		s.fetches.Add(1)
		defer s.fetches.Done()
		// Whoever came a moment too late for the last flight shares it too.
		if e, err := s.lookUpEntry(s.ctx, domain); err != nil || e.isFresh(id, s.opts.Now()) {
			return e.current(s.opts.Now()), err
		}
		return s.fetchAndStore(domain, id)
	})
	select {
	case r := <-done:
		p, _ := r.Val.(*STSPolicy)
		return p, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetchAndStore fetches a version and keeps it. If that can't be had, the policy
// before counts on.
func (s *STSResolver) fetchAndStore(domain, id string) (*STSPolicy, error) {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTimeout)
	defer cancel()
	p, err := s.fetch(ctx, domain)
	now := s.opts.Now()
	if err == nil {
		return p, s.storePolicy(domain, id, p, now)
	}
	if s.ctx.Err() != nil {
		return nil, err
	}
	s.opts.Log.Info("an MTA-STS policy could not be fetched", "domain", domain, "error", err)
	e, err := s.lookUpEntry(s.ctx, domain)
	if err != nil {
		return nil, err
	}
	s.cacheEntry(&policyEntry{
		domain: domain, id: e.id, policy: e.policy, expires: e.expires, loadedAt: e.loadedAt, size: e.size, failedID: id, failedAt: now,
	})
	return e.current(now), nil
}

// lookUpEntry returns what is known of a domain, from the memory or the table.
func (s *STSResolver) lookUpEntry(ctx context.Context, domain string) (*policyEntry, error) {
	now := s.opts.Now()
	s.mu.Lock()
	el := s.entries[domain]
	var e *policyEntry
	if el != nil {
		s.lru.MoveToFront(el)
		e = el.Value.(*policyEntry)
	}
	s.mu.Unlock()
	if e != nil && now.Sub(e.loadedAt) < reloadInterval {
		return e, nil
	}
	kept, err := s.loadEntry(ctx, domain, now)
	if err != nil {
		return &policyEntry{}, err
	}
	if e != nil {
		kept.failedID, kept.failedAt = e.failedID, e.failedAt
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer := s.entries[domain]; newer != nil && newer != el {
		return newer.Value.(*policyEntry), nil // fetched while the table was read
	}
	s.insert(kept)
	return kept, nil
}

// cacheEntry puts what is known of a domain in place of what was.
func (s *STSResolver) cacheEntry(e *policyEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(e)
}

func (s *STSResolver) insert(e *policyEntry) {
	s.evict(s.entries[e.domain])
	s.entries[e.domain] = s.lru.PushFront(e)
	s.size += e.size
	for s.size > maxCacheSize {
		s.evict(s.lru.Back())
	}
}

func (s *STSResolver) evict(el *list.Element) {
	if el == nil {
		return
	}
	e := s.lru.Remove(el).(*policyEntry)
	s.size -= e.size
	delete(s.entries, e.domain)
}

// entryOverhead is the memory that an entry takes beside its texts, roughly.
const entryOverhead = 400
