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
	// firstRest is how long a question that failed is not asked again
	// (RFC 9520 §3.2); it doubles with each failure after that.
	firstRest = 5 * time.Second
	// longestRest is the most that it comes to, if Config does not say otherwise.
	longestRest = 5 * time.Minute
	// answersCount is how long a domain that gave an answer is not taken for silent
	// as a whole: only some of its names may be on servers that are gone.
	answersCount = time.Hour
	// silentAfter is how long a question must have had no answer when its caller
	// gave up, for that to count as silence.
	silentAfter = time.Second
)

// errSilent says that no server answered in time. It is a net.Error that is a
// timeout.
var errSilent = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// errUnfinished says that an answer began, and its rest did not come over TCP in time.
var errUnfinished = fmt.Errorf("the answer did not end: %w", context.DeadlineExceeded)

// failures remembers which questions failed, and which domains are silent or gave
// an answer, no more than a number of them: what was noted least recently goes
// first.
type failures struct {
	mu      sync.Mutex
	entries map[question]*list.Element
	order   *list.List // of *failed, the newest in front
	size    int
	longest time.Duration // negative: nothing is remembered
}

type failed struct {
	question question // of a domain: whole
	err      error
	silent   bool // it stands for the names below as well
	until    time.Time
	rest     time.Duration
	answered time.Time // of a domain
}

// whole is the key of what is remembered of the domain that a question is about.
func whole(q question) question { return question{name: domainOf(q.name)} }

func newFailures(c Config, size int) *failures {
	f := &failures{entries: make(map[question]*list.Element), order: list.New(), size: size, longest: c.MaxFailure}
	if f.longest == 0 {
		f.longest = longestRest
	}
	return f
}

// of returns the error that a question had, while it is remembered. Servers that
// were silent about a name are not asked for the same type below it either, nor,
// if they gave no answer lately, for anything else of the domain: that would cost
// the time again.
func (f *failures) of(q question, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.order.Len() == 0 {
		return nil
	}
	if err := f.resting(whole(q), now); err != nil {
		return err
	}
	for at := q; ; {
		if e := f.entries[at]; e != nil {
			if x := e.Value.(*failed); now.Before(x.until) && (x.silent || at == q) {
				return f.resting(at, now)
			}
		}
		_, above, more := strings.Cut(at.name, ".")
		if !more || above == "" {
			return nil
		}
		at.name = above
	}
}

func (f *failures) resting(q question, now time.Time) error {
	if e := f.entries[q]; e != nil && now.Before(e.Value.(*failed).until) {
		return fmt.Errorf("remembered since a moment ago: %w", e.Value.(*failed).err)
	}
	return nil
}

// note remembers a failure. double tells that it may be remembered for longer
// than the last time: the servers are there, and only this fails.
func (f *failures) note(q question, err error, double bool, now time.Time) {
	silent := errors.Is(err, errSilent)
	var rc rcodeError
	if f.longest < 0 || !silent && !errors.As(err, &rc) && !errors.Is(err, errMalformed) && !errors.Is(err, errUnfinished) {
		return // the network here, or the caller: that says nothing of the question
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail(q, err, silent, double, now)
	if !silent {
		return
	}
	if e := f.entries[whole(q)]; e == nil || now.Sub(e.Value.(*failed).answered) >= answersCount {
		f.fail(whole(q), err, silent, double, now)
	}
}

func (f *failures) fail(q question, err error, silent, double bool, now time.Time) {
	rest := firstRest
	if e := f.entries[q]; e != nil {
		if x := e.Value.(*failed); double && now.Sub(x.until) < f.longest {
			rest = max(rest, 2*x.rest)
		}
	}
	rest = min(rest, f.longest)
	f.put(&failed{question: q, err: err, silent: silent, until: now.Add(rest), rest: rest})
}

// answered notes that a question had an answer.
func (f *failures) answered(q question, now time.Time) {
	domain := whole(q)
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[q]; e != nil {
		f.remove(e)
	}
	f.put(&failed{question: domain, answered: now})
}

func (f *failures) put(x *failed) {
	if e := f.entries[x.question]; e != nil {
		f.remove(e)
	}
	if f.order.Len() >= f.size {
		f.remove(f.order.Back())
	}
	f.entries[x.question] = f.order.PushFront(x)
}

func (f *failures) remove(e *list.Element) {
	f.order.Remove(e)
	delete(f.entries, e.Value.(*failed).question)
}
