// SPDX-License-Identifier: Apache-2.0

package db

import "time"

// commitDelay is what a lane knows of who writes through it. Those whose jobs were
// committed together come back together, but one of them first: its job alone would
// get the next batch, and all others wait for the end of that. From then on they go
// in two groups, each with a flush and round trips of its own, which for few callers
// are most of what a batch costs. So the lane waits a moment for those who should
// come; if they don't it soon gives up waiting.
type commitDelay struct {
	expected     int           // whose jobs were in the last batch, or waited when it ended
	lastEnd      time.Time     // the last batch
	lastDuration time.Duration // the last batch
	misses       int           // how often in a row they did not come, as a power of two less one
	skip         int           // how many batches begin without waiting
}

const (
	// maxDelayWriters is for how many it is worth while: of more, a part can make ready
	// what comes next while the others' batch is being flushed.
	maxDelayWriters = 6
	// maxCommitDelay bounds the wait where flushes take long.
	maxCommitDelay = 5 * time.Millisecond
	// maxSkippedDelays is for how many batches at most nobody is waited for.
	maxSkippedDelays = 255
)

// shouldWait reports whether to wait for others when jobs of some have come. Who has not
// come at once after his answer does something else.
func (c *commitDelay) shouldWait(come int, now time.Time) bool {
	if come >= c.expected || c.expected > maxDelayWriters || now.Sub(c.lastEnd) > c.timeout() {
		return false
	}
	if c.skip > 0 {
		c.skip--
		return false
	}
	return true
}

// timeout is how long to wait: less than a batch of their own would keep the
// others waiting.
func (c *commitDelay) timeout() time.Duration { return min(c.lastDuration/2, maxCommitDelay) }

// observe notes a batch, and how many jobs waited when it ended.
func (c *commitDelay) observe(jobs, waiting int, began, ended time.Time) {
	c.expected, c.lastEnd, c.lastDuration = jobs+waiting, ended, ended.Sub(began)
}

func (c *commitDelay) hit() { c.misses /= 2 }

func (c *commitDelay) miss() {
	c.misses = min(2*c.misses+1, maxSkippedDelays)
	c.skip = c.misses
}
