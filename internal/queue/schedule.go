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

// retryDelay returns the wait after a number of attempts, plus or minus a tenth, so that deliveries
// that failed together are not retried together.
func retryDelay(attempts int) time.Duration {
	return jitter(retryDelays[min(max(attempts, 1), len(retryDelays))-1])
}

// backoffDelays are the waits before an unreachable destination is tried again. They end sooner
// than retryDelays, because new mail waits for them too.
var backoffDelays = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}

func backoffDelay(failures int) time.Duration {
	return jitter(backoffDelays[min(max(failures, 1), len(backoffDelays))-1])
}

func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
