// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// youngFor is how long it is believed that an account taught too little:
	// another node may have learned what was missing.
	youngFor = time.Minute
	// maxYoung bounds the accounts remembered.
	maxYoung = 10_000
)

// young are the accounts that taught the filter too little to be judged by: most
// of them, so that their mail is not even looked through for words.
type young struct {
	mu      sync.Mutex
	until   map[db.ID]time.Time
	lessons int // learned here so far
}

// is reports whether an account is known to be young, and how many lessons were
// learned before that was asked.
func (y *young) is(account db.ID, now time.Time) (is bool, lessons int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	return now.Before(y.until[account]), y.lessons
}

// note remembers that an account was found to be young, if nothing was learned
// while that was looked up.
func (y *young) note(account db.ID, now time.Time, lessons int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.lessons != lessons {
		return
	}
	if len(y.until) >= maxYoung {
		clear(y.until)
	}
	y.until[account] = now.Add(youngFor)
}

// grew forgets what was known of an account, which has taught something.
func (y *young) grew(account db.ID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lessons++
	delete(y.until, account)
}
