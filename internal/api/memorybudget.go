// SPDX-License-Identifier: Apache-2.0

package api

import (
	"io"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Limits on the memory of requests, which may take minutes if clients are slow. One send may have
// 24 MB of text and any request 1 MB, but thousands of concurrent requests may not. The budget
// covers all requests, and those of each account. It includes GET responses until the client has
// read them.
const (
	freeBodyBytes       = 64 << 10 // not counted, for each request
	reserveStepBytes    = 128 << 10
	maxMemory           = 256 << 20
	maxMemoryPerAccount = 96 << 20
)

// memoryBudget counts the reserved bytes, in total and by account.
type memoryBudget struct {
	mu        sync.Mutex
	total     int
	byAccount map[db.ID]int
}

func newMemoryBudget() *memoryBudget { return &memoryBudget{byAccount: map[db.ID]int{}} }

// reserve reserves n bytes for a request of an account. It returns a fault.RateLimited if too much
// is in use. An account may use at most three times the remaining memory, so the next account
// always gets some.
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

// release releases n reserved bytes.
func (b *memoryBudget) release(account db.ID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.byAccount[account] -= n; b.byAccount[account] == 0 {
		delete(b.byAccount, account)
	}
}

// memoryReservation is the memory reserved for one request.
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

// reservingReader reserves memory, reserveStepBytes at a time, before the body exceeds
// freeBodyBytes.
type reservingReader struct {
	io.Reader
	reserve         func(n int) error
	total, reserved int
}

// Read implements io.Reader.
func (g *reservingReader) Read(p []byte) (int, error) {
	n, err := g.Reader.Read(p)
	for g.total += n; g.total > freeBodyBytes+g.reserved; g.reserved += reserveStepBytes {
		if err := g.reserve(reserveStepBytes); err != nil {
			return 0, err
		}
	}
	return n, err
}
