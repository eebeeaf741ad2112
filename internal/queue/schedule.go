// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/rand/v2"
	"time"
)

// retries are the waits after the first, second… attempt; the last one is
// repeated until the message expires.
var retries = [...]time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour,
}

// retryAfter is the wait after so many attempts, give or take a tenth, so that
// what failed together does not come back together.
func retryAfter(attempts int) time.Duration {
	return jitter(retries[min(max(attempts, 1), len(retries))-1])
}

// backoffs are the waits before a destination that could not be reached is
// tried again. They end sooner than retries do: new mail waits for them too.
var backoffs = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}

func backoff(failures int) time.Duration {
	return jitter(backoffs[min(max(failures, 1), len(backoffs))-1])
}

func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
