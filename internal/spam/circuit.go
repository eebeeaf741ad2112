// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errCircuitOpen is the trouble of a backend that failed so often that it is left
// alone for a while.
var errCircuitOpen = errors.New("it failed too often and rests")

// circuitBreaker keeps a backend that fails from costing each message its deadline.
// After some failures in a row it rests; then one caller tries for all.
type circuitBreaker struct {
	now      func() time.Time
	cooldown time.Duration // 0: 30 s

	mu       sync.Mutex
	failures int // in a row
	retryAt  time.Time
	probing  bool
}

// maxFailures is how many failures in a row are no reason to rest.
const maxFailures = 3

// allow says whether the backend may be asked; then leave must be called.
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

// record notes how it went.
func (c *circuitBreaker) record(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	if ok {
		c.failures = 0
		return
	}
	c.failures = min(c.failures+1, maxFailures)
	c.retryAt = c.now().Add(timeoutOr(c.cooldown, 30*time.Second))
}

// backend is what both backends share: how many may be asked at a time, for
// how long, and whether at all.
type backend struct {
	slots   chan struct{}
	timeout time.Duration
	circuit circuitBreaker
}

func newBackend(concurrent int, limit time.Duration) backend {
	return backend{slots: make(chan struct{}, concurrent), timeout: limit, circuit: circuitBreaker{now: time.Now}}
}

// call calls f, which must keep to its context, when there is room. ok of f
// tells that the backend is well, whatever it answered.
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
	b.circuit.record(ok || ctx.Err() != nil) // a client that left is no failure of the backend's
	return err
}
