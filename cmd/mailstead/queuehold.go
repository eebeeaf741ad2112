// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueHold struct {
	order
	Reason string `help:"Why, for those who look at the queue." placeholder:"TEXT" env:"-"`
	Once   bool   `help:"Hold only what is there, not what is still to come." env:"-"`
}

func (c *queueHold) Run() error {
	return c.give("held", queue.Order{Reason: c.Reason, Once: c.Once},
		func(o *queue.Operator) func(context.Context, queue.Order) (queue.Result, error) { return o.Hold }, nil)
}
