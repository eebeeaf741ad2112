// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/lru"
)

const (
	// initialBackoff is how long a failed question is not asked again (RFC 9520 §3.2). It doubles
	// with each further failure.
	initialBackoff = 5 * time.Second
	// defaultMaxBackoff is the maximum backoff, unless Config says otherwise.
	defaultMaxBackoff = 5 * time.Minute
	// answeredTTL is how long after an answer a domain as a whole is not considered silent: only
	// some of its names may be on servers that are down.
	answeredTTL = time.Hour
	// minSilence is how long a question must have been unanswered when its caller gave up, to count
	// as silence.
	minSilence = time.Second
)

// errNoAnswer says that no server answered in time. It is a net.Error with Timeout.
var errNoAnswer = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// errIncompleteAnswer says that a server answered, but the whole answer did not arrive over TCP in
// time.
var errIncompleteAnswer = fmt.Errorf("the answer did not end: %w", context.DeadlineExceeded)

// failureCache remembers which questions failed, and which domains are silent or have answered. If
// it is full, it drops the oldest entry.
type failureCache struct {
	mu         sync.Mutex
	entries    lru.Map[question, failureEntry] // by question; for a domain see domainKey
	maxBackoff time.Duration                   // negative: remember nothing
}

type failureEntry struct {
	err        error
	silent     bool // whether no server answered; applies to the names below too
	retryAt    time.Time
	backoff    time.Duration
	answeredAt time.Time // last answer about the domain
}

// domainKey returns the key of the entry for a question's domain.
func domainKey(q question) question { return question{name: domainOf(q.name)} }

func newFailureCache(c Config, size int) *failureCache {
	f := &failureCache{entries: lru.Map[question, failureEntry]{Max: size}, maxBackoff: c.MaxFailureTTL}
	if f.maxBackoff == 0 {
		f.maxBackoff = defaultMaxBackoff
	}
	return f
}

// get returns the remembered error of a question, or nil. If servers were silent about a name, the
// error also applies to questions of the same type below it. If they have not answered lately
// either, it applies to all questions about the domain. Asking would cost the whole timeout again.
func (f *failureCache) get(q question, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries.Len() == 0 {
		return nil
	}
	if err := f.cachedError(domainKey(q), now); err != nil {
		return err
	}
	for at := q; ; {
		if e := f.entries.Peek(at); e != nil && now.Before(e.retryAt) && (e.silent || at == q) {
			return f.cachedError(at, now)
		}
		_, above, more := strings.Cut(at.name, ".")
		if !more || above == "" {
			return nil
		}
		at.name = above
	}
}

func (f *failureCache) cachedError(q question, now time.Time) error {
	if e := f.entries.Peek(q); e != nil && now.Before(e.retryAt) {
		return fmt.Errorf("remembered since a moment ago: %w", e.err)
	}
	return nil
}

// record remembers a failure. If double is set, the backoff may double: the servers are reachable,
// and only this question fails.
func (f *failureCache) record(q question, err error, double bool, now time.Time) {
	silent := errors.Is(err, errNoAnswer)
	var rc rcodeError
	if f.maxBackoff < 0 || !silent && !errors.As(err, &rc) && !errors.Is(err, errMalformed) && !errors.Is(err, errIncompleteAnswer) {
		return // the local network or the caller failed, which says nothing about the question
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putFailure(q, err, silent, double, now)
	if !silent {
		return
	}
	if e := f.entries.Peek(domainKey(q)); e == nil || now.Sub(e.answeredAt) >= answeredTTL {
		f.putFailure(domainKey(q), err, silent, double, now)
	}
}

func (f *failureCache) putFailure(q question, err error, silent, double bool, now time.Time) {
	rest := initialBackoff
	if e := f.entries.Peek(q); e != nil && double && now.Sub(e.retryAt) < f.maxBackoff {
		rest = max(rest, 2*e.backoff)
	}
	rest = min(rest, f.maxBackoff)
	f.entries.Put(q, failureEntry{err: err, silent: silent, retryAt: now.Add(rest), backoff: rest})
}

// recordAnswer records that a question was answered.
func (f *failureCache) recordAnswer(q question, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries.Delete(q)
	f.entries.Put(domainKey(q), failureEntry{answeredAt: now})
}
