// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueRetry struct{ order }

func (c *queueRetry) Run() error {
	return c.give("due now", queue.Order{}, func(o *queue.Operator) func(context.Context, queue.Order) (queue.Result, error) { return o.Retry }, nil)
}
