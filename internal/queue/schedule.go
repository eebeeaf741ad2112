// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"math/rand/v2"
	"time"
)

// retryDelays are the waits after the first, second… attempt; the last one is
// repeated until the message expires.
var retryDelays = [...]time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour,
}

// retryDelay is the wait after so many attempts, give or take a tenth, so that
// what failed together does not come back together.
func retryDelay(attempts int) time.Duration {
	return jitter(retryDelays[min(max(attempts, 1), len(retryDelays))-1])
}

// backoffDelays are the waits before a destination that could not be reached is
// tried again. They end sooner than retries do: new mail waits for them too.
var backoffDelays = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}

func backoffDelay(failures int) time.Duration {
	return jitter(backoffDelays[min(max(failures, 1), len(backoffDelays))-1])
}

func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
