// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
)

// flightGroup lets concurrent callers with the same question share one query. The query continues
// while at least one caller waits, and ends when the last one leaves.
type flightGroup struct {
	mu          sync.Mutex
	flights     map[question]*flight
	domainSlots map[string]*domainSlots
}

// domainSlots limits the open queries about one domain.
type domainSlots struct {
	slots chan struct{}
	users int // queries that hold a slot, or wait for one
}

const (
	// maxPerDomain is the maximum number of open queries about one domain. Queries for many names
	// of a silent domain then don't delay other mail.
	maxPerDomain = 32
	// slotTimeout is how long a query waits for a slot before it fails. Slots of a domain whose
	// servers answer become free sooner.
	slotTimeout = time.Second
)

var errBusy = errors.New("too many questions about this domain are open")

type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed once answer and err are set
	answer  answer
	err     error
}

func newFlightGroup() *flightGroup {
	return &flightGroup{flights: make(map[question]*flight), domainSlots: make(map[string]*domainSlots)}
}

// acquireSlot waits for one of the domain's slots, and returns the function that releases it.
func (f *flightGroup) acquireSlot(ctx context.Context, domain string) (func(), error) {
	f.mu.Lock()
	p := f.domainSlots[domain]
	if p == nil {
		p = &domainSlots{slots: make(chan struct{}, maxPerDomain)}
		f.domainSlots[domain] = p
	}
	p.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(f.domainSlots, domain)
		}
	}
	select {
	case p.slots <- struct{}{}:
	default:
		late := time.NewTimer(slotTimeout)
		defer late.Stop()
		select {
		case p.slots <- struct{}{}:
		case <-late.C:
			leave()
			return nil, errBusy
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return func() {
		<-p.slots
		leave()
	}, nil
}

// domainOf returns the domain that a question counts for: the registered domain, or for a reverse
// name its network of 16 bits (IPv6: 32).
func domainOf(fqdn string) string {
	name := strings.TrimSuffix(fqdn, ".")
	labels := 0
	switch {
	case strings.HasSuffix(name, ".in-addr.arpa"):
		labels = 4
	case strings.HasSuffix(name, ".ip6.arpa"):
		labels = 10
	default:
		if domain, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
			return domain
		}
		return name
	}
	at := len(name)
	for ; labels > 0 && at >= 0; labels-- {
		at = strings.LastIndexByte(name[:at], '.')
	}
	return name[at+1:]
}

func (f *flightGroup) do(ctx context.Context, q question, ask func(context.Context) (answer, error)) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	l := f.join(ctx, q, ask)
	select {
	case <-l.done:
		return l.answer, l.err
	case <-ctx.Done():
		f.leave(q, l)
		return answer{}, ctx.Err()
	}
}

func (f *flightGroup) join(ctx context.Context, q question, ask func(context.Context) (answer, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.flights[q]; l != nil {
		l.waiting++
		return l
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	f.flights[q] = l
	go func() {
		defer cancel()
		giveBack, err := f.acquireSlot(ctx, domainOf(q.name))
		if l.err = err; err == nil {
			l.answer, l.err = ask(ctx)
			giveBack()
		}
		f.mu.Lock()
		f.remove(q, l)
		f.mu.Unlock()
		close(l.done)
	}()
	return l
}

func (f *flightGroup) leave(q question, l *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		l.cancel()
		f.remove(q, l)
	}
}

// remove removes l, so that the next caller starts a new query.
func (f *flightGroup) remove(q question, l *flight) {
	if f.flights[q] == l {
		delete(f.flights, q)
	}
}
