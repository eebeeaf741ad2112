// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
)

// moody is a delivery agent that takes no mail at times, or makes its sessions wait.
type moody struct {
	carry func(ctx context.Context, r *queue.Session)
}

func (m *moody) Concurrency(int) int                           { return 1 }
func (m *moody) Deliver(ctx context.Context, r *queue.Session) { m.carry(ctx, r) }

// A paused destination has no attempts, and continues by itself. Its leased deliveries, also those
// in transactions, return to their rows with the reason.
func TestPause(t *testing.T) {
	paused := 0
	var h *fixture
	m := &moody{}
	m.carry = func(_ context.Context, r *queue.Session) {
		c := r.Next()
		if c == nil {
			return
		}
		if r.Destination() == "slow.test" && paused < 2 {
			paused++
			r.PauseDestination(h.clock.Now().Add(time.Hour), queue.Outcome{Code: 451, Reply: "slowed: for a reason"})
			return
		}
		for ; c != nil; c = r.Next() {
			r.Finish(c, delivered)
		}
	}
	eachFixture(t, m, func(t *testing.T, now *fixture) {
		h, paused = now, 0
		id := h.send(strings.Fields(strings.Repeat("someone@slow.test ", 30))...)
		h.run()
		for n := 1; n <= 2; n++ {
			h.await(map[int]int{1: 30, 2: 5}[n]) // only a few are leased the second time
			all, err := h.queue.Deliveries(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range all {
				if d.State != queue.Queued || d.Attempts != 0 || d.Reply != "slowed: for a reason" || d.DueAt.Sub(h.clock.Now()) != time.Hour && n == 1 {
					t.Fatalf("%+v", d)
				}
			}
			other := h.send(fmt.Sprintf("ok@other%d.test", n))
			late := h.send("late@slow.test")
			h.await(1)
			h.wantStates(other, "delivered")
			h.wantStates(late, "queued")
			h.later(time.Hour)
		}
		h.await(32)
		h.wantStates(id, strings.TrimSpace(strings.Repeat("delivered ", 30)))
	})
}

// Waiting sessions give up their slots to others, up to a maximum.
func TestAside(t *testing.T) {
	release := make(chan struct{})
	waits, refused := make(chan bool, 1000), make(chan bool, 1000)
	m := &moody{carry: func(_ context.Context, r *queue.Session) {
		if strings.HasPrefix(r.Destination(), "slow") {
			back, ok := r.ReleaseSlot()
			if ok {
				waits <- true
				<-release
				back()
			} else {
				refused <- true
				<-release
			}
		}
		for c := r.Next(); c != nil; c = r.Next() {
			r.Finish(c, delivered)
		}
	}}
	eachFixture(t, m, func(t *testing.T, h *fixture) {
		release = make(chan struct{})
		h.run()
		for i := range 8 { // four for each session slot
			h.send(fmt.Sprintf("someone@slow%d.test", i))
			<-waits
		}
		if s := h.queue.Stats(); s.Sessions != 0 {
			t.Errorf("%+v", s)
		}
		h.send("someone@slow8.test")
		<-refused
		h.send("ok@live.test")
		h.await(1)
		close(release)
		h.await(9)
	}, func(o *queue.Options) { o.MaxSessions = 2 })
}
