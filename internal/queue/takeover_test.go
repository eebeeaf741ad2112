// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"testing"
	"time"
)

// What ended nodes leave behind is forgotten, whichever node saw to it.
func TestEndedNodesAreForgotten(t *testing.T) {
	eachHouse(t, script(), func(t *testing.T, h *house) {
		ends := func(name string) (bury func()) {
			n, err := h.db.Join(t.Context(), name, name)
			if err != nil {
				t.Fatal(err)
			}
			id, _ := n.Lease()
			if n, err := h.db.Exec(t.Context(), endTenure.With(id)); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			return func() {
				if err := h.db.DeleteLease(t.Context(), id); err != nil {
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
		buried := ends("buried by another node")
		look(1)
		ends("buried by this one")
		look(2)
		buried()
		look(1)
		h.clock.add(11 * time.Minute)
		look(0)
	})
}
