// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/mailstead/mailstead/internal/queue/dispatch"
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
	return dispatch.Jitter(retryDelays[min(max(attempts, 1), len(retryDelays))-1])
}
