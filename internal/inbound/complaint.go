// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/bounce"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
)

// complained hands a complaint about a delivery to the queue. One about a
// message of which nothing is left comes too late.
func (i *Inbound) complained(ctx context.Context, r report, told *bounce.Report) error {
	changed, err := i.Queue.Complained(ctx, r.message, r.n, queue.Report{Text: told.Feedback.Type, Remote: told.Feedback.Reporter})
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	if err == nil {
		i.Log.Info("a complaint", "message", r.message, "n", r.n, "feedback", told.Feedback.Type, "reporter", told.Feedback.Reporter, "changed", changed)
	}
	return err
}
