// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryDelays are the waits before the first, second… attempt, each counted from the
// end of the one before.
var retryDelays = [...]time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// maxRetryAfter bounds what a receiver can ask for.
	maxRetryAfter = 24 * time.Hour
	// disableAfter is how long every attempt must have failed for a webhook to be
	// disabled.
	disableAfter = 5 * 24 * time.Hour
	// maxConcurrent is how many attempts go to a webhook at the same time.
	maxConcurrent = 10
	// failureThreshold is how many failures in a row make a webhook one that fails.
	failureThreshold = 5
)

// probeDelays are the rests of a webhook that fails, after which one attempt is made:
// so that a receiver that is away is not sent all that waits for it, and is
// found soon when it comes back.
var probeDelays = [...]time.Duration{
	time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
}

// jitter lengthens a wait by up to a tenth, so that what failed together does
// not come back together.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// nextAttempt says when to try again after so many tries, ok is false after the last. A
// receiver's own wish counts where it is later.
func nextAttempt(tries int, now time.Time, retryAfter time.Duration) (at time.Time, ok bool) {
	if tries >= len(retryDelays) {
		return time.Time{}, false
	}
	return now.Add(max(jitter(retryDelays[tries]), retryAfter)), true
}

// parseRetryAfter reads a Retry-After header (RFC 9110 §10.2.3): seconds or a date.
// What can't be read is 0.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > 64 {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// circuit says how many attempts a webhook gets, by what became of the last ones.
type circuit struct {
	limit        int       // attempts at the same time
	failures     int       // in a row
	level        int       // 0, or how many rests it has had
	failingSince time.Time // the first failure since the last success; zero for none
	pausedUntil  time.Time // no attempt before this
}

// recordSuccess notes an attempt that the receiver took.
func (c *circuit) recordSuccess() {
	*c = circuit{limit: min(max(2*c.limit, 2), maxConcurrent)}
}

// recordFailure notes an attempt that began at a level. wish is what the receiver asks
// for: it means all that goes there.
func (c *circuit) recordFailure(level int, now time.Time, wish time.Duration) {
	c.failures++
	if c.failingSince.IsZero() {
		c.failingSince = now
	}
	c.limit = max(c.limit/2, 1)
	switch {
	case c.level == 0 && c.failures >= failureThreshold, c.level > 0 && level == c.level:
		c.level++
		c.limit = 1
		c.pause(now.Add(jitter(probeDelays[min(c.level, len(probeDelays))-1])))
	}
	if wish > 0 {
		c.limit = 1
		c.pause(now.Add(wish))
	}
}

func (c *circuit) pause(until time.Time) {
	if until.After(c.pausedUntil) {
		c.pausedUntil = until
	}
}
