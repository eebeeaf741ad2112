// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// drainGrace is how long the last outcomes may take after the attempts were cancelled, and how long
// to wait after their writes were cancelled.
const drainGrace = 5 * time.Second

// Drain is the end of a node's work on one kind of rows.
type Drain struct {
	Work                         string        // what is worked on, for the log
	Wait                         func()        // returns once all work has ended
	Timeout                      time.Duration // how long running attempts may finish
	CancelAttempts, CancelWrites context.CancelFunc
	// Release releases all rows of a lease.
	Release func(ctx context.Context, id db.ID) error
}

// Drain waits until the work has ended, and then releases the rows of the node's lease for other
// nodes. After the timeout it cancels the attempts, then the writes of their outcomes. If work
// still has not ended, other nodes take its rows over when the lease expires.
func (n *Node) Drain(d Drain) error {
	defer d.CancelWrites()
	defer d.CancelAttempts()
	done := make(chan struct{})
	go func() {
		d.Wait()
		close(done)
	}()
	for _, step := range []struct {
		wait time.Duration
		then func()
	}{{d.Timeout, d.CancelAttempts}, {drainGrace, d.CancelWrites}, {drainGrace, func() {}}} {
		timer := time.NewTimer(step.wait)
		select {
		case <-done:
			timer.Stop()
			ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
			defer cancel()
			id, _ := n.Lease()
			return d.Release(ctx, id)
		case <-timer.C:
			step.then()
		}
	}
	n.options.Log.Error("work did not end in time; it will be tried again", "work", d.Work)
	return nil
}
