// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server"
)

// maxUnconfirmedDrops is the maximum number of deliveries dropped without confirmation.
const maxUnconfirmedDrops = 10

type queueDrop struct {
	bulkFlags
	Reason string        `help:"Why, for the accounts and senders." placeholder:"TEXT" env:"-"`
	Silent bool          `help:"Send the senders of submissions no report." env:"-"`
	Wait   time.Duration `help:"How long to wait for what nodes have in hand." default:"30s" placeholder:"TIME" env:"-"`
	Yes    bool          `help:"Drop more than 10 deliveries without a question." env:"-"`
}

func (c *queueDrop) Run() error {
	if c.Wait < 0 {
		return errors.New("--wait must be a time such as 30s")
	}
	return c.execute("dropped", queue.Command{Reason: c.Reason, Silent: c.Silent, Wait: c.Wait}, func(o *queue.Admin) func(context.Context, queue.Command) (queue.Result, error) {
		return func(ctx context.Context, or queue.Command) (queue.Result, error) {
			res, err := o.Drop(ctx, or)
			if err == nil && res.Leased > 0 {
				err = fmt.Errorf("%s still in the hand of a node, and held when it lets go: give the order again", formatDeliveries(res.Leased))
			}
			return res, err
		}
	}, c.confirm)
}

// confirm asks before many deliveries are dropped.
func (c *queueDrop) confirm(ctx context.Context, d *server.AdminTools, or queue.Command) error {
	if c.Yes {
		return nil
	}
	p := newQueueProgress("dropped")
	or.DryRun, or.Progress = true, p.print
	res, err := d.Queue.Drop(ctx, or)
	p.end()
	if err != nil || res.Matched <= maxUnconfirmedDrops {
		return err
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("this would drop %s: repeat it with --yes if that is meant", formatDeliveries(res.Matched))
	}
	_, _ = fmt.Fprintf(os.Stderr, "Drop %s? [y/N] ", formatDeliveries(res.Matched))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // EOF means no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was dropped: answer y, or repeat it with --yes")
}
