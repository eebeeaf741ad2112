// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

// File delivers one consignment.
func (i *Inbound) File(ctx context.Context, c *queue.Consignment) []queue.Outcome {
	return i.file(ctx, c)
}
