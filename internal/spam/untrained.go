// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// untrainedTTL is how long it is believed that an account taught too little:
	// another node may have learned what was missing.
	untrainedTTL = time.Minute
	// maxUntrained bounds the accounts remembered.
	maxUntrained = 10_000
)

// untrainedCache are the accounts that taught the filter too little to be judged by: most
// of them, so that their mail is not even looked through for words.
type untrainedCache struct {
	mu      sync.Mutex
	until   map[db.ID]time.Time
	lessons int // learned here so far
}

// isUntrained reports whether an account is known to be young, and how many lessons were
// learned before that was asked.
func (y *untrainedCache) isUntrained(account db.ID, now time.Time) (is bool, lessons int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return now.Before(y.until[account]), y.lessons
}

// add remembers that an account was found to be young, if nothing was learned
// while that was looked up.
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

// remove forgets what was known of an account, which has taught something.
func (y *untrainedCache) remove(account db.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lessons++
	delete(y.until, account)
}
