// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// delays are the waits before the first, second… attempt, each counted from the
// end of the one before.
var delays = [...]time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// maxRetryAfter bounds what a receiver can ask for.
	maxRetryAfter = 24 * time.Hour
	// failingFor is how long every attempt must have failed for a webhook to be
	// disabled.
	failingFor = 5 * 24 * time.Hour
	// maxFlying is how many attempts go to a webhook at the same time.
	maxFlying = 10
	// patience is how many failures in a row make a webhook one that fails.
	patience = 5
)

// pauses are the rests of a webhook that fails, after which one attempt is made:
// so that a receiver that is away is not sent all that waits for it, and is
// found soon when it comes back.
var pauses = [...]time.Duration{
	time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
}

// jitter lengthens a wait by up to a tenth, so that what failed together does
// not come back together.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// nextTry says when to try again after so many tries, ok is false after the last. A
// receiver's own wish counts where it is later.
func nextTry(tries int, now time.Time, retryAfter time.Duration) (at time.Time, ok bool) {
	if tries >= len(delays) {
		return time.Time{}, false
	}
	return now.Add(max(jitter(delays[tries]), retryAfter)), true
}

// retryAfter reads a Retry-After header (RFC 9110 §10.2.3): seconds or a date.
// What can't be read is 0.
func retryAfter(value string, now time.Time) time.Duration {
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
	limit    int       // attempts at the same time
	failures int       // in a row
	level    int       // 0, or how many rests it has had
	since    time.Time // the first failure since the last success; zero for none
	rest     time.Time // no attempt before this
}

// succeeded notes an attempt that the receiver took.
func (c *circuit) succeeded() {
	*c = circuit{limit: min(max(2*c.limit, 2), maxFlying)}
}

// failed notes an attempt that began at a level. wish is what the receiver asks
// for: it means all that goes there.
func (c *circuit) failed(level int, now time.Time, wish time.Duration) {
	c.failures++
	if c.since.IsZero() {
		c.since = now
	}
	c.limit = max(c.limit/2, 1)
	switch {
	case c.level == 0 && c.failures >= patience, c.level > 0 && level == c.level:
		c.level++
		c.limit = 1
		c.pause(now.Add(jitter(pauses[min(c.level, len(pauses))-1])))
	}
	if wish > 0 {
		c.limit = 1
		c.pause(now.Add(wish))
	}
}

func (c *circuit) pause(until time.Time) {
	if until.After(c.rest) {
		c.rest = until
	}
}
