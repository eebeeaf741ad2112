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
	// fetchAgain is how long a version that could not be fetched is left
	// alone; mail meanwhile goes by the one before, if there is one.
	fetchAgain = 5 * time.Minute
	// lookAgain is how long the memory is believed before the table is read
	// once more: another node may have fetched something.
	lookAgain = 10 * time.Minute
	// maxWaiting bounds the deliveries that wait for a policy to arrive, so
	// that domains whose policy hosts hang can't take all runs of the queue;
	// what is above it is deferred.
	maxWaiting = 100
	// maxRemembered bounds the policies in memory, in octets.
	maxRemembered = 16 << 20
)

// STSOptions are what an STS works with.
type STSOptions struct {
	DB  *db.DB
	DNS *dns.Resolver
	// Roots are the certificate authorities to trust; nil: the system's.
	Roots *x509.CertPool
	// Allow are networks that policies may be fetched from although they are
	// not public.
	Allow []netip.Prefix
	Port  uint16 // of policy hosts; 0: 443
	Now   func() time.Time
	Log   *slog.Logger
}

// STS knows the MTA-STS policies of domains (RFC 8461). It is safe for
// concurrent use.
type STS struct {
	o       STSOptions
	ctx     context.Context // of fetches; ends with Run
	end     context.CancelFunc
	work    sync.WaitGroup // fetches
	flights singleflight.Group
	waiting chan struct{}

	mu     sync.Mutex
	known  map[string]*list.Element
	recent *list.List // of *standing, the most recently used in front
	size   int
}

// standing is what is known of a domain's policy.
type standing struct {
	domain  string
	id      string
	policy  *Policy   // nil: none
	expires time.Time // of the policy
	read    time.Time // when the table was looked at
	size    int       // octets

	failedID string // a version that could not be had
	failedAt time.Time
}

// errFetching says that too many wait for policies already.
var errFetching = errors.New("too many policies are being fetched")

// NewSTS returns an STS.
func NewSTS(o STSOptions) *STS {
	if o.Port == 0 {
		o.Port = 443
	}
	s := &STS{o: o, waiting: make(chan struct{}, maxWaiting), known: map[string]*list.Element{}, recent: list.New()}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Policy returns the policy of a domain (A-labels), nil if it has none: the
// one that its TXT record speaks of, fetched if need be, else the last one
// until it expires. Those who ask at the same time share a fetch. An error
// says that it is not known at this moment whether there is one.
func (s *STS) Policy(ctx context.Context, domain string) (*Policy, error) {
	id, err := s.lookUpID(ctx, domain)
	if err != nil {
		return nil, err
	}
	now := s.o.Now()
	e, err := s.recall(ctx, domain)
	if err != nil {
		return nil, err
	}
	if id == "" || e.settled(id, now) {
		return e.current(now), nil
	}
	return s.await(ctx, domain, id)
}

// lookUpID asks for a policy's version. Neither the lack of an answer nor that
// of a record ends a policy that is known (RFC 8461 §5.1).
func (s *STS) lookUpID(ctx context.Context, domain string) (string, error) {
	res, err := s.o.DNS.TXT(ctx, "_mta-sts."+domain)
	if err != nil {
		return "", ctx.Err()
	}
	return parsePolicyID(res.Records), nil
}

// current is the policy that counts.
func (e *standing) current(now time.Time) *Policy {
	if e.policy == nil || !now.Before(e.expires) {
		return nil
	}
	return e.policy
}

// settled reports whether there is no reason to fetch a version.
func (e *standing) settled(id string, now time.Time) bool {
	return e.id == id && e.current(now) != nil || e.failedID == id && now.Sub(e.failedAt) < fetchAgain
}

// await has a version fetched, and waits for that.
func (s *STS) await(ctx context.Context, domain, id string) (*Policy, error) {
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		return nil, errFetching
	}
	done := s.flights.DoChan(domain+" "+id, func() (any, error) {
		s.work.Add(1)
		defer s.work.Done()
		// Whoever came a moment too late for the last flight shares it too.
		if e, err := s.recall(s.ctx, domain); err != nil || e.settled(id, s.o.Now()) {
			return e.current(s.o.Now()), err
		}
		return s.update(domain, id)
	})
	select {
	case r := <-done:
		p, _ := r.Val.(*Policy)
		return p, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// update fetches a version and keeps it. If that can't be had, the policy
// before counts on.
func (s *STS) update(domain, id string) (*Policy, error) {
	ctx, cancel := context.WithTimeout(s.ctx, fetchTimeout)
	defer cancel()
	p, err := s.fetch(ctx, domain)
	now := s.o.Now()
	if err == nil {
		return p, s.keep(domain, id, p, now)
	}
	if s.ctx.Err() != nil {
		return nil, err
	}
	s.o.Log.Info("an MTA-STS policy could not be fetched", "domain", domain, "error", err)
	e, err := s.recall(s.ctx, domain)
	if err != nil {
		return nil, err
	}
	s.remember(&standing{
		domain: domain, id: e.id, policy: e.policy, expires: e.expires, read: e.read, size: e.size, failedID: id, failedAt: now,
	})
	return e.current(now), nil
}

// recall returns what is known of a domain, from the memory or the table.
func (s *STS) recall(ctx context.Context, domain string) (*standing, error) {
	now := s.o.Now()
	s.mu.Lock()
	el := s.known[domain]
	var e *standing
	if el != nil {
		s.recent.MoveToFront(el)
		e = el.Value.(*standing)
	}
	s.mu.Unlock()
	if e != nil && now.Sub(e.read) < lookAgain {
		return e, nil
	}
	kept, err := s.load(ctx, domain, now)
	if err != nil {
		return &standing{}, err
	}
	if e != nil {
		kept.failedID, kept.failedAt = e.failedID, e.failedAt
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if newer := s.known[domain]; newer != nil && newer != el {
		return newer.Value.(*standing), nil // fetched while the table was read
	}
	s.put(kept)
	return kept, nil
}

// remember puts what is known of a domain in place of what was.
func (s *STS) remember(e *standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(e)
}

func (s *STS) put(e *standing) {
	s.forget(s.known[e.domain])
	s.known[e.domain] = s.recent.PushFront(e)
	s.size += e.size
	for s.size > maxRemembered {
		s.forget(s.recent.Back())
	}
}

func (s *STS) forget(el *list.Element) {
	if el == nil {
		return
	}
	e := s.recent.Remove(el).(*standing)
	s.size -= e.size
	delete(s.known, e.domain)
}

// overhead is the memory that an entry takes beside its texts, roughly.
const overhead = 400
