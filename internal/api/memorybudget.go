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
	freeBodyBytes       = 64 << 10 // of each request; it counts for nothing
	reserveStepBytes    = 128 << 10
	maxMemory           = 256 << 20
	maxMemoryPerAccount = 96 << 20
)

// memoryBudget counts it.
type memoryBudget struct {
	mu        sync.Mutex
	total     int
	byAccount map[db.ID]int
}

func newMemoryBudget() *memoryBudget { return &memoryBudget{byAccount: map[db.ID]int{}} }

// reserve takes n bytes for a request of an account; too much at once is a
// fault.RateLimited. An account has at most three times what is then free, so there
// is always some for who comes next.
func (b *memoryBudget) reserve(account db.ID, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if of := b.byAccount[account] + n; of > maxMemoryPerAccount || of > 3*(maxMemory-b.total-n) {
		limited := fault.New(fault.RateLimited, "too_many_large_requests", "There are too many large requests at once. Wait for one to end.")
		limited.RetryAfter = time.Second
		return limited
	}
	b.total += n
	b.byAccount[account] += n
	return nil
}

// release gives back what was taken.
func (b *memoryBudget) release(account db.ID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.byAccount[account] -= n; b.byAccount[account] == 0 {
		delete(b.byAccount, account)
	}
}

// memoryReservation is what one request has taken.
type memoryReservation struct {
	budget   *memoryBudget
	account  db.ID
	reserved int
}

func (k *memoryReservation) reserve(n int) error {
	err := k.budget.reserve(k.account, n)
	if err == nil {
		k.reserved += n
	}
	return err
}

func (k *memoryReservation) release() {
	if k.reserved > 0 {
		k.budget.release(k.account, k.reserved)
		k.reserved = 0
	}
}

// reservingReader asks before more of a body is kept than freeBodyBytes, a reserveStepBytes at a time.
type reservingReader struct {
	io.Reader
	reserve         func(n int) error
	total, reserved int
}

// Read reads a piece.
func (g *reservingReader) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	for g.total += n; g.total > freeBodyBytes+g.reserved; g.reserved += reserveStepBytes {
		if err := g.reserve(reserveStepBytes); err != nil {
			return 0, err
		}
	}
	return n, err
}
