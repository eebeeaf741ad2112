// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/lease"
)

// Expired leases are forgotten, whichever node took them over.
func TestEndedNodesAreForgotten(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		ends := func(name string) (expire func()) {
			n, err := lease.Join(t.Context(), h.db, lease.Options{Name: name, Holder: name})
			if err != nil {
				t.Fatal(err)
			}
			id, _ := n.Lease()
			if n, err := h.db.Exec(t.Context(), endLease.With(id)); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			return func() {
				if err := lease.Delete(t.Context(), h.db, id); err != nil {
					t.Fatal(err)
				}
			}
		}
		look := func(want int) {
			t.Helper()
			if err := h.queue.Look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := h.queue.Ended(); got != want {
				t.Errorf("%d ended nodes are known, not %d", got, want)
			}
		}
		h.queue.Begin()
		expired := ends("buried by another node")
		look(1)
		ends("buried by this one")
		look(2)
		expired()
		look(1)
		h.clock.add(11 * time.Minute)
		look(0)
	})
}
