// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

// File delivers one transaction.
func (i *Service) File(ctx context.Context, c *queue.Transaction) []queue.Outcome {
	return i.deliverTransaction(ctx, c)
}

// SetMaxCopies sets how many copies of a message are filed in one commit.
func (i *Service) SetMaxCopies(n int) { i.maxCopies = n }
