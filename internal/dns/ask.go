// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// mostSends bounds how often one question is sent.
	mostSends = 16
	// mostErrors is after how many errors at once, such as an answer that
	// can't be read, a question is given up.
	mostErrors = 3
)

// asking is one question on its way to the servers. What is lost is sent again,
// to the next server where there is one, after as long as the server usually
// takes; answers to what was sent before are taken as well.
type asking struct {
	r       *Resolver
	q       question
	servers []server
	refused []bool // by server: it has spoken, and would say the same again
	times   []int  // by server: how often it was asked

	sends   []sending
	replies chan reply
	open    int // sends without a result
	errors  int
	last    error
}

type sending struct {
	server int
	at     time.Time
	heard  bool // something has come
	ended  bool
}

// reply is what came of a sending.
type reply struct {
	sending int
	heard   bool // the first octets came, which may not be all; the rest is told by another reply
	answer  answer
	err     error
}

// ask sends a question until it is answered, for the resolver's timeout at most.
func (r *Resolver) ask(ctx context.Context, q question) (answer, error) {
	within, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	servers := r.serversOf(q.name)
	a := &asking{
		r: r, q: q, servers: servers, refused: make([]bool, len(servers)), times: make([]int, len(servers)),
		replies: make(chan reply, 2*mostSends), // so that none has to wait for us
	}
	again := time.NewTimer(a.send(within))
	defer again.Stop()
	for {
		select {
		case <-again.C:
			again.Reset(a.overdue(within))
		case got := <-a.replies:
			answer, done, next := a.take(got)
			if done {
				return answer, nil
			}
			if next && !a.over() {
				again.Reset(a.send(within))
			}
			if a.next() < 0 || a.over() && a.open == 0 {
				return answer, a.last
			}
		case <-within.Done():
			return answer{}, a.silence(ctx)
		}
	}
}

// over reports whether nothing more is sent.
func (a *asking) over() bool {
	return a.next() < 0 || len(a.sends) == mostSends || a.errors >= max(mostErrors, len(a.servers))
}

// next is the server to ask now: the one after that which was asked last; -1
// if all have refused.
func (a *asking) next() int {
	after := -1
	if n := len(a.sends); n > 0 {
		after = a.sends[n-1].server
	}
	for i := range a.servers {
		if at := (after + 1 + i) % len(a.servers); !a.refused[at] {
			return at
		}
	}
	return -1
}

// send asks the next server, and returns how long to wait for it.
func (a *asking) send(ctx context.Context) time.Duration {
	at := a.next()
	s, n := a.servers[at], len(a.sends)
	a.sends = append(a.sends, sending{server: at, at: time.Now()})
	a.open++
	wait := min(s.timing.wait()<<a.times[at], longestWait)
	a.times[at]++
	go func() {
		got, err := a.r.askServer(ctx, s, a.q, func() { a.replies <- reply{sending: n, heard: true} })
		a.replies <- reply{sending: n, answer: got, err: err}
	}()
	return wait
}

// overdue sends the question again. A server of which something was heard, and
// which now takes its time over TCP, is waited for a little longer.
func (a *asking) overdue(ctx context.Context) time.Duration {
	s := a.sends[len(a.sends)-1]
	switch {
	case s.heard && !s.ended && time.Since(s.at) < longestWait:
		return longestWait
	case !s.heard:
		a.servers[s.server].timing.missed(a.r.now())
	}
	if a.over() {
		return a.r.timeout
	}
	return a.send(ctx)
}

// take notes what came. done tells that it is the answer, next that another
// server is to be asked at once.
func (a *asking) take(got reply) (out answer, done, next bool) {
	s := &a.sends[got.sending]
	var rc rcodeError
	refuses := errors.As(got.err, &rc)
	if !s.heard && (got.heard || got.err == nil || refuses) {
		s.heard = true
		a.servers[s.server].timing.answered(time.Since(s.at), a.r.now())
	}
	if got.heard {
		return answer{}, false, false
	}
	s.ended = true
	a.open--
	if got.err == nil {
		return got.answer, true, false
	}
	a.errors++
	a.last = got.err
	a.refused[s.server] = a.refused[s.server] || refuses
	return answer{}, false, got.sending == len(a.sends)-1
}

// silence is the error of a question that had no whole answer in time.
func (a *asking) silence(ctx context.Context) error {
	var err error
	for _, s := range a.sends {
		if s.ended {
			continue
		}
		addr := a.servers[s.server].addr
		if s.heard {
			err = fmt.Errorf("asking %s over tcp: %w", addr, errUnfinished)
			break
		}
		if err == nil {
			err = fmt.Errorf("asking %s: %w", addr, errSilent)
		}
	}
	switch {
	case ctx.Err() == nil && err == nil:
		return a.last
	case ctx.Err() == nil:
		return err
	case err != nil && time.Since(a.sends[0].at) >= silentAfter:
		return errors.Join(ctx.Err(), err)
	}
	return ctx.Err()
}

func (r *Resolver) askServer(ctx context.Context, s server, q question, heard func()) (answer, error) {
	m, err := exchange(ctx, s.addr, q, heard)
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
