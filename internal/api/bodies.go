// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// What requests keep in memory while they are in hand, which may be minutes if
// their clients are slow, is bounded for all of them together, and for those of
// one account: texts of 24 MB are allowed to those that send, of 1 MB to all, but
// not to thousands of requests at once. So are answers to GET until they were read.
const (
	freeBody       = 64 << 10 // of each request; it counts for nothing
	bodyStep       = 128 << 10
	maxBodies      = 256 << 20
	maxBodiesOfOne = 96 << 20
)

// bodies counts it.
type bodies struct {
	mu    sync.Mutex
	total int
	of    map[db.ID]int
}

func newBodies() *bodies { return &bodies{of: map[db.ID]int{}} }

// take takes n bytes for a request of an account; too much at once is a
// fault.Limited. An account has at most three times what is then free, so there
// is always some for who comes next.
func (b *bodies) take(account db.ID, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if of := b.of[account] + n; of > maxBodiesOfOne || of > 3*(maxBodies-b.total-n) {
		limited := fault.New(fault.Limited, "too_many_large_requests", "There are too many large requests at once. Wait for one to end.")
		limited.Retry = time.Second
		return limited
	}
	b.total += n
	b.of[account] += n
	return nil
}

// giveBack gives back what was taken.
func (b *bodies) giveBack(account db.ID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.of[account] -= n; b.of[account] == 0 {
		delete(b.of, account)
	}
}

// kept is what one request has taken.
type kept struct {
	of      *bodies
	account db.ID
	bytes   int
}

func (k *kept) take(n int) error {
	err := k.of.take(k.account, n)
	if err == nil {
		k.bytes += n
	}
	return err
}

func (k *kept) giveBack() {
	if k.bytes > 0 {
		k.of.giveBack(k.account, k.bytes)
		k.bytes = 0
	}
}

// growing asks before more of a body is kept than freeBody, a bodyStep at a time.
type growing struct {
	io.Reader
	hold       func(n int) error
	read, held int
}

// Read reads a piece.
func (g *growing) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	for g.read += n; g.read > freeBody+g.held; g.held += bodyStep {
		if err := g.hold(bodyStep); err != nil {
			return 0, err
		}
	}
	return n, err
}
