// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"testing"
	"time"
)

// All processors may sign while no mail is accepted, and only some while mail is accepted.
func TestTurns(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	o := &Messages{SignSlots: make(chan struct{}, 1), ExtraSignSlots: make(chan struct{}, 1), Now: func() time.Time { return at }}
	over, end := context.WithCancel(t.Context())
	end()
	for i := range 2 {
		if _, err := o.acquireSignSlot(t.Context()); err != nil {
			t.Fatalf("turn %d of two: %v", i+1, err)
		}
	}
	if _, err := o.acquireSignSlot(over); err == nil {
		t.Error("three sign where two may")
	}
	<-o.ExtraSignSlots
	defer o.Accepting.Begin(o.Now)()
	at = at.Add(time.Second)
	if _, err := o.acquireSignSlot(over); err == nil {
		t.Error("two sign while accepting is busy")
	}
	<-o.SignSlots
	done, err := o.acquireSignSlot(t.Context())
	if err != nil {
		t.Fatal("none signs while accepting is busy:", err)
	}
	done()
}
