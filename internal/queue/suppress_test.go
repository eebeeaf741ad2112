// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

var listed = db.SQL(`SELECT address, reason, message, n, diagnostic FROM suppression WHERE account = $1 ORDER BY address, scope`)

// listed returns the account's suppression list, one entry per line.
func (h *fixture) listed() string {
	h.t.Helper()
	var all []string
	err := h.db.Each(context.Background(), listed.With(h.account), func(r db.Row) error {
		var address, reason, diagnostic string
		var message db.ID
		var n int
		err := r.Scan(&address, &reason, &message, &n, &diagnostic)
		all = append(all, fmt.Sprintf("%s %s %d %s", address, reason, n, diagnostic))
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func (h *fixture) wantListed(want string) {
	h.t.Helper()
	if got := h.listed(); got != want {
		h.t.Errorf("listed:\n%s\nwant:\n%s", got, want)
	}
}

// timeline returns the timeline of a message's first delivery: attempts by number and outcome, and
// all remarks.
func (h *fixture) timeline(m db.ID) string {
	h.t.Helper()
	all, err := h.queue.Attempts(h.t.Context(), m)
	if err != nil {
		h.t.Fatal(err)
	}
	var told []string
	for _, a := range all {
		one := fmt.Sprint(a.Number, " ", a.Outcome)
		if a.Number == 0 {
			one = strings.Join(strings.Fields(fmt.Sprintf("%s %s %d %s %s %s", one, a.Stage, a.Code, a.Enhanced, a.Reply, a.Host)), " ")
		}
		told = append(told, one)
	}
	return strings.Join(told, ", ")
}

// Only errors of the recipient's address add it to the list.
func TestSuppressing(t *testing.T) {
	answers := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		local, _, _ := strings.Cut(c.Deliveries[0].Recipient, "@")
		f := strings.Split(local, "/")
		o := queue.Outcome{State: queue.Bounced, Code: 550, Enhanced: f[1], Stage: f[0], Reply: strings.ReplaceAll(f[2], "_", " "), Host: "mx.test"}
		return []queue.Outcome{o}
	}}
	cases := []struct {
		local    string
		suppress bool
	}{
		{"rcpt/5.1.1/no", true}, {"rcpt/5.1.2/no", true}, {"rcpt/5.1.3/no", true}, {"rcpt/5.1.6/no", true},
		{"dns/5.1.10/no", true}, {"rcpt/5.2.1/no", true}, {"rcpt//user_unknown", true}, {"rcpt/5.0.0/No_such_user_here", true},
		{"rcpt/5.1.0/Address_rejected_recipient_unknown", true},
		{"rcpt/5.2.2/mailbox_full", false}, {"rcpt/5.7.1/user_unknown", false}, {"final/5.6.0/no", false}, {"rcpt/5.3.4/no", false},
		{"final//user_unknown", false}, {"rcpt//no_thanks", false}, {"rcpt//mailbox_unavailable-_blocked_by_policy", false},
		{"rcpt//the_domain_of_the_sender_does_not_exist", false}, {"rcpt/4.1.1/odd", false}, {"rcpt/5.1.8/sender_does_not_exist", false},
		{"connect/5.4.4/no", false},
	}
	eachFixture(t, answers, func(t *testing.T, h *fixture) {
		h.run()
		var want []string
		for _, c := range cases {
			address := strings.ToLower(c.local + "@a.test")
			h.send(c.local + "@A.test")
			h.await(1)
			f := strings.Split(c.local, "/")
			line := fmt.Sprintf("%s bounce 0 %s", address, strings.Join(strings.Fields("550 "+f[1]+" "+strings.ReplaceAll(f[2], "_", " ")), " "))
			if c.suppress {
				want = append(want, line)
			}
			if got := strings.Contains(h.listed()+"\n", line+"\n"); got != c.suppress {
				t.Errorf("%s: on the list %v\n%s", c.local, got, h.listed())
			}
		}
		if got := strings.Count(h.listed(), "\n") + 1; got != len(want) {
			t.Errorf("%d entries, want %d", got, len(want))
		}
	})
}

// Submissions of a mailbox suppress nothing.
func TestSubmissionNeverSuppresses(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.submits = true
		h.run()
		h.send("no@a.test")
		m := h.send("ok@a.test")
		h.await(2)
		if ok, err := h.queue.RecordComplaint(t.Context(), m, 0, queue.Report{Text: "abuse"}); !ok || err != nil {
			t.Error(ok, err)
		}
		h.wantListed("")
	})
}

// A late bounce and a complaint add the recipient to the list, with the event. Expiry and a report
// of a temporary problem do not.
func TestLateSuppressing(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		ctx := t.Context()
		var m []db.ID
		for _, local := range []string{"ok", "ok-1", "ok-2", "ok-3", "ok-4"} {
			m = append(m, h.send(local+"@a.test"))
			h.await(1)
		}
		h.later(time.Minute)
		for i, r := range []queue.Report{
			{Code: 550, Enhanced: "5.1.1", Text: "550-5.1.1 no such user"}, {Code: 450, Enhanced: "4.1.1", Text: "greylisted"},
			{Code: 552, Enhanced: "5.2.2", Text: "full"}, {Code: 550, Enhanced: "5.0.0", Text: "550 user unknown"},
		} {
			if ok, err := h.queue.RecordBounce(ctx, m[i], 0, r); !ok || err != nil {
				t.Error(ok, err)
			}
		}
		for want := range 2 {
			if ok, err := h.queue.RecordComplaint(ctx, m[4], 0, queue.Report{Text: "abuse", Remote: "isp.test"}); ok != (want == 0) || err != nil {
				t.Error(ok, err)
			}
		}
		if ok, err := h.queue.RecordComplaint(ctx, m[0], 0, queue.Report{Text: "abuse"}); ok || err != nil {
			t.Error("bounced, and complained:", ok, err)
		}
		if got, want := h.timeline(m[0]), "1 delivered, 0 bounced report 550 5.1.1 no such user"; got != want {
			t.Errorf("the timeline is %q, want %q", got, want)
		}
		if got, want := h.timeline(m[4]), "1 delivered, 0 complained complaint 0 abuse isp.test"; got != want {
			t.Errorf("the timeline is %q, want %q", got, want)
		}
		h.wantListed("ok-3@a.test bounce 0 550 5.0.0 user unknown\nok-4@a.test complaint 0 abuse\nok@a.test bounce 0 550 5.1.1 no such user")
	})
}

// A report that changes the state is in the timeline, however many remarks it has.
func TestTurnOfAFullTimeline(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		m := h.send("ok@a.test")
		h.await(1)
		h.later(time.Minute)
		for i := range 25 {
			if _, err := h.queue.AddRemark(t.Context(), m, 0, queue.StageDelay, strconv.Itoa(i), queue.Report{Code: 450}); err != nil {
				t.Fatal(err)
			}
		}
		h.later(time.Minute)
		if ok, err := h.queue.RecordComplaint(t.Context(), m, 0, queue.Report{Text: "abuse"}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := h.timeline(m); strings.Count(got, "delay") != 20 || !strings.HasSuffix(got, ", 0 complained complaint 0 abuse") {
			t.Errorf("the timeline is %q", got)
		}
	})
}

// Concurrent unsubscribes: one event, one entry, and no repeated sequence, although an attempt is
// running.
func TestUnsubscribed(t *testing.T) {
	began, goOn := make(chan string), make(chan struct{})
	slow := &deliveryAgent{parallel: 1, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if strings.HasPrefix(c.Deliveries[0].Recipient, "slow") {
			began <- c.Deliveries[0].Recipient
			<-goOn
		}
		return []queue.Outcome{delivered}
	}}
	eachFixture(t, slow, func(t *testing.T, h *fixture) {
		h.run()
		ctx := t.Context()
		unsubscribe := func(k suppression.UnsubscribeLink) int {
			t.Helper()
			var changed atomic.Int64
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					ok, err := h.queue.RecordUnsubscribe(ctx, k, queue.UnsubscribeByLink)
					if err != nil {
						t.Error(err)
					}
					if ok {
						changed.Add(1)
					}
				})
			}
			group.Wait()
			return int(changed.Load())
		}
		m := h.send("ok@a.test")
		h.await(1)
		if n := unsubscribe(suppression.UnsubscribeLink{Account: h.account, Message: m, Address: "ok@a.test"}); n != 1 {
			t.Errorf("%d changed something", n)
		}
		h.wantEvents(m, "delivery_status 1 delivered, unsubscribe 2")

		m = h.send("slow@a.test")
		<-began
		if n := unsubscribe(suppression.UnsubscribeLink{Account: h.account, Message: m, Address: "slow@a.test"}); n != 1 {
			t.Errorf("%d changed something", n)
		}
		goOn <- struct{}{}
		h.await(1)
		h.wantStates(m, "delivered")
		h.wantEvents(m, "unsubscribe 1, delivery_status 2 delivered")

		// The message was deleted, and the address is already on the other list.
		gone := h.db.NewID()
		dbtest.Exec(h.t, h.db, blockGone.With())
		if n := unsubscribe(suppression.UnsubscribeLink{Account: h.account, Message: gone, Address: "Gone@a.test"}); n != 1 {
			t.Errorf("%d changed something", n)
		}
		h.wantEvents(gone, "unsubscribe 1")
		if n := unsubscribe(suppression.UnsubscribeLink{Account: h.account, Message: m, Address: "ok@a.test"}); n != 0 {
			t.Errorf("%d changed something", n)
		}
		h.wantListed("gone@a.test unsubscribe 0 \nok@a.test unsubscribe 0 \nslow@a.test unsubscribe 0 ")
	})
}

// Recipients that were added to the list between the send and its due time get nothing.
func TestScheduledMeetsTheList(t *testing.T) {
	eachFixture(t, script(), func(t *testing.T, h *fixture) {
		h.run()
		h.put("ok-left@a.test", suppression.ReasonUnsubscribe)
		schedule := func(offers bool, address string) db.ID {
			m := h.message()
			m.DueAt, m.OffersUnsubscribe = h.clock.Now().Add(time.Hour), offers
			return h.accept(m, to(address))
		}
		left, kept := schedule(true, "ok-left@a.test"), schedule(false, "ok-left@a.test")
		later, free := schedule(false, "Ok-Later@a.test"), schedule(true, "ok@a.test")
		h.put("ok-later@a.test", suppression.ReasonComplaint)
		h.later(2 * time.Hour)
		h.await(4)
		h.wantStates(left, "suppressed")
		h.wantEvents(left, "delivery_status 1 suppressed")
		h.wantReason(left, "unsubscribe")
		h.wantStates(later, "suppressed")
		h.wantReason(later, "complaint")
		for _, m := range []db.ID{kept, free} {
			h.wantStates(m, "delivered")
			h.wantEvents(m, "delivery_status 1 queued, delivery_status 2 delivered")
		}
		if n := h.owned(); n != 0 {
			t.Errorf("%d rows are still leased", n)
		}
	})
}

// put adds an address to the list.
func (h *fixture) put(address string, why suppression.Reason) {
	h.t.Helper()
	list := suppression.List{DB: h.db, Now: h.clock.Now}
	s, ok := list.AddStatement(suppression.Entry{Account: h.account, Address: address, Reason: why})
	if !ok {
		h.t.Fatalf("%s can't be on the list", address)
	}
	dbtest.Exec(h.t, h.db, s)
}

var blockGone = db.SQL(`DELETE FROM delivery WHERE recipient = 'ok@a.test'`)

// wantReason checks the reason of the last event.
func (h *fixture) wantReason(message db.ID, want string) {
	h.t.Helper()
	var reason string
	err := h.db.Each(context.Background(), eventsOf.With(message), func(r db.Row) error {
		var kind, data string
		if err := r.Scan(&kind, &data); err != nil {
			return err
		}
		var e struct{ Reason string }
		err := json.Unmarshal([]byte(data), &e)
		reason = e.Reason
		return err
	})
	if err != nil || reason != want {
		h.t.Errorf("reason %q, %v; want %q", reason, err, want)
	}
}
