// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/queue"
)

type queueRelease struct {
	bulkFlags
	Once bool `help:"Release what is there, and let the standing hold be." env:"-"`
}

func (c *queueRelease) Run() error {
	return c.execute("released", queue.Command{ExistingOnly: c.Once},
		func(o *queue.Admin) func(context.Context, queue.Command) (queue.Result, error) { return o.Release }, nil)
}
