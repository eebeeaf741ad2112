// SPDX-License-Identifier: Apache-2.0

package db

import "time"

// commitDelay decides whether a batcher waits for more writers before it commits. Callers
// whose mutations were committed together write again together, but one of them is first. Its
// mutation alone would form the next batch, and all others would wait for the end of that. From
// then on they would alternate in two groups, each with its own flush and round trips. These
// are most of a batch's cost when callers are few. So the batcher waits a moment for the
// expected callers. If they don't come, it soon stops waiting.
type commitDelay struct {
	expected     int           // callers in the last batch, and those waiting when it ended
	lastEnd      time.Time     // end of the last batch
	lastDuration time.Duration // duration of the last batch
	misses       int           // consecutive misses, as a power of two minus one
	skip         int           // number of batches that begin without waiting
}

const (
	// maxDelayWriters is the maximum number of callers to wait for. With more, some prepare their
	// next write while the batch of the others is being flushed.
	maxDelayWriters = 6
	// maxCommitDelay is the longest wait, for disks with slow flushes.
	maxCommitDelay = 5 * time.Millisecond
	// maxSkippedDelays is the maximum number of consecutive batches without a wait.
	maxSkippedDelays = 255
)

// shouldWait reports whether to wait for more callers when some have come. A caller that does
// not write again right after its answer is doing something else.
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

// timeout is how long to wait: less than the time that a separate batch would delay the others.
func (c *commitDelay) timeout() time.Duration { return min(c.lastDuration/2, maxCommitDelay) }

// observe records a batch, and how many mutations were waiting when it ended.
func (c *commitDelay) observe(jobs, waiting int, began, ended time.Time) {
	c.expected, c.lastEnd, c.lastDuration = jobs+waiting, ended, ended.Sub(began)
}

func (c *commitDelay) hit() { c.misses /= 2 }

func (c *commitDelay) miss() {
	c.misses = min(2*c.misses+1, maxSkippedDelays)
	c.skip = c.misses
}
