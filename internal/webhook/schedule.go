// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// retryDelays are the waits before the first, second… attempt, each from the end of the previous
// one.
var retryDelays = [...]time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// maxRetryAfter is the longest delay that a receiver can request.
	maxRetryAfter = 24 * time.Hour
	// disableAfter is how long every attempt must have failed before a webhook is disabled.
	disableAfter = 5 * 24 * time.Hour
	// maxConcurrent is the maximum of concurrent attempts for one webhook.
	maxConcurrent = 10
	// failureThreshold is how many failures in a row open a webhook's circuit.
	failureThreshold = 5
)

// probeDelays are the pauses of a failing webhook, each followed by a single attempt. A receiver
// that is down then does not get all waiting deliveries, and its return is noticed soon.
var probeDelays = [...]time.Duration{
	time.Second, 5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
}

// jitter lengthens a wait by up to a tenth, so that deliveries that failed together are not retried
// together.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// nextAttempt returns the time of the next attempt after a number of tries; ok is false after the
// last. The receiver's Retry-After counts if it is later.
func nextAttempt(tries int, now time.Time, retryAfter time.Duration) (at time.Time, ok bool) {
	if tries >= len(retryDelays) {
		return time.Time{}, false
	}
	return now.Add(max(jitter(retryDelays[tries]), retryAfter)), true
}

// parseRetryAfter parses a Retry-After header (RFC 9110 §10.2.3): seconds or a date. It returns 0
// if the value is invalid.
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

// circuitBreaker limits a webhook's attempts by the results of the last ones.
type circuitBreaker struct {
	limit        int       // maximum of concurrent attempts
	failures     int       // failures in a row
	level        int       // 0 while closed, otherwise the number of pauses so far
	failingSince time.Time // the first failure since the last success; zero for none
	pausedUntil  time.Time // no attempt before this
	resumes      int64     // how often somebody has ended a pause
}

// recordSuccess records an attempt that the receiver accepted.
func (c *circuitBreaker) recordSuccess() {
	*c = circuitBreaker{limit: min(max(2*c.limit, 2), maxConcurrent), resumes: c.resumes}
}

// recordFailure records a failed attempt that began at a level and after a number of resumes. wish
// is the receiver's Retry-After; it applies to all deliveries of the webhook. An attempt that began
// before somebody ended the pause causes no other pause.
func (c *circuitBreaker) recordFailure(level int, resumes int64, now time.Time, wish time.Duration) {
	c.failures++
	if c.failingSince.IsZero() {
		c.failingSince = now
	}
	c.limit = max(c.limit/2, 1)
	if resumes != c.resumes {
		return
	}
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

// resume ends the pause. A failure of the next attempt begins another one, as long as it would have
// been without the resume.
func (c *circuitBreaker) resume(resumes int64) {
	c.resumes, c.pausedUntil = resumes, time.Time{}
}

func (c *circuitBreaker) pause(until time.Time) {
	if until.After(c.pausedUntil) {
		c.pausedUntil = until
	}
}
