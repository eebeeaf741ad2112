// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// errCircuitOpen is the error of a backend that isn't called for a while because it failed too
// often.
var errCircuitOpen = errors.New("it failed too often and rests")

// circuitBreaker stops calls to a failing backend, so that messages don't wait for its timeout.
// After maxFailures consecutive failures it blocks calls for the cooldown; then one caller probes
// the backend.
type circuitBreaker struct {
	now      func() time.Time
	cooldown time.Duration // 0: 30 s

	mu       sync.Mutex
	failures int // consecutive failures
	retryAt  time.Time
	probing  bool
}

// maxFailures is the number of consecutive failures that opens the circuit.
const maxFailures = 3

// allow returns an error if the backend must not be called. Otherwise the caller must call record
// afterwards.
func (c *circuitBreaker) allow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures < maxFailures {
		return nil
	}
	if c.probing || c.now().Before(c.retryAt) {
		return errCircuitOpen
	}
	c.probing = true
	return nil
}

// record records the result of a call.
func (c *circuitBreaker) record(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	if ok {
		c.failures = 0
		return
	}
	c.failures = min(c.failures+1, maxFailures)
	c.retryAt = c.now().Add(cmp.Or(c.cooldown, 30*time.Second))
}

// backend limits the calls to a scanner or filter: concurrency, duration, and a circuit breaker.
type backend struct {
	slots   chan struct{}
	timeout time.Duration
	circuit circuitBreaker
}

func newBackend(concurrent int, limit time.Duration) backend {
	return backend{slots: make(chan struct{}, concurrent), timeout: limit, circuit: circuitBreaker{now: time.Now}}
}

// call waits for a free slot and calls f, which must honor its context. f's ok reports whether the
// backend works, regardless of its answer.
func (b *backend) call(ctx context.Context, f func(context.Context) (ok bool, err error)) error {
	if err := b.circuit.allow(); err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
	case <-asked.Done():
		b.circuit.record(ctx.Err() != nil)
		return asked.Err()
	}
	defer func() { <-b.slots }()
	ok, err := f(asked)
	b.circuit.record(ok || ctx.Err() != nil) // a canceled caller is not a failure of the backend
	return err
}
