// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/dispatch"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/summary"
)

// outgoing creates a message for the queue.
func (h *fixture) outgoing(size int64) *queue.OutboundMessage {
	id := h.db.NewID()
	text := "From: ann@demo.test\r\nSubject: local\r\n\r\nhello\r\n"
	m := &queue.OutboundMessage{
		MessageInfo: h.about(id), ID: id, Domain: "demo.test", Sender: "ann@demo.test", Head: []byte("DKIM-Signature: v=1\r\n"), Size: size,
		Body: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
	}
	h.mail[id] = m
	return m
}

// Mail from local users to a return path is a report, too.
func TestAgentTakesReports(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		id := h.db.NewID()
		dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account))
		m := h.outgoing(100)
		m.Body = func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(bounceReport("failed"))), nil
		}
		c := &queue.Transaction{Mail: m, Deliveries: []*queue.Delivery{
			{Entry: dispatch.Entry{Message: m.ID, N: 0}, Recipient: h.Key.ReturnPath(int64(id), 0) + "@demo.test"},
			{Entry: dispatch.Entry{Message: m.ID, N: 1}, Recipient: h.Key.ReturnPath(int64(id), 0)[:8] + "@demo.test"},
		}}
		o := h.File(ctx, c)
		if o[0].State != queue.Delivered || o[1].State != queue.Bounced || o[1].Enhanced != "5.1.1" {
			t.Errorf("outcomes %+v", o)
		}
		if d, err := h.Queue.Deliveries(ctx, id); err != nil || d[0].State != queue.Bounced {
			t.Errorf("the delivery that was reported: %+v, %v", d, err)
		}
	})
}

// So is a complaint that a mailbox here forwards to the feedback address.
func TestAgentTakesComplaints(t *testing.T) {
	each(t, func(h *fixture) {
		bob := h.box("bob", 1)
		for _, to := range []string{"FBL@mail.host.test", "abuse@demo.test"} {
			id := h.db.NewID()
			dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account))
			m := h.outgoing(100)
			m.Body = func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(arf("Feedback-Type: abuse\r\n", "Return-Path: <"+h.Key.ReturnPath(int64(id), 0)+"@demo.test>\r\n"))), nil
			}
			o := h.File(h.t.Context(), &queue.Transaction{Mail: m, Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID, Destination: "mail.host.test"}, Recipient: to}}})
			if o[0].State != queue.Delivered {
				h.t.Errorf("to %s: %+v", to, o)
			}
			if got := h.states(id); got[0] != queue.Complained {
				h.t.Errorf("to %s: the delivery is %v", to, got)
			}
		}
		if n := len(h.filed(bob)); n != 1 { // abuse reaches the first mailbox
			h.t.Errorf("%d messages were filed", n)
		}
	})
}

// A filing row is kept as long as the delivery's outcome is open: an operator may hold the delivery
// for weeks.
func TestFiledIsRemembered(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob := h.box("bob", 1)
		file := func(m *queue.OutboundMessage) {
			t.Helper()
			c := &queue.Transaction{Mail: m, Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: "bob@demo.test"}}}
			if o := h.File(ctx, c); o[0].State != queue.Delivered {
				t.Errorf("outcome %+v", o)
			}
		}
		open, over, gone := h.outgoing(100), h.outgoing(100), h.outgoing(100)
		dbtest.Exec(t, h.db, insertDelivery.With(open.ID, 0, h.account), insertDelivery.With(over.ID, 0, h.account), holdDelivery.With(open.ID))
		for _, m := range []*queue.OutboundMessage{open, over, gone} {
			file(m)
		}
		for _, want := range []int{2, 0} {
			if n, err := h.PruneFilings(ctx, time.Now().Add(time.Hour), 10); n != want || err != nil {
				t.Errorf("forgot %d, %v; want %d", n, err, want)
			}
		}
		file(open)
		if n := len(h.filed(bob)); n != 3 {
			t.Errorf("filed %d", n)
		}
	})
}

var holdDelivery = db.SQL(`UPDATE delivery SET state = 'queued', lease = 0, hold = 1 WHERE message = $1`)

func TestAgent(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob, carol, full := h.box("bob", 1), h.box("carol", 10), h.box("full", 1)
		dbtest.Exec(h.t, h.db, mailbox.AddUsage(full.ID, mailbox.Usage{Bytes: 1 << 20, Messages: 1}))
		m := h.outgoing(100)
		c := &queue.Transaction{Mail: m, From: "ann@demo.test"}
		for n, to := range []string{"bob@demo.test", "carol+x@demo.test", "nobody@demo.test", "full@demo.test", "x@moved.test", "bob+2@demo.test"} {
			c.Deliveries = append(c.Deliveries, &queue.Delivery{Entry: dispatch.Entry{Message: m.ID, N: n}, Recipient: to})
		}
		check := func() {
			t.Helper()
			var got []string
			for _, o := range h.File(ctx, c) {
				got = append(got, string(o.State)+" "+o.Enhanced)
			}
			want := "delivered 2.0.0, delivered 2.0.0, bounced 5.1.1, deferred 4.2.2, deferred 4.3.0, delivered 2.0.0"
			if strings.Join(got, ", ") != want {
				t.Errorf("outcomes %s, want %s", strings.Join(got, ", "), want)
			}
		}
		check()
		got := h.filed(carol)
		if len(got) != 1 || got[0].outbound != m.ID || !strings.HasPrefix(got[0].text, "Return-Path: <ann@demo.test>\r\nDelivered-To: carol+x@demo.test\r\nReceived: by mail.host.test") ||
			!strings.HasSuffix(got[0].text, "DKIM-Signature: v=1\r\nFrom: ann@demo.test\r\nSubject: local\r\n\r\nhello\r\n") {
			t.Errorf("carol has %+v", got)
		}
		// The outcomes were lost: nothing is filed twice.
		check()
		if a, b := len(h.filed(bob)), len(h.filed(carol)); a != 2 || b != 1 {
			t.Errorf("filed %d and %d, want 2 and 1", a, b)
		}
		if n := len(h.events(event.InboundEmail)); n != 3 {
			t.Errorf("%d events", n)
		}
		// A filed message doesn't bounce, even if its mailbox is full or deleted by now.
		if err := h.boxes.Delete(ctx, h.account, carol.ID); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(h.t, h.db, mailbox.AddUsage(bob.ID, mailbox.Usage{Bytes: 1 << 20, Messages: 1}))
		check()
		dbtest.Exec(h.t, h.db, mailbox.AddUsage(bob.ID, mailbox.Usage{Bytes: -1 << 20, Messages: -1}))
		big := &queue.Transaction{Mail: h.outgoing(2 << 20)}
		big.Deliveries = []*queue.Delivery{{Entry: dispatch.Entry{Message: big.Mail.ID}, Recipient: "bob@demo.test"}}
		if o := h.File(ctx, big); o[0].State != queue.Bounced || o[0].Enhanced != "5.3.4" {
			t.Errorf("larger than the mailbox: %+v", o)
		}
	})
}

// Mail from another account is filtered for spam like mail from outside. Mail within an account and
// mail from the service itself is not.
func TestAgentVerifiesOtherAccounts(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		other := h.db.NewID()
		if _, err := h.boxes.CreateAlias(ctx, h.account, "out@demo.test", []string{"far@away.example"}); err != nil {
			t.Fatal(err)
		}
		first := h.box("first", 10) // gets postmaster's mail
		for n, tt := range []struct {
			name    string
			account db.ID
			private bool
			to      string
			action  summary.SpamAction
			want    string // outcome and folder
		}{
			{"within the account", h.account, false, "box", summary.ActionReject, "delivered 2.0.0 INBOX"},
			{"ham", other, false, "box", summary.ActionAccept, "delivered 2.0.0 INBOX"},
			{"spam", other, false, "box", summary.ActionJunk, "delivered 2.0.0 " + folder.Junk},
			{"refused", other, false, "box", summary.ActionReject, "bounced 5.7.1 "},
			{"put off", other, false, "box", summary.ActionDefer, "deferred 4.7.1 "},
			{"of the service", account.OperatorAccount, true, "box", summary.ActionReject, "delivered 2.0.0 INBOX"},
			{"of the service, forwarded", other, true, "box", summary.ActionReject, "bounced 5.7.1 "},
			{"to postmaster", other, false, "postmaster", summary.ActionReject, "delivered 2.0.0 " + folder.Junk},
			{"elsewhere", other, false, "out", summary.ActionJunk, "bounced 5.7.1 "},
			{"elsewhere, refused", other, false, "out", summary.ActionReject, "bounced 5.7.1 "},
		} {
			h.thinks(summary.SpamResult{Score: 20, Threshold: 6, Action: tt.action})
			box := h.box(fmt.Sprintf("box%d", n), 10)
			to := box.Address
			switch tt.to {
			case "postmaster":
				box, to = first, "postmaster@demo.test"
			case "out":
				to = "out@demo.test"
			}
			m := h.outgoing(100)
			m.Account, m.Private = tt.account, tt.private
			o := h.File(ctx, &queue.Transaction{Mail: m, From: "ann@demo.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: to}}})[0]
			got := string(o.State) + " " + o.Enhanced + " " + strings.Join(h.places(box.ID), ", ")
			if got != tt.want {
				t.Errorf("%s: %s (%s), want %s", tt.name, got, o.Reply, tt.want)
			}
		}
		// A recipient that turned the filter off is not protected, and an unavailable filter defers
		// the mail.
		box := h.box("soft", 10)
		h.softer(box, mailbox.SpamOff)
		h.thinks(summary.SpamResult{Score: 20, Threshold: 6, Action: summary.ActionReject})
		for want, away := range map[string]error{
			"delivered 2.0.0": nil, "deferred 4.7.1": fault.New(fault.Unavailable, spam.CodeUnavailable, "away"), "bounced 5.7.1": fault.New(fault.Denied, spam.CodeVirus, "a virus"),
		} {
			if away != nil {
				h.Service.SpamFilter = func(context.Context, *spam.Message) ([]summary.SpamResult, error) { return nil, away }
			}
			m := h.outgoing(100)
			m.Account = other
			c := &queue.Transaction{Mail: m, From: "ann@demo.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: box.Address}}}
			if away == nil {
				h.thinks(summary.SpamResult{Score: 20, Threshold: 6, Action: summary.ActionReject})
			}
			if o := h.File(ctx, c)[0]; string(o.State)+" "+o.Enhanced != want {
				t.Errorf("%s %s, want %s", o.State, o.Enhanced, want)
			}
		}
	})
}

// The built-in filter's opinion of mail between accounts is what the recipient's account taught it.
func TestAgentAsksOwnFilter(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		box := h.box("box", 10)
		own := &spam.Filter{Builtin: &spam.BuiltinFilter{Bayes: spam.NewBayes(spam.Bayes{DB: h.db, Folders: h.Folders, Now: time.Now, Log: h.Log}), Log: h.Log}, Log: h.Log}
		var asked []*spam.Message
		h.Service.SpamFilter = func(ctx context.Context, m *spam.Message) ([]summary.SpamResult, error) {
			asked = append(asked, m)
			return own.Check(ctx, m)
		}
		m := h.outgoing(100)
		m.Account = h.db.NewID()
		if o := h.File(ctx, &queue.Transaction{Mail: m, From: "ann@demo.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: box.Address}}})[0]; o.State != queue.Delivered {
			t.Errorf("outcome %+v", o)
		}
		if len(asked) != 1 || asked[0].Accounts[0] != h.account || asked[0].CheckResults.SPF != "pass" || asked[0].From != "ann@demo.test" {
			t.Errorf("asked %+v", asked)
		}
		m = h.outgoing(100)
		m.Account, m.Forwarded = h.db.NewID(), true
		if o := h.File(ctx, &queue.Transaction{Mail: m, From: "postmaster@away.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: box.Address}}})[0]; o.State != queue.Delivered {
			t.Errorf("outcome %+v", o)
		}
		if len(asked) != 2 || asked[1].CheckResults.SPF != "" {
			t.Errorf("of what is forwarded it is asked %+v", asked[len(asked)-1])
		}
		if text := h.filed(box)[0].text; !strings.Contains(text, "\r\nX-Spam-Status: No, score=0") {
			t.Errorf("it says\n%s", text)
		}
	})
}

var (
	hideFilings = db.SQL(`ALTER TABLE filed_delivery RENAME TO filing_hidden`)
	showFilings = db.SQL(`ALTER TABLE filing_hidden RENAME TO filed_delivery`)
)

// While it is unknown whether a message was filed, nothing bounces and no recipient is suppressed.
func TestAgentDoubts(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob, m := h.box("bob", 1), h.outgoing(100)
		c := &queue.Transaction{Mail: m, From: "ann@demo.test", Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: "bob@demo.test"}}}
		if o := h.File(ctx, c); o[0].State != queue.Delivered {
			t.Fatalf("outcome %+v", o)
		}
		if err := h.boxes.Delete(ctx, h.account, bob.ID); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, h.db, insertDelivery.With(m.ID, 0, h.account))
		back := &queue.Transaction{Mail: h.outgoing(100), Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: h.db.NewID()}, Recipient: h.Key.ReturnPath(int64(m.ID), 0) + "@demo.test"}}}
		back.Mail.Body = func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(bounceReport("failed"))), nil
		}
		dbtest.Exec(t, h.db, hideFilings.With())
		for _, c := range []*queue.Transaction{c, back} {
			if o := h.File(ctx, c); o[0].State != queue.Deferred || o[0].Enhanced != "4.3.0" {
				t.Errorf("outcome %+v", o)
			}
		}
		dbtest.Exec(t, h.db, showFilings.With())
		if d, err := h.Queue.Deliveries(ctx, m.ID); err != nil || d[0].State != queue.Delivered {
			t.Errorf("the delivery that was reported: %+v, %v", d, err)
		}
		if o := h.File(ctx, c); o[0].State != queue.Delivered {
			t.Errorf("outcome %+v", o)
		}
	})
}

// A mailbox that only forwards needs quota for mail that must not be forwarded, or the mail is
// deferred. A message that was filed once stays delivered.
func TestAgentForwardsWithoutQuota(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob, keep, to := h.box("bob", 1), false, []string{"far@away.example"}
		if _, err := h.boxes.Update(ctx, h.account, bob.ID, mailbox.Change{ForwardTo: &to, KeepCopy: &keep}); err != nil {
			t.Fatal(err)
		}
		send := func(m *queue.OutboundMessage) queue.Outcome {
			m.Head = []byte("Delivered-To: bob@demo.test\r\n")
			return h.File(ctx, &queue.Transaction{Mail: m, Deliveries: []*queue.Delivery{{Entry: dispatch.Entry{Message: m.ID}, Recipient: "bob@demo.test"}}})[0]
		}
		m := h.outgoing(100)
		for range 2 { // the second time, the outcome was lost and the mailbox is full
			if o := send(m); o.State != queue.Delivered {
				t.Errorf("outcome %+v", o)
			}
			dbtest.Exec(h.t, h.db, mailbox.AddUsage(bob.ID, mailbox.Usage{Bytes: 1 << 20, Messages: 1}))
			h.boxes.Invalidate(bob.ID)
		}
		if o := send(h.outgoing(100)); o.State != queue.Deferred || o.Enhanced != "4.2.2" {
			t.Errorf("without room: %+v", o)
		}
		if n := len(h.filed(bob)); n != 1 {
			t.Errorf("filed %d", n)
		}
	})
}

// The queue and the local delivery agent together.
func TestQueueToMailbox(t *testing.T) {
	each(t, func(h *fixture) {
		ctx, t := h.t.Context(), h.t
		bob := h.box("bob", 1)
		woken := h.hub.Subscribe(notify.Key{Kind: notify.Event})
		defer woken.Close()
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- h.Queue.Run(running) }()
		m := h.outgoing(100)
		plan := h.Queue.Reserve(queue.Message{MessageInfo: m.MessageInfo, ID: m.ID, ExpiresAt: time.Now().Add(time.Hour)},
			[]queue.Recipient{{Address: "bob@demo.test", Kind: "to", Destination: "demo.test"}, {Address: "eve@demo.test", Kind: "to", Destination: "demo.test"}})
		if err := h.db.Write(ctx, h.account, &db.Mutation{Apply: plan.AddStatements}); err != nil {
			t.Fatal(err)
		}
		plan.Dispatch()
		for {
			all, err := h.Queue.Deliveries(ctx, m.ID)
			if err != nil {
				t.Fatal(err)
			}
			if all[0].State.Final() && all[1].State.Final() {
				if all[0].State != queue.Delivered || all[1].State != queue.Bounced {
					t.Errorf("deliveries %+v", all)
				}
				break
			}
			<-woken.C
		}
		if n := len(h.filed(bob)); n != 1 {
			t.Errorf("filed %d", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
