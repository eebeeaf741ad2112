// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Told calls f with each outcome that is written, or given up with err. Set it before Run.
func (h *Service) Told(f func(hook, event db.ID, state string, err error)) {
	h.onSettled = func(hook db.ID, o *outcome, err error) { f(hook, o.item.id, o.state, err) }
}

// The schedule's parts.
var (
	RetryAfter = parseRetryAfter
	Delays     = retryDelays[:]
	Clean      = sanitize
)

// TestsOfOne is the maximum of concurrent tests of an account.
const TestsOfOne = maxTestsPerAccount

// FailingFor is how long a webhook must fail to be disabled.
const FailingFor time.Duration = disableAfter

// Purge removes the rows of deleted webhooks.
func (h *Service) Purge(ctx context.Context) error {
	for {
		if more, err := h.purge(ctx); !more || err != nil {
			return err
		}
	}
}
