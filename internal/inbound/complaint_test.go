// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/queue"
)

func (h *fixture) states(message db.ID) (all []queue.State) {
	h.t.Helper()
	rows, err := h.Queue.Deliveries(h.t.Context(), message)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, d := range rows {
		all = append(all, d.State)
	}
	return all
}

// arf returns a feedback report with the given fields about a message with the given header.
func arf(fields, header string) string {
	return "From: loop@isp.example\r\nContent-Type: multipart/report; report-type=feedback-report; boundary=b\r\n\r\n" +
		"--b\r\n\r\na report\r\n--b\r\nContent-Type: message/feedback-report\r\n\r\nVersion: 1\r\n" + fields +
		"\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n" + header + "\r\nHello.\r\n--b--\r\n"
}

// A complaint at a feedback address counts if it contains the delivery's signed return path.
// Nothing else there has an effect.
func TestComplaints(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		bob := h.box("bob", 100)
		own := func(id db.ID, n int) string { return h.Key.ReturnPath(int64(id), n) + "@demo.test" }
		forged := func(id db.ID) string {
			local := []byte(h.Key.ReturnPath(int64(id), 0))
			local[len(local)-1] ^= 'a' ^ 'b'
			return string(local) + "@demo.test"
		}
		for _, c := range []struct {
			name, to string
			body     func(id db.ID) string
			want     queue.State
		}{
			{"Original-Mail-From", "FBL@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: abuse\r\nOriginal-Mail-From: <"+strings.ToUpper(own(id, 0))+">\r\n", "Subject: x\r\n")
			}, queue.Complained},
			{"Return-Path", "fbl@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: fraud\r\n", "Return-Path: <"+own(id, 0)+">\r\n")
			}, queue.Complained},
			{"Received", "fbl@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: abuse\r\n", "Received: from a (envelope-from <"+own(id, 0)+">) by b\r\n")
			}, queue.Complained},
			{"Outlook's form", "fbl@mail.host.test", func(id db.ID) string {
				return "From: staff@isp.example\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n" +
					"X-HmXmrOriginalRecipient: x@remote.example\r\nReturn-Path: " + own(id, 0) + "\r\n\r\nHello.\r\n--b--\r\n"
			}, queue.Complained},
			{"to abuse", "abuse@demo.test", func(id db.ID) string {
				return arf("Feedback-Type: abuse\r\n", "Return-Path: <"+own(id, 0)+">\r\n")
			}, queue.Complained},
			{"to the return path", "", func(id db.ID) string { return arf("Feedback-Type: abuse\r\n", "Subject: x\r\n") }, queue.Complained},
			{"forged", "fbl@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: abuse\r\nOriginal-Mail-From: <"+forged(id)+">\r\n", "Message-ID: <"+id.String()+"@demo.test>\r\n")
			}, queue.Delivered},
			{"not spam", "fbl@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: not-spam\r\n", "Return-Path: <"+own(id, 0)+">\r\n")
			}, queue.Delivered},
			{"a failed signature", "fbl@mail.host.test", func(id db.ID) string {
				return arf("Feedback-Type: auth-failure\r\n", "Return-Path: <"+own(id, 0)+">\r\n")
			}, queue.Delivered},
			{"no report", "fbl@mail.host.test", func(id db.ID) string { return "Subject: hello\r\n\r\n" + own(id, 0) + "\r\n" }, queue.Delivered},
			{"to a mailbox", "bob@demo.test", func(id db.ID) string {
				return arf("Feedback-Type: abuse\r\n", "Return-Path: <"+own(id, 0)+">\r\n")
			}, queue.Delivered},
			{"a DSN to a mailbox", "bob@demo.test", func(id db.ID) string {
				return bounceReport("failed") + "Return-Path: <" + own(id, 0) + ">\r\n"
			}, queue.Delivered},
		} {
			id := h.db.NewID()
			dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account), insertDelivery.With(id, 1, h.account))
			to := c.to
			if to == "" {
				to = own(id, 0)
			}
			if _, err := h.send(c.body(id), to); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if got := h.states(id); !slices.Equal(got, []queue.State{c.want, queue.Delivered}) {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		if n := len(h.filed(bob)); n != 3 { // abuse reaches the first mailbox
			t.Errorf("%d messages were filed", n)
		}
		if all := h.events(event.Complaint); len(all) != 6 || !strings.Contains(all[0], `"feedback_type":"abuse"`) || !strings.Contains(all[0], "isp.example") {
			t.Errorf("complaints %s", all)
		}
	})
}

// In a report on several recipients, only the entry for the delivery's own recipient counts. A
// problem with the mailbox doesn't suppress the address.
func TestReportOfMany(t *testing.T) {
	each(t, func(h *fixture) {
		id := h.db.NewID()
		dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account))
		text := strings.Replace(bounceReport("failed"), "\r\n--b--",
			"\r\n\r\nFinal-Recipient: rfc822; X@remote.example\r\nAction: failed\r\nStatus: 5.2.2\r\nDiagnostic-Code: smtp; 552 5.2.2 quota exceeded\r\n--b--", 1)
		text = strings.Replace(text, "x@remote.example", "other@remote.example", 1)
		if _, err := h.send(text, h.Key.ReturnPath(int64(id), 0)+"@demo.test"); err != nil {
			h.t.Fatal(err)
		}
		bounces := h.events(event.Bounce)
		if len(bounces) != 1 || !strings.Contains(bounces[0], `"type":"Transient","subtype":"MailboxFull"`) {
			h.t.Errorf("bounces %s", bounces)
		}
	})
}

// If a list accepted or deferred the message, a failure of one of its members doesn't count against
// the list.
func TestReportOfMember(t *testing.T) {
	each(t, func(h *fixture) {
		for _, action := range []string{"expanded", "delayed"} {
			for _, member := range []string{"", "Original-Recipient: rfc822; x@remote.example\r\n"} {
				id := h.db.NewID()
				dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account))
				text := strings.Replace(bounceReport("failed"), "Final-Recipient: rfc822; x@remote.example", member+"Final-Recipient: rfc822; gone@remote.example", 1)
				text = strings.Replace(text, "\r\n--b--", "\r\n\r\nFinal-Recipient: rfc822; X@remote.example\r\nAction: "+action+"\r\nStatus: 2.0.0\r\n--b--", 1)
				if _, err := h.send(text, h.Key.ReturnPath(int64(id), 0)+"@demo.test"); err != nil {
					h.t.Fatal(err)
				}
				if got := h.states(id); !slices.Equal(got, []queue.State{queue.Delivered}) {
					h.t.Errorf("%s, %q: %v", action, member, got)
				}
			}
		}
		if all := h.events(event.Bounce); len(all) > 0 {
			h.t.Errorf("bounces %s", all)
		}
	})
}

// A delay report or an automatic reply to a signed return path appears in the timeline once and has
// no other effect.
func TestRemarks(t *testing.T) {
	each(t, func(h *fixture) {
		t := h.t
		id := h.db.NewID()
		dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account), insertDelivery.With(id, 1, h.account))
		delay := "Message-ID: <first@remote.example>\r\n" + strings.ReplaceAll(strings.ReplaceAll(bounceReport("delayed"), "5.1.1", "4.4.1"), "550", "451")
		away := "Message-ID: <away@remote.example>\r\nAuto-Submitted: auto-replied\r\nSubject: I am away\r\n\r\nuntil Monday\r\n"
		for _, text := range []string{delay, away, delay, away, strings.Replace(delay, "first", "second", 1), "Subject: hello\r\n\r\nis it blue?\r\n"} {
			if _, err := h.send(text, h.Key.ReturnPath(int64(id), 1)+"@demo.test"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.send(delay, h.Key.ReturnPath(int64(h.db.NewID()), 0)+"@demo.test"); err != nil { // unknown message
			t.Fatal(err)
		}
		var got []string
		all, err := h.Queue.Attempts(t.Context(), id)
		for _, a := range all {
			got = append(got, fmt.Sprintf("%d %d %s %s %s %d %s %s", a.N, a.Number, a.Outcome, a.Stage, a.Host, a.Code, a.Enhanced, a.Reply))
		}
		delayed := "1 0 deferred delay in.remote.example 451 4.4.1 no such user"
		if want := []string{delayed, "1 0 delivered auto-reply  0  I am away", delayed}; err != nil || !slices.Equal(got, want) {
			t.Errorf("the timeline is %q, %v\nwant %q", got, err, want)
		}
		if got := h.states(id); !slices.Equal(got, []queue.State{queue.Delivered, queue.Delivered}) {
			t.Errorf("the states are %v", got)
		}
		for _, kind := range []string{event.Bounce, event.DeliveryStatus, event.Complaint} {
			if all := h.events(kind); len(all) > 0 {
				t.Errorf("%s was told: %s", kind, all)
			}
		}
	})
}

// Knowing a return path isn't enough to fill a timeline.
func TestRemarksAreFew(t *testing.T) {
	each(t, func(h *fixture) {
		id := h.db.NewID()
		dbtest.Exec(h.t, h.db, insertDelivery.With(id, 0, h.account))
		for n := range 25 {
			if _, err := h.send(fmt.Sprintf("Message-ID: <%d@remote.example>\r\n%s", n, bounceReport("delayed")), h.Key.ReturnPath(int64(id), 0)+"@demo.test"); err != nil {
				h.t.Fatal(err)
			}
		}
		if all, err := h.Queue.Attempts(h.t.Context(), id); err != nil || len(all) != 20 {
			h.t.Errorf("%d entries, %v", len(all), err)
		}
	})
}
