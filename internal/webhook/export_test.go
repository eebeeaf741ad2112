// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// Told has f called with each outcome that is written, or given up with err.
// Set it before Run.
func (h *Hooks) Told(f func(hook, event db.ID, state string, err error)) {
	h.told = func(hook db.ID, o *outcome, err error) { f(hook, o.item.id, o.state, err) }
}

// The schedule's parts.
var (
	RetryAfter = retryAfter
	Delays     = delays[:]
	Clean      = clean
)

// TestsOfOne is how many tests an account makes at the same time.
const TestsOfOne = testsOfOne

// FailingFor is how long a webhook must fail to be disabled.
const FailingFor time.Duration = failingFor

// Purge removes what is left of deleted webhooks.
func (h *Hooks) Purge(ctx context.Context) error {
	for {
		if more, err := h.purge(ctx); !more || err != nil {
			return err
		}
	}
}
