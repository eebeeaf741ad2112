// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueRetry struct{ bulkFlags }

func (c *queueRetry) Run() error {
	return c.execute("due now", queue.Command{}, func(o *queue.Admin) func(context.Context, queue.Command) (queue.Result, error) { return o.Retry }, nil)
}
