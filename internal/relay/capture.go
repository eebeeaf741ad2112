// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

// Capture is the courier of the local sandbox: it takes all mail as delivered
// and sends it nowhere. The messages are seen in the outbox.
type Capture struct{}

var _ queue.Courier = Capture{}

// Runs is always one.
func (Capture) Runs(int) int { return 1 }

// Carry takes all that waits.
func (Capture) Carry(_ context.Context, r *queue.Run) {
	for c := r.Next(); c != nil; c = r.Next() {
		r.Done(c, queue.Outcome{
			State: queue.Delivered, Code: 250, Enhanced: "2.0.0", Reply: "captured in the sandbox; nothing left this machine",
			Stage: "local", Remote: "sandbox",
		})
	}
}
