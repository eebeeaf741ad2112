// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueHold struct {
	bulkFlags
	Reason string `help:"Why, for those who look at the queue." placeholder:"TEXT" env:"-"`
	Once   bool   `help:"Hold only what is there, not what is still to come." env:"-"`
}

func (c *queueHold) Run() error {
	return c.execute("held", queue.Command{Reason: c.Reason, ExistingOnly: c.Once},
		func(o *queue.Admin) func(context.Context, queue.Command) (queue.Result, error) { return o.Hold }, nil)
}
