// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// submitted accepts a message whose sender gets notices. Each recipient is given as address or
// address=NOTIFY.
func (h *fixture) submitted(due time.Duration, rcpts ...string) db.ID {
	h.t.Helper()
	m := h.message()
	m.NotifySender = true
	if due > 0 {
		m.DueAt = h.clock.Now().Add(due)
		m.ExpiresAt = m.ExpiresAt.Add(due)
	}
	var list []queue.Recipient
	for _, text := range rcpts {
		a, words, _ := strings.Cut(text, "=")
		r := to(a)[0]
		for word := range strings.SplitSeq(words, ",") {
			r.Notify |= map[string]smtpclient.Notify{"NEVER": smtpclient.NotifyNever, "SUCCESS": smtpclient.NotifySuccess,
				"FAILURE": smtpclient.NotifyFailure, "DELAY": smtpclient.NotifyDelay}[word]
		}
		list = append(list, r)
	}
	return h.accept(m, list)
}

// notices lists the notices of a message.
func (h *fixture) notices(message db.ID) []queue.Notice {
	h.t.Helper()
	all, _, _, err := h.queue.Notices(context.Background(), message)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *fixture) wantNotices(message db.ID, want string) {
	h.t.Helper()
	var got []string
	for _, n := range h.notices(message) {
		got = append(got, fmt.Sprintf("%d %s", n.N, n.Action))
	}
	if text := strings.Join(got, ", "); text != want {
		h.t.Errorf("notices %q, want %q", text, want)
	}
}

func (h *fixture) noteLate() bool {
	h.t.Helper()
	any, err := h.queue.HasDelayed(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.queue.AddDelayNotices(context.Background()); err != nil {
		h.t.Fatal(err)
	}
	return any
}

// Notices follow NOTIFY, and are committed with the outcome.
func TestNotices(t *testing.T) {
	script := script()
	known := script.answer
	script.answer = func(ctx context.Context, c *queue.Transaction) []queue.Outcome {
		all := known(ctx, c)
		for i := range all {
			all[i].RemoteDSN = strings.HasPrefix(c.Deliveries[i].Destination, "dsn.")
			if c.Deliveries[i].Destination == "here.test" {
				all[i].Host, all[i].Remote = "", "local"
			}
		}
		return all
	}
	eachFixture(t, script, func(t *testing.T, h *fixture) {
		h.run()
		m := h.submitted(0, "ok@a.test", "ok@a.test=SUCCESS", "ok@here.test=SUCCESS,FAILURE", "ok@dsn.test=SUCCESS",
			"no@a.test", "no@a.test=NEVER", "no@a.test=SUCCESS,DELAY", "no@dsn.test=FAILURE", "ours@a.test", "ours@b.test=DELAY")
		h.await(10)
		h.wantNotices(m, "1 relayed, 2 delivered, 4 failed, 7 failed, 8 failed")
		n := h.notices(m)[2]
		if n.Code != 550 || n.Enhanced != "5.1.1" || n.Reply != "no such user" || n.Remote != "mx.test" || n.Recipient != "no@a.test" || !n.At.Equal(h.clock.Now()) {
			t.Errorf("notice %+v", n)
		}
		// API mail has events instead, also for later reports about it.
		api := h.send("no@a.test", "ok@a.test")
		h.await(2)
		if _, err := h.queue.RecordBounce(t.Context(), api, 1, queue.Report{Enhanced: "5.1.1"}); err != nil {
			t.Fatal(err)
		}
		h.wantNotices(api, "")
		if ids, _, err := h.queue.MessagesToNotify(t.Context(), 100); err != nil || len(ids) != 1 || ids[0] != m {
			t.Errorf("to tell %v, %v", ids, err)
		}
		if err := h.queue.PostponeNotices(t.Context(), h.notices(m), h.clock.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if ids, _, err := h.queue.MessagesToNotify(t.Context(), 100); err != nil || len(ids) != 0 {
			t.Errorf("put off, and to tell %v, %v", ids, err)
		}
		if err := h.queue.DropNotices(t.Context(), h.notices(m)); err != nil {
			t.Fatal(err)
		}
		h.wantNotices(m, "")
	})
}

// A sender gets one delay notice, four hours after the mail was due, whether it was tried or not.
func TestLateNotices(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		h := newFixture(t, d, n, script()).run()
		m := h.submitted(0, "later@a.test", "later@a.test=FAILURE", "later-ok@b.test", "dead@c.test=DELAY")
		unborn := h.submitted(time.Hour, "later@s.test")
		h.await(4)
		h.end() // so that it does not add the notice by itself
		h.clock.Add(3*time.Hour + 59*time.Minute)
		if h.noteLate() {
			t.Error("late after less than four hours")
		}
		h.wantNotices(m, "")
		h.clock.Add(time.Minute)
		if !h.noteLate() {
			t.Error("nothing is late after four hours")
		}
		h.wantNotices(m, "0 delayed, 2 delayed, 3 delayed")
		first := h.notices(m)[0]
		if first.Code != 451 || first.Reply != "greylisted" || first.NextAt.IsZero() || first.ExpiresAt.IsZero() {
			t.Errorf("notice %+v", first)
		}
		h.wantNotices(unborn, "")
		if h.noteLate() {
			t.Error("told twice")
		}
		before := h
		h = newFixture(t, d, h.next(), script(), func(o *queue.Options) { o.Now = before.clock.Now })
		h.account, h.clock = before.account, before.clock
		h.run()
		h.await(5) // the second attempts, and the first ones of scheduled deliveries
		h.wantNotices(m, "0 delayed, 2 delayed, 3 delayed")
		h.clock.Add(time.Hour)
		h.noteLate()
		h.wantNotices(unborn, "0 delayed")
		// The final result gets a notice as well.
		h.later(72 * time.Hour)
		h.await(4)
		h.wantNotices(m, "0 delayed, 0 failed, 1 failed, 2 delayed, 3 delayed")
	})
}

// Notices wait for those of recipients that are being tried, but not for ever.
func TestNoticesGather(t *testing.T) {
	gate := make(chan struct{})
	slow := script()
	known := slow.answer
	slow.answer = func(ctx context.Context, c *queue.Transaction) []queue.Outcome {
		if c.Deliveries[0].Destination == "slow.test" {
			<-gate
		}
		return known(ctx, c)
	}
	eachFixture(t, slow, func(t *testing.T, h *fixture) {
		h.run()
		m := h.submitted(0, "no@a.test", "no@slow.test")
		h.await(1)
		all, ready, again, err := h.queue.Notices(t.Context(), m)
		if err != nil || len(all) != 1 || ready || !again.After(h.clock.Now()) {
			t.Errorf("%v, ready %t, again %v, %v", all, ready, again, err)
		}
		h.clock.Add(again.Sub(h.clock.Now()))
		if all, ready, _, err := h.queue.Notices(t.Context(), m); err != nil || len(all) != 1 || !ready {
			t.Errorf("%v, ready %t, %v", all, ready, err)
		}
		gate <- struct{}{}
		h.await(1)
		if all, ready, _, err := h.queue.Notices(t.Context(), m); err != nil || len(all) != 2 || !ready {
			t.Errorf("%v, ready %t, %v", all, ready, err)
		}
	})
}

// The delay notice of a rescheduled message moves with it.
func TestLateMoves(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		m := h.submitted(time.Hour, "ok@a.test")
		due := h.clock.Now().Add(10 * time.Hour)
		if err := h.queue.Reschedule(t.Context(), m, due, due.Add(72*time.Hour), nil); err != nil {
			t.Fatal(err)
		}
		h.clock.Add(13*time.Hour + 59*time.Minute)
		if h.noteLate() {
			t.Error("late too early")
		}
		h.clock.Add(time.Minute)
		if !h.noteLate() {
			t.Error("not late in time")
		}
	})
}
