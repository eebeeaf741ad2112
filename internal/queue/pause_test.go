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

// moody is a courier that takes no mail at a time, or lets its runs wait.
type moody struct {
	carry func(ctx context.Context, r *queue.Session)
}

func (m *moody) Concurrency(int) int                           { return 1 }
func (m *moody) Deliver(ctx context.Context, r *queue.Session) { m.carry(ctx, r) }

// A destination that is paused has no attempts, and goes on by itself; what was
// in hand goes back to its rows with the reason, also what was taken.
func TestPause(t *testing.T) {
	paused := 0
	var h *house
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
	eachHouse(t, m, func(t *testing.T, now *house) {
		h, paused = now, 0
		id := h.send(strings.Fields(strings.Repeat("someone@slow.test ", 30))...)
		h.run()
		for n := 1; n <= 2; n++ {
			h.await(map[int]int{1: 30, 2: 5}[n]) // the second time a few are taken in hand
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

// Runs that wait aside leave their places to others, so many and no more.
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
	eachHouse(t, m, func(t *testing.T, h *house) {
		release = make(chan struct{})
		h.run()
		for i := range 8 { // four for each run
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
