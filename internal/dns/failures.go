// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// initialBackoff is how long a question that failed is not asked again
	// (RFC 9520 §3.2); it doubles with each failure after that.
	initialBackoff = 5 * time.Second
	// defaultMaxBackoff is the most that it comes to, if Config does not say otherwise.
	defaultMaxBackoff = 5 * time.Minute
	// answeredTTL is how long a domain that gave an answer is not taken for silent
	// as a whole: only some of its names may be on servers that are gone.
	answeredTTL = time.Hour
	// minSilence is how long a question must have had no answer when its caller
	// gave up, for that to count as silence.
	minSilence = time.Second
)

// errNoAnswer says that no server answered in time. It is a net.Error that is a
// timeout.
var errNoAnswer = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// errIncompleteAnswer says that an answer began, and its rest did not come over TCP in time.
var errIncompleteAnswer = fmt.Errorf("the answer did not end: %w", context.DeadlineExceeded)

// failureCache remembers which questions failed, and which domains are silent or gave
// an answer, no more than a number of them: what was noted least recently goes
// first.
type failureCache struct {
	mu         sync.Mutex
	entries    map[question]*list.Element
	order      *list.List // of *failed, the newest in front
	size       int
	maxBackoff time.Duration // negative: nothing is remembered
}

type failureEntry struct {
	question   question // of a domain: whole
	err        error
	silent     bool // it stands for the names below as well
	retryAt    time.Time
	backoff    time.Duration
	answeredAt time.Time // of a domain
}

// domainKey is the key of what is remembered of the domain that a question is about.
func domainKey(q question) question { return question{name: domainOf(q.name)} }

func newFailureCache(c Config, size int) *failureCache {
	f := &failureCache{entries: make(map[question]*list.Element), order: list.New(), size: size, maxBackoff: c.MaxFailureTTL}
	if f.maxBackoff == 0 {
		f.maxBackoff = defaultMaxBackoff
	}
	return f
}

// get returns the error that a question had, while it is remembered. Servers that
// were silent about a name are not asked for the same type below it either, nor,
// if they gave no answer lately, for anything else of the domain: that would cost
// the time again.
func (f *failureCache) get(q question, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.order.Len() == 0 {
		return nil
	}
	if err := f.cachedError(domainKey(q), now); err != nil {
		return err
	}
	for at := q; ; {
		if e := f.entries[at]; e != nil {
			if x := e.Value.(*failureEntry); now.Before(x.retryAt) && (x.silent || at == q) {
				return f.cachedError(at, now)
			}
		}
		_, above, more := strings.Cut(at.name, ".")
		if !more || above == "" {
			return nil
		}
		at.name = above
	}
}

func (f *failureCache) cachedError(q question, now time.Time) error {
	if e := f.entries[q]; e != nil && now.Before(e.Value.(*failureEntry).retryAt) {
		return fmt.Errorf("remembered since a moment ago: %w", e.Value.(*failureEntry).err)
	}
	return nil
}

// record remembers a failure. double tells that it may be remembered for longer
// than the last time: the servers are there, and only this fails.
func (f *failureCache) record(q question, err error, double bool, now time.Time) {
	silent := errors.Is(err, errNoAnswer)
	var rc rcodeError
	if f.maxBackoff < 0 || !silent && !errors.As(err, &rc) && !errors.Is(err, errMalformed) && !errors.Is(err, errIncompleteAnswer) {
		return // the network here, or the caller: that says nothing of the question
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putFailure(q, err, silent, double, now)
	if !silent {
		return
	}
	if e := f.entries[domainKey(q)]; e == nil || now.Sub(e.Value.(*failureEntry).answeredAt) >= answeredTTL {
		f.putFailure(domainKey(q), err, silent, double, now)
	}
}

func (f *failureCache) putFailure(q question, err error, silent, double bool, now time.Time) {
	rest := initialBackoff
	if e := f.entries[q]; e != nil {
		if x := e.Value.(*failureEntry); double && now.Sub(x.retryAt) < f.maxBackoff {
			rest = max(rest, 2*x.backoff)
		}
	}
	rest = min(rest, f.maxBackoff)
	f.put(&failureEntry{question: q, err: err, silent: silent, retryAt: now.Add(rest), backoff: rest})
}

// recordResponse notes that a question had an answer.
func (f *failureCache) recordAnswer(q question, now time.Time) {
	domain := domainKey(q)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[q]; e != nil {
		f.remove(e)
	}
	f.put(&failureEntry{question: domain, answeredAt: now})
}

func (f *failureCache) put(x *failureEntry) {
	if e := f.entries[x.question]; e != nil {
		f.remove(e)
	}
	if f.order.Len() >= f.size {
		f.remove(f.order.Back())
	}
	f.entries[x.question] = f.order.PushFront(x)
}

func (f *failureCache) remove(e *list.Element) {
	f.order.Remove(e)
	delete(f.entries, e.Value.(*failureEntry).question)
}
