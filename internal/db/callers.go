// SPDX-License-Identifier: Apache-2.0

package db

import "time"

// callers is what a lane knows of who writes through it. Those whose jobs were
// committed together come back together, but one of them first: its job alone would
// get the next batch, and all others wait for the end of that. From then on they go
// in two groups, each with a flush and round trips of its own, which for few callers
// are most of what a batch costs. So the lane waits a moment for those who should
// come; if they don't it soon gives up waiting.
type callers struct {
	known int           // whose jobs were in the last batch, or waited when it ended
	ended time.Time     // the last batch
	took  time.Duration // the last batch
	away  int           // how often in a row they did not come, as a power of two less one
	rest  int           // how many batches begin without waiting
}

const (
	// fewCallers is for how many it is worth while: of more, a part can make ready
	// what comes next while the others' batch is being flushed.
	fewCallers = 6
	// maxPatience bounds the wait where flushes take long.
	maxPatience = 5 * time.Millisecond
	// maxRest is for how many batches at most nobody is waited for.
	maxRest = 255
)

// more reports whether to wait for others when jobs of some have come. Who has not
// come at once after his answer does something else.
func (c *callers) more(come int, now time.Time) bool {
	if come >= c.known || c.known > fewCallers || now.Sub(c.ended) > c.patience() {
		return false
	}
	if c.rest > 0 {
		c.rest--
		return false
	}
	return true
}

// patience is how long to wait: less than a batch of their own would keep the
// others waiting.
func (c *callers) patience() time.Duration { return min(c.took/2, maxPatience) }

// served notes a batch, and how many jobs waited when it ended.
func (c *callers) served(jobs, waiting int, began, ended time.Time) {
	c.known, c.ended, c.took = jobs+waiting, ended, ended.Sub(began)
}

func (c *callers) came() { c.away /= 2 }

func (c *callers) stayedAway() {
	c.away = min(2*c.away+1, maxRest)
	c.rest = c.away
}
