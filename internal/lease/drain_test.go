// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// Drain releases the rows once the work has ended: by itself, or because its attempts were
// cancelled.
func TestDrain(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"by itself": time.Hour, "cancelled": time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			_, node := leasetest.Open(t, dbtest.SQLite(t))
			attempts, cancelAttempts := context.WithCancel(t.Context())
			writes, cancelWrites := context.WithCancel(t.Context())
			ended, waiting := make(chan struct{}), make(chan struct{})
			var released db.ID
			drained := make(chan error)
			go func() {
				drained <- node.Drain(lease.Drain{
					Work: "tests", Timeout: timeout, CancelAttempts: cancelAttempts, CancelWrites: cancelWrites,
					Wait: func() {
						close(waiting)
						<-ended
					},
					Release: func(_ context.Context, id db.ID) error {
						select {
						case <-ended:
						default:
							t.Error("rows were released while there was work")
						}
						if writes.Err() != nil {
							t.Error("the writes of outcomes were cancelled")
						}
						released = id
						return nil
					},
				})
			}()
			<-waiting
			if timeout < time.Second {
				<-attempts.Done()
			}
			close(ended)
			if err := <-drained; err != nil {
				t.Error(err)
			}
			if id, _ := node.Lease(); released != id {
				t.Errorf("lease %d was released, not %d", released, id)
			}
			if attempts.Err() == nil || writes.Err() == nil {
				t.Error("a context was left")
			}
		})
	}
}
