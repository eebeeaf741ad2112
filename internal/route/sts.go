// SPDX-License-Identifier: Apache-2.0

package route

import (
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
	"github.com/mailstead/mailstead/internal/lru"
)

const (
	// fetchTimeout bounds the fetch of one policy (RFC 8461 §3.3).
	fetchTimeout = time.Minute
	// fetchRetryDelay is how long a policy version is not fetched again after a failure. Meanwhile
	// the previous policy applies, if there is one.
	fetchRetryDelay = 5 * time.Minute
	// reloadInterval is how long a cached entry is used before it is read from the table again:
	// another node may have fetched a policy.
	reloadInterval = 10 * time.Minute
	// maxFetchWaiters bounds the deliveries that wait for policies, so that domains with hanging
	// policy hosts can't occupy all sessions of the queue. Further deliveries are deferred.
	maxFetchWaiters = 100
	// maxCacheSize bounds the cached policies, in octets.
	maxCacheSize = 16 << 20
)

// STSOptions configure an STSResolver.
type STSOptions struct {
	DB  *db.DB
	DNS *dns.Resolver
	// Roots are the trusted certificate authorities; nil: the system's.
	Roots *x509.CertPool
	// AllowNets are networks that policies may be fetched from although they are not public.
	AllowNets []netip.Prefix
	Port      uint16 // port of policy hosts; 0: 443
	Now       func() time.Time
	Log       *slog.Logger
}

// STSResolver provides the MTA-STS policies of domains (RFC 8461). It is safe for concurrent use.
type STSResolver struct {
	opts       STSOptions
	ctx        context.Context // context of fetches; ends with Run
	cancel     context.CancelFunc
	fetches    sync.WaitGroup // fetches in progress
	fetchGroup singleflight.Group
	waitSlots  chan struct{}

	mu      sync.Mutex
	entries lru.Map[string, *policyEntry] // by domain
	size    int
}

// policyEntry is the known state of a domain's policy.
type policyEntry struct {
	domain   string
	id       string
	policy   *STSPolicy // nil: none
	expires  time.Time  // expiry of the policy
	loadedAt time.Time  // when the entry was read from the table or fetched
	size     int        // approximate memory, in octets

	failedID string // version that could not be fetched
	failedAt time.Time
}

// errTooManyFetches says that too many deliveries already wait for policies.
var errTooManyFetches = errors.New("too many policies are being fetched")

// NewSTSResolver returns an STSResolver.
func NewSTSResolver(o STSOptions) *STSResolver {
	if o.Port == 0 {
		o.Port = 443
	}
	s := &STSResolver{opts: o, waitSlots: make(chan struct{}, maxFetchWaiters)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Policy returns the policy of a domain (A-labels), or nil if it has none. It fetches the version
// that the domain's TXT record names if that is new, else it uses the last policy until that
// expires. Concurrent calls share a fetch. An error means that it is unknown whether there is a
// policy.
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

// lookUpID looks up a policy's version. A missing answer or record does not end a known policy (RFC
// 8461 §5.1).
func (s *STSResolver) lookUpID(ctx context.Context, domain string) (string, error) {
	res, err := s.opts.DNS.TXT(ctx, "_mta-sts."+domain)
	if err != nil {
		return "", ctx.Err()
	}
	return parseSTSRecord(res.Records), nil
}

// current returns the policy that applies, or nil.
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

// fetchShared fetches a version, or waits for a fetch of it that is in progress.
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
		// Another fetch may have ended just before this one began.
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

// fetchAndStore fetches and stores a version. If the fetch fails, the previous policy still
// applies.
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
	s.addToCache(&policyEntry{
		domain: domain, id: e.id, policy: e.policy, expires: e.expires, loadedAt: e.loadedAt, size: e.size, failedID: id, failedAt: now,
	})
	return e.current(now), nil
}

// lookUpEntry returns a domain's entry, from the cache or the table.
func (s *STSResolver) lookUpEntry(ctx context.Context, domain string) (*policyEntry, error) {
	now := s.opts.Now()
	s.mu.Lock()
	var e *policyEntry
	if cached := s.entries.Get(domain); cached != nil {
		e = *cached
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
	if newer := s.entries.Peek(domain); newer != nil && *newer != e {
		return *newer, nil // fetched while the table was read
	}
	s.insert(kept)
	return kept, nil
}

// addToCache puts an entry into the cache, in place of the domain's previous one.
func (s *STSResolver) addToCache(e *policyEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(e)
}

func (s *STSResolver) insert(e *policyEntry) {
	if old := s.entries.Peek(e.domain); old != nil {
		s.size -= (*old).size
	}
	s.entries.Put(e.domain, e)
	for s.size += e.size; s.size > maxCacheSize; {
		domain, oldest, _ := s.entries.Oldest()
		s.size -= (*oldest).size
		s.entries.Delete(domain)
	}
}

// entryOverhead is the approximate memory of an entry besides its texts, in octets.
const entryOverhead = 400
