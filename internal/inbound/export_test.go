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

// SetMaxCopies sets how many copies of a message are filed in one commit.
func (i *Inbound) SetMaxCopies(n int) { i.copies = n }
