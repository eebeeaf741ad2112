// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math/rand/v2"
	"time"
)

// backoffDelays are the waits before an unreachable destination is tried again. They end sooner
// than the waits between the attempts of a delivery, because new mail waits for them too.
var backoffDelays = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}

func backoffDelay(failures int) time.Duration {
	return Jitter(backoffDelays[min(max(failures, 1), len(backoffDelays))-1])
}

// Jitter returns d plus or minus a tenth, so that what began together is not repeated together.
func Jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5) }
