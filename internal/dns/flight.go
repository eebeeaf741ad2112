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

// flights lets concurrent callers with the same question share one asking. It
// goes on while at least one of them waits, whoever began it, and ends with
// the last.
type flights struct {
	mu      sync.Mutex
	m       map[question]*flight
	domains map[string]*places
}

// places bound how many questions about one domain are open at once.
type places struct {
	taken chan struct{}
	users int // who hold a place, or wait for one
}

const (
	// mostOpen is that bound: servers that are silent, asked for ever new
	// names, keep nobody else's mail waiting.
	mostOpen = 32
	// placeTime is how long a question waits for a place before it fails. Of a
	// domain whose servers answer one is free sooner.
	placeTime = time.Second
)

var errBusy = errors.New("too many questions about this domain are open")

type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed once answer and err are set
	answer  answer
	err     error
}

func newFlights() *flights {
	return &flights{m: make(map[question]*flight), domains: make(map[string]*places)}
}

// place waits for a place among the questions about a domain, and returns what
// gives it back.
func (f *flights) place(ctx context.Context, domain string) (func(), error) {
	f.mu.Lock()
	p := f.domains[domain]
	if p == nil {
		p = &places{taken: make(chan struct{}, mostOpen)}
		f.domains[domain] = p
	}
	p.users++
	f.mu.Unlock()
	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(f.domains, domain)
		}
	}
	select {
	case p.taken <- struct{}{}:
	default:
		late := time.NewTimer(placeTime)
		defer late.Stop()
		select {
		case p.taken <- struct{}{}:
		case <-late.C:
			leave()
			return nil, errBusy
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return func() {
		<-p.taken
		leave()
	}, nil
}

// domainOf returns the domain that a question counts for: the one that was
// registered, or of a reverse name the network of 16 bits (IPv6: 32).
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

func (f *flights) do(ctx context.Context, q question, ask func(context.Context) (answer, error)) (answer, error) {
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

func (f *flights) join(ctx context.Context, q question, ask func(context.Context) (answer, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.m[q]; l != nil {
		l.waiting++
		return l
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	f.m[q] = l
	go func() {
		defer cancel()
		giveBack, err := f.place(ctx, domainOf(q.name))
		if l.err = err; err == nil {
			l.answer, l.err = ask(ctx)
			giveBack()
		}
		f.mu.Lock()
		f.drop(q, l)
		f.mu.Unlock()
		close(l.done)
	}()
	return l
}

func (f *flights) leave(q question, l *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		l.cancel()
		f.drop(q, l)
	}
}

// drop takes l away, so that the next caller begins anew.
func (f *flights) drop(q question, l *flight) {
	if f.m[q] == l {
		delete(f.m, q)
	}
}
