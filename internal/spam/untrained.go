// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// untrainedTTL is how long an account is cached as untrained: another node may train it.
	untrainedTTL = time.Minute
	// maxUntrained is the maximum number of cached accounts.
	maxUntrained = 10_000
)

// untrainedCache has the accounts that trained the filter too little for a score. Most accounts are
// untrained, and the cache saves tokenizing their mail.
type untrainedCache struct {
	mu      sync.Mutex
	until   map[db.ID]time.Time
	lessons int // learned on this node so far
}

// isUntrained reports whether an account is known to be untrained, and the number of lessons so far
// for add.
func (y *untrainedCache) isUntrained(account db.ID, now time.Time) (is bool, lessons int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return now.Before(y.until[account]), y.lessons
}

// add caches an account as untrained, unless a lesson was learned during the lookup.
func (y *untrainedCache) add(account db.ID, now time.Time, lessons int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.lessons != lessons {
		return
	}
	if len(y.until) >= maxUntrained {
		clear(y.until)
	}
	y.until[account] = now.Add(untrainedTTL)
}

// remove removes an account that has trained the filter.
func (y *untrainedCache) remove(account db.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lessons++
	delete(y.until, account)
}
