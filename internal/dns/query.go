// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxSends bounds how often one question is sent.
	maxSends = 16
	// maxErrors is how many errors, such as unreadable answers, end a question.
	maxErrors = 3
)

// queryState is one question being sent to servers. It sends the question again, to the next server
// if there is one, once the last server has had its usual time to answer. It still accepts answers
// to earlier sends.
type queryState struct {
	resolver   *Resolver
	question   question
	upstreams  []upstream
	refused    []bool // for each server: whether it refused, and would refuse again
	sendCounts []int  // for each server: how often it was asked

	transmissions []transmission
	events        chan queryEvent
	inFlight      int // number of sends without a result
	errors        int
	lastErr       error
}

type transmission struct {
	upstream  int
	sentAt    time.Time
	responded bool // whether the server has sent anything
	finished  bool
}

// queryEvent is the result of a transmission.
type queryEvent struct {
	index   int
	partial bool // whether only a first response came; another event follows
	answer  answer
	err     error
}

// query sends a question until it is answered, at most for the resolver's timeout.
func (r *Resolver) query(ctx context.Context, q question) (answer, error) {
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	servers := r.serversFor(q.name)
	a := &queryState{
		resolver: r, question: q, upstreams: servers, refused: make([]bool, len(servers)), sendCounts: make([]int, len(servers)),
		events: make(chan queryEvent, 2*maxSends), // so that no sender blocks
	}
	again := time.NewTimer(a.sendNext(within))
	defer again.Stop()
	for {
		select {
		case <-again.C:
			again.Reset(a.handleTimeout(within))
		case got := <-a.events:
			answer, done, next := a.handleEvent(got)
			if done {
				return answer, nil
			}
			if next && !a.doneSending() {
				again.Reset(a.sendNext(within))
			}
			if a.nextServer() < 0 || a.doneSending() && a.inFlight == 0 {
				return answer, a.lastErr
			}
		case <-within.Done():
			return answer{}, a.timeoutError(ctx)
		}
	}
}

// doneSending reports whether the question is not sent any more.
func (a *queryState) doneSending() bool {
	return a.nextServer() < 0 || len(a.transmissions) == maxSends || a.errors >= max(maxErrors, len(a.upstreams))
}

// nextServer returns the index of the server to ask now: the one after the last one asked. It
// returns -1 if all have refused.
func (a *queryState) nextServer() int {
	after := -1
	if n := len(a.transmissions); n > 0 {
		after = a.transmissions[n-1].upstream
	}
	for i := range a.upstreams {
		if at := (after + 1 + i) % len(a.upstreams); !a.refused[at] {
			return at
		}
	}
	return -1
}

// sendNext sends the question to the next server, and returns how long to wait for it.
func (a *queryState) sendNext(ctx context.Context) time.Duration {
	at := a.nextServer()
	s, n := a.upstreams[at], len(a.transmissions)
	a.transmissions = append(a.transmissions, transmission{upstream: at, sentAt: time.Now()})
	a.inFlight++
	wait := min(s.timing.timeout()<<a.sendCounts[at], maxTimeout)
	a.sendCounts[at]++
	go func() {
		got, err := a.resolver.queryServer(ctx, s, a.question, func() { a.events <- queryEvent{index: n, partial: true} })
		a.events <- queryEvent{index: n, answer: got, err: err}
	}()
	return wait
}

// handleTimeout sends the question again. If a server has responded, and is still transferring over
// TCP, it waits a little longer.
func (a *queryState) handleTimeout(ctx context.Context) time.Duration {
	s := a.transmissions[len(a.transmissions)-1]
	switch {
	case s.responded && !s.finished && time.Since(s.sentAt) < maxTimeout:
		return maxTimeout
	case !s.responded:
		a.upstreams[s.upstream].timing.recordLoss(a.resolver.now())
	}
	if a.doneSending() {
		return a.resolver.timeout
	}
	return a.sendNext(ctx)
}

// handleEvent handles an event. done means that the event has the answer; next means that another
// server is to be asked at once.
func (a *queryState) handleEvent(got queryEvent) (out answer, done, next bool) {
	s := &a.transmissions[got.index]
	var rc rcodeError
	refuses := errors.As(got.err, &rc)
	if !s.responded && (got.partial || got.err == nil || refuses) {
		s.responded = true
		a.upstreams[s.upstream].timing.recordAnswer(time.Since(s.sentAt), a.resolver.now())
	}
	if got.partial {
		return answer{}, false, false
	}
	s.finished = true
	a.inFlight--
	if got.err == nil {
		return got.answer, true, false
	}
	a.errors++
	a.lastErr = got.err
	a.refused[s.upstream] = a.refused[s.upstream] || refuses
	return answer{}, false, got.index == len(a.transmissions)-1
}

// timeoutError returns the error of a question without a complete answer in time.
func (a *queryState) timeoutError(ctx context.Context) error {
	var err error
	for _, s := range a.transmissions {
		if s.finished {
			continue
		}
		addr := a.upstreams[s.upstream].addr
		if s.responded {
			err = fmt.Errorf("asking %s over tcp: %w", addr, errIncompleteAnswer)
			break
		}
		if err == nil {
			err = fmt.Errorf("asking %s: %w", addr, errNoAnswer)
		}
	}
	switch {
	case ctx.Err() == nil && err == nil:
		return a.lastErr
	case ctx.Err() == nil:
		return err
	case err != nil && time.Since(a.transmissions[0].sentAt) >= minSilence:
		return errors.Join(ctx.Err(), err)
	}
	return ctx.Err()
}

func (r *Resolver) queryServer(ctx context.Context, s upstream, q question, heard func()) (answer, error) {
	m, err := exchange(ctx, s.addr, q, heard)
	if err != nil {
		return answer{}, err
	}
	a, ttl, err := parseAnswer(m, q)
	if err != nil {
		return answer{}, fmt.Errorf("the answer of %s: %w", s.addr, err)
	}
	a.authentic = m.AuthenticatedData && s.trusted
	a.expires = r.now().Add(r.cache.capTTL(ttl, a.reason != nil))
	return a, nil
}
