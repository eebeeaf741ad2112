// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// script returns an agent whose outcomes come from the recipient's local part, which lists the
// outcome of each attempt: "later-ok@" is deferred once and then delivered.
func script() *deliveryAgent {
	return &deliveryAgent{parallel: 4, answer: func(_ context.Context, c *queue.Transaction) (all []queue.Outcome) {
		for _, d := range c.Deliveries {
			local, _, _ := strings.Cut(d.Recipient, "@")
			words := strings.Split(local, "-")
			switch words[min(d.Attempts, len(words)-1)] {
			case "ok":
				all = append(all, delivered)
			case "later":
				all = append(all, deferred)
			case "no":
				all = append(all, bounced)
			case "dead":
				return nil
			case "ours":
				all = append(all, queue.Outcome{State: queue.Failed, Stage: "local", Reply: "our own fault"})
			}
		}
		return all
	}}
}

func TestTransitions(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		ctx := t.Context()
		t.Run("delivered", func(t *testing.T) {
			m := h.send("ok@a.test")
			h.await(1)
			h.wantStates(m, "delivered")
			h.wantEvents(m, "delivery_status 1 delivered")
			all, err := h.queue.Attempts(ctx, m)
			if err != nil || len(all) != 1 || all[0].Number != 1 || all[0].Outcome != queue.Delivered || all[0].Code != 250 || all[0].Host != "mx.test" {
				t.Errorf("attempts %+v, %v", all, err)
			}
		})
		t.Run("bounced", func(t *testing.T) {
			m := h.send("no@a.test")
			h.await(1)
			h.wantStates(m, "bounced")
			h.wantEvents(m, "delivery_status 1 bounced, bounce 2 Permanent")
		})
		t.Run("deferred, then delivered", func(t *testing.T) {
			m := h.send("later-later-ok@a.test", "ok@a.test")
			h.await(2)
			h.wantStates(m, "deferred delivered")
			h.later(2 * time.Minute)
			h.await(1)
			h.wantStates(m, "deferred delivered")
			h.later(6 * time.Minute)
			h.await(1)
			h.wantStates(m, "delivered delivered")
			all, err := h.queue.Attempts(ctx, m)
			if err != nil || len(all) != 4 || all[2].N != 0 || all[2].Number != 3 {
				t.Errorf("attempts %+v, %v", all, err)
			}
			if got := h.events(m); strings.Count(got, "deferred") != 1 || strings.Count(got, " 2 delivered") != 1 {
				t.Errorf("a second deferral fires nothing: %s", got)
			}
		})
		t.Run("deferred, then bounced", func(t *testing.T) {
			m := h.send("later-no@a.test")
			h.await(1)
			h.later(2 * time.Minute)
			h.await(1)
			h.wantStates(m, "bounced")
			h.wantEvents(m, "delivery_status 1 deferred, delivery_status 2 bounced, bounce 3 Permanent")
		})
		t.Run("expired", func(t *testing.T) {
			m := h.message()
			m.ExpiresAt = h.clock.Now().Add(3 * time.Minute)
			h.accept(m, to("later@a.test"))
			h.await(1)
			h.later(2 * time.Minute)
			h.await(1)
			h.wantStates(m.ID, "deferred")
			h.later(10 * time.Minute)
			h.await(1)
			h.wantStates(m.ID, "bounced")
			h.wantEvents(m.ID, "delivery_status 1 deferred, delivery_status 2 bounced, bounce 3 Transient")
			all, err := h.queue.Deliveries(ctx, m.ID)
			if err != nil || all[0].Enhanced != "4.4.7" || !strings.Contains(all[0].Reply, "greylisted") || all[0].Attempts != 2 {
				t.Errorf("%+v, %v", all, err)
			}
		})
		t.Run("failed, retried", func(t *testing.T) {
			m := h.send("ours-ok@a.test")
			h.await(1)
			h.wantStates(m, "failed")
			if n, err := h.queue.Retry(ctx, m); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			h.await(1)
			h.wantStates(m, "delivered")
			h.wantEvents(m, "delivery_status 1 failed, delivery_status 2 queued, delivery_status 3 delivered")
			if _, err := h.queue.Retry(ctx, m); !fault.Is(err, fault.Conflict) {
				t.Errorf("retrying what is delivered: %v", err)
			}
		})
		t.Run("deferred, hastened", func(t *testing.T) {
			m := h.send("later-ok@a.test")
			h.await(1)
			if n, err := h.queue.Retry(ctx, m); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			h.await(1)
			h.wantStates(m, "delivered")
		})
		t.Run("deferred, hastened too often", func(t *testing.T) {
			m := h.send("later@a.test")
			h.await(1)
			for range 4 {
				if n, err := h.queue.Retry(ctx, m); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				h.await(1)
			}
			_, err := h.queue.Retry(ctx, m)
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.RateLimited || f.RetryAfter <= 0 || f.RetryAfter > 5*time.Minute {
				t.Errorf("%#v", err)
			}
			h.later(5 * time.Minute)
			if n, err := h.queue.Retry(ctx, m); n != 1 || err != nil {
				t.Errorf("five minutes later: %d, %v", n, err)
			}
			h.await(1)
		})
		t.Run("suppressed", func(t *testing.T) {
			rcpts := to("ok@a.test", "ok@b.test")
			rcpts[0].Suppressed = suppression.ReasonUnsubscribe
			m := h.accept(h.message(), rcpts)
			h.await(1)
			h.wantStates(m, "suppressed delivered")
			h.wantEvents(m, "delivery_status 1 suppressed, delivery_status 1 delivered")
			all, err := h.queue.Deliveries(ctx, m)
			if err != nil || !strings.Contains(all[0].Reply, "unsubscribe") || all[0].Attempts != 0 {
				t.Errorf("%+v, %v", all, err)
			}
		})
		t.Run("the message is gone", func(t *testing.T) {
			m := h.message()
			h.mu.Lock()
			h.denied[m.ID] = fault.New(fault.NotFound, "not_found", "The message is gone.")
			h.mu.Unlock()
			h.accept(m, to("ok@a.test"))
			h.await(1)
			h.wantStates(m.ID, "failed")
			h.wantEvents(m.ID, "delivery_status 1 failed")
		})
		t.Run("trouble with a message", func(t *testing.T) {
			m := h.message()
			h.mu.Lock()
			h.denied[m.ID] = errors.New("the blob store is away")
			h.mu.Unlock()
			h.accept(m, to("ok@a.test"))
			h.await(1)
			h.wantStates(m.ID, "queued")
			h.mu.Lock()
			delete(h.denied, m.ID)
			h.mu.Unlock()
			h.later(2 * time.Minute)
			h.await(1)
			h.wantStates(m.ID, "delivered")
		})
		t.Run("reported later", func(t *testing.T) { testLate(t, h) })
	})
}

func testLate(t *testing.T, h *fixture) {
	ctx := t.Context()
	m := h.send("ok@a.test", "ok@a.test", "later@b.test")
	h.await(3)
	dsn := queue.Report{Code: 552, Enhanced: "5.2.2", Text: "mailbox full", Remote: "mx2.test"}
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, message db.ID, n int, r queue.Report) (bool, error)
		n    int
		want bool
	}{
		{"bounce", h.queue.RecordBounce, 0, true}, {"bounce again", h.queue.RecordBounce, 0, false},
		{"complaint of a bounced one", h.queue.RecordComplaint, 0, false},
		{"complaint", h.queue.RecordComplaint, 1, true}, {"complaint again", h.queue.RecordComplaint, 1, false},
		{"complaint of a deferred one", h.queue.RecordComplaint, 2, false},
		{"bounce of a deferred one", h.queue.RecordBounce, 2, true},
		{"bounce of none", h.queue.RecordBounce, 3, false},
	} {
		if got, err := c.do(ctx, m, c.n, dsn); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	h.wantStates(m, "bounced complained bounced")
	all, err := h.queue.Deliveries(ctx, m)
	if err != nil || all[0].Enhanced != "5.2.2" || all[0].Remote != "mx2.test" {
		t.Errorf("%+v, %v", all, err)
	}
	got := h.events(m)
	for _, want := range []string{"bounce 3 Transient", "complaint 3", "delivery_status 2 complained"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
}

func TestScheduledAndCancelled(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		ctx := t.Context()
		schedule := func(in time.Duration) db.ID {
			m := h.message()
			m.DueAt = h.clock.Now().Add(in)
			return h.accept(m, to("ok@a.test"))
		}
		first, second, third := schedule(time.Hour), schedule(time.Hour), schedule(time.Hour)
		h.wantStates(first, "scheduled")
		if n, err := h.queue.Cancel(ctx, second); n != 1 || err != nil {
			t.Error(n, err)
		}
		if err := h.queue.Reschedule(ctx, third, h.clock.Now().Add(3*time.Hour), h.clock.Now().Add(80*time.Hour), nil); err != nil {
			t.Error(err)
		}
		h.later(2 * time.Hour)
		h.await(1)
		h.wantStates(first, "delivered")
		h.wantEvents(first, "delivery_status 1 queued, delivery_status 2 delivered")
		h.wantStates(second, "cancelled")
		h.wantEvents(second, "delivery_status 1 cancelled")
		h.wantStates(third, "scheduled")
		h.later(2 * time.Hour)
		h.await(1)
		h.wantStates(third, "delivered")
		for _, m := range []db.ID{first, second} {
			if n, err := h.queue.Cancel(ctx, m); m == first && !fault.Is(err, fault.Conflict) || m == second && (n != 0 || err != nil) {
				t.Errorf("cancelling what is over: %d, %v", n, err)
			}
			if err := h.queue.Reschedule(ctx, m, h.clock.Now(), h.clock.Now(), nil); !fault.Is(err, fault.Conflict) {
				t.Errorf("rescheduling what is over: %v", err)
			}
		}
		m := h.send("later@a.test")
		h.await(1)
		if n, err := h.queue.Fail(ctx, m, "dropped by the operator"); n != 1 || err != nil {
			t.Error(n, err)
		}
		h.wantStates(m, "failed")
		h.wantEvents(m, "delivery_status 1 deferred, delivery_status 2 failed")
	})
}

// During an attempt, cancelling the delivery is too late. A delivery that only waits in memory is
// cancelled and never attempted.
func TestCancelInHand(t *testing.T) {
	began, finish := make(chan string), make(chan bool)
	blocking := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		began <- c.Deliveries[0].Recipient
		<-finish
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, blocking, func(t *testing.T, h *fixture) {
		h.run()
		one := h.send("one@a.test")
		if got := <-began; got != "one@a.test" {
			t.Error(got)
		}
		two, three := h.send("two@a.test"), h.send("three@a.test")
		h.wantStates(one, "sending")
		h.wantStates(two, "queued")
		if _, err := h.queue.Cancel(t.Context(), one); !fault.Is(err, fault.Conflict) {
			t.Errorf("what is being sent was cancelled: %v", err)
		}
		if n, err := h.queue.Cancel(t.Context(), two); n != 1 || err != nil {
			t.Error(n, err)
		}
		finish <- true
		if got := <-began; got != "three@a.test" {
			t.Errorf("%s reached the delivery agent", got)
		}
		finish <- true
		h.await(3)
		h.wantStates(one, "delivered")
		h.wantStates(two, "cancelled")
		h.wantStates(three, "delivered")
	})
}

// Cancel and attempts race: no cancelled delivery was attempted, and no attempted one is cancelled.
func TestCancelRace(t *testing.T) {
	const messages = 200
	var carried [messages]atomic.Int32
	c := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		n, _ := strconv.Atoi(strings.TrimSuffix(c.Deliveries[0].Recipient, "@a.test"))
		carried[n].Add(1)
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, c, func(t *testing.T, h *fixture) {
		h.run()
		ids := make([]db.ID, messages)
		results := make(chan error)
		for i := range messages {
			carried[i].Store(0)
			m := h.message()
			ids[i] = m.ID
			go func() {
				err := h.try(m, to(strconv.Itoa(i)+"@a.test"))
				if err == nil {
					_, err = h.queue.Cancel(context.Background(), m.ID)
				}
				if fault.Is(err, fault.Conflict) {
					err = nil
				}
				results <- err
			}()
		}
		for range messages {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		h.await(messages)
		cancelled := 0
		for i, id := range ids {
			got, n := h.states(id), carried[i].Load()
			if got == "cancelled" {
				cancelled++
			}
			if !(got == "cancelled" && n == 0 || got == "delivered" && n == 1) {
				t.Errorf("message %d is %s and was carried %d times", i, got, n)
			}
		}
		t.Logf("%d of %d cancelled", cancelled, messages)
	})
}
