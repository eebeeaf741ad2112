// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errResting is the trouble of a backend that failed so often that it is left
// alone for a while.
var errResting = errors.New("it failed too often and rests")

// circuit keeps a backend that fails from costing each message its deadline.
// After some failures in a row it rests; then one caller tries for all.
type circuit struct {
	now  func() time.Time
	rest time.Duration // 0: 30 s

	mu     sync.Mutex
	failed int // in a row
	until  time.Time
	trying bool
}

// tolerated is how many failures in a row are no reason to rest.
const tolerated = 3

// enter says whether the backend may be asked; then leave must be called.
func (c *circuit) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed < tolerated {
		return nil
	}
	if c.trying || c.now().Before(c.until) {
		return errResting
	}
	c.trying = true
	return nil
}

// leave notes how it went.
func (c *circuit) leave(ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying = false
	if ok {
		c.failed = 0
		return
	}
	c.failed = min(c.failed+1, tolerated)
	c.until = c.now().Add(timeOr(c.rest, 30*time.Second))
}

// backend is what both backends share: how many may be asked at a time, for
// how long, and whether at all.
type backend struct {
	slots   chan struct{}
	time    time.Duration
	circuit circuit
}

func newBackend(concurrent int, limit time.Duration) backend {
	return backend{slots: make(chan struct{}, concurrent), time: limit, circuit: circuit{now: time.Now}}
}

// ask calls f, which must keep to its context, when there is room. ok of f
// tells that the backend is well, whatever it answered.
func (b *backend) ask(ctx context.Context, f func(context.Context) (ok bool, err error)) error {
	if err := b.circuit.enter(); err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, b.time)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
	case <-asked.Done():
		b.circuit.leave(ctx.Err() != nil)
		return asked.Err()
	}
	defer func() { <-b.slots }()
	ok, err := f(asked)
	b.circuit.leave(ok || ctx.Err() != nil) // a client that left is no failure of the backend's
	return err
}
