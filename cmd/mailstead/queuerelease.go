// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueRelease struct {
	order
	Once bool `help:"Release what is there, and let the standing hold be." env:"-"`
}

func (c *queueRelease) Run() error {
	return c.give("released", queue.Order{Once: c.Once},
		func(o *queue.Operator) func(context.Context, queue.Order) (queue.Result, error) { return o.Release }, nil)
}
