// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/base64"
	"fmt"
	"io"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// post makes a valid send with the given changes, and returns its id.
func post(t *testing.T, s *servertest.Server, change object) string {
	t.Helper()
	a := s.API("POST", "/outbound/send", mail(change))
	status(t, "sending", a, 202)
	return into(t, a)["id"].(string)
}

func at(d time.Duration) string { return time.Now().UTC().Add(d).Format(time.RFC3339Nano) }

// becomes waits until the API shows a message with a status.
func becomes(t *testing.T, s *servertest.Server, id string, want ...string) object {
	t.Helper()
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})
	defer sub.Close()
	for {
		m := getMessage(t, s, id)
		for _, status := range want {
			if m["status"] == status {
				return m
			}
		}
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatalf("%v did not become %v", m, want)
		}
	}
}

func getMessage(t *testing.T, s *servertest.Server, id string) object {
	t.Helper()
	a := s.API("GET", "/outbound/messages/"+id, nil)
	status(t, "showing", a, 200)
	return into(t, a)
}

// A message can be scheduled, rescheduled, and cancelled while it is scheduled.
func TestSchedule(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		send := func(change object) servertest.Response { return s.API("POST", "/outbound/send", mail(change)) }
		for what, c := range map[string]struct{ when, fault string }{
			"31 days ahead": {at(31 * 24 * time.Hour), "too_far_ahead"}, "ten minutes ago": {at(-10 * time.Minute), "in_the_past"},
			"no time": {"tomorrow", "invalid_time"}, "the zero time": {"0001-01-01T00:00:00Z", "invalid_time"}, "long ago": {"0000-12-31T23:00:00Z", "in_the_past"},
		} {
			refused(t, what, send(object{"send_at": c.when}), 422, "validation_failed", "send_at "+c.fault)
		}
		a := send(object{"send_at": at(-4 * time.Minute)})
		status(t, "just now", a, 202)
		if m := into(t, a); m["status"] != "queued" || m["send_at"] != nil {
			t.Errorf("just now: %s", a.Body)
		}
		becomes(t, s, into(t, a)["id"].(string), "delivered")

		soon := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond).In(time.FixedZone("", 7200))
		a = send(object{"send_at": soon.Format(time.RFC3339Nano), "cc": []string{"delivered@simulator.test"}})
		status(t, "in two days", a, 202)
		m := into(t, a)
		id := m["id"].(string)
		for what, m := range map[string]object{"accepted": m, "shown": getMessage(t, s, id)} {
			if m["status"] != "scheduled" || m["send_at"] != apijson.FormatTime(soon) || strings.Count(fmt.Sprint(m["recipients"]), "status:scheduled") != 2 {
				t.Errorf("%s: %v", what, m)
			}
		}
		path := "/outbound/messages/" + id
		later := apijson.FormatTime(soon.Add(time.Hour))
		a = s.API("PATCH", path, object{"send_at": later})
		if status(t, "moving", a, 200); into(t, a)["send_at"] != later {
			t.Errorf("moved: %s", a.Body)
		}
		for what, c := range map[string]struct {
			body   any
			faults []string
		}{
			"nothing": {object{}, []string{"send_at required"}}, "null": {object{"send_at": nil}, []string{"send_at required"}},
			"too far": {object{"send_at": at(31 * 24 * time.Hour)}, []string{"send_at too_far_ahead"}}, "past": {object{"send_at": at(-time.Hour)}, []string{"send_at in_the_past"}},
			"more": {object{"send_at": later, "subject": "x"}, []string{"subject unknown_field"}},
		} {
			refused(t, what, s.API("PATCH", path, c.body), 422, "validation_failed", c.faults...)
		}
		refused(t, "retrying what waits", s.API("POST", path+"/retry", nil), 409, "not_retryable")

		for what, key := range map[string]string{"a stranger": stranger(t, s), "a key of another domain": oneDomain(t, s, "other.test")} {
			refused(t, what, s.APIWithKey(key, "PATCH", path, object{"send_at": later}), 404, "not_found")
			refused(t, what, s.APIWithKey(key, "POST", path+"/cancel", nil), 404, "not_found")
			refused(t, what, s.APIWithKey(key, "POST", path+"/retry", nil), 404, "not_found")
		}
		_, sender := newKey(t, s, object{"scopes": []string{"outbound.send", "messages.read"}})
		refused(t, "a key that may not", s.APIWithKey(sender, "POST", path+"/cancel", nil), 403, "missing_scope")

		a = s.APIWithKey(oneDomain(t, s, "demo.test"), "POST", path+"/cancel", nil)
		status(t, "cancelling", a, 200)
		if m := into(t, a); m["status"] != "cancelled" || m["send_at"] != nil || strings.Count(fmt.Sprint(m["recipients"]), "status:cancelled") != 2 {
			t.Errorf("cancelled: %s", a.Body)
		}
		again := s.API("POST", path+"/cancel", nil)
		if status(t, "cancelling again", again, 200); into(t, again)["status"] != "cancelled" {
			t.Errorf("cancelled again: %s", again.Body)
		}
		refused(t, "moving what is cancelled", s.API("PATCH", path, object{"send_at": later}), 409, "not_scheduled")
		refused(t, "retrying what is cancelled", s.API("POST", path+"/retry", nil), 409, "not_retryable")
	})
}

func oneDomain(t *testing.T, s *servertest.Server, domain string) string {
	t.Helper()
	_, key := newKey(t, s, object{"domain": domain})
	return key
}

// A message that is rescheduled to now is sent at once, with the current Date and no other change.
// A message is sent when its scheduled time comes.
func TestScheduledIsSent(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		file := strings.Repeat("0123456789abcdef", 10_000)
		id := post(t, s, object{"send_at": at(20 * 24 * time.Hour), "attachments": []object{{"filename": "a.txt", "content": base64.StdEncoding.EncodeToString([]byte(file))}}})
		status(t, "moving", s.API("PATCH", "/outbound/messages/"+id, object{"send_at": at(10 * 24 * time.Hour)}), 200)
		status(t, "moving to now", s.API("PATCH", "/outbound/messages/"+id, object{"send_at": at(0)}), 200)
		becomes(t, s, id, "delivered")
		m, err := netmail.ReadMessage(strings.NewReader(arrived(t, s)))
		if err != nil {
			t.Fatal(err)
		}
		if date, err := m.Header.Date(); err != nil || time.Until(date).Abs() > 24*time.Hour {
			t.Errorf("its Date is %v, %v", date, err)
		}
		body, err := io.ReadAll(m.Body)
		if err != nil || !strings.Contains(strings.ReplaceAll(string(body), "\r\n", ""), base64.StdEncoding.EncodeToString([]byte(file))) {
			t.Errorf("the attachment is not what it was: %d bytes, %v", len(body), err)
		}
		if got := m.Header["Feedback-Id"]; len(got) != 1 || !strings.HasPrefix(got[0], "send:demo.test:") || !strings.HasSuffix(got[0], ":mailstead") || strings.Count(got[0], ":") != 3 {
			t.Errorf("Feedback-ID: %q", got)
		}
		for _, signature := range m.Header["Dkim-Signature"] {
			if !strings.Contains(signature, "Feedback-ID") {
				t.Errorf("Feedback-ID is not signed: %s", signature)
			}
		}
		becomes(t, s, post(t, s, object{"send_at": at(200 * time.Millisecond)}), "delivered")
	})
}

// A message that failed because of our side, or is deferred, is retried at once.
func TestRetry(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		retry := func(id string) {
			status(t, "retrying", s.API("POST", "/outbound/messages/"+id+"/retry", nil), 200)
			becomes(t, s, id, "delivered")
			refused(t, "retrying what is delivered", s.API("POST", "/outbound/messages/"+id+"/retry", nil), 409, "not_retryable")
		}
		id := post(t, s, object{"send_at": at(time.Hour)})
		message, err := db.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Queue.Fail(t.Context(), message, "dropped"); err != nil {
			t.Fatal(err)
		}
		becomes(t, s, id, "failed")
		retry(id)
		id = post(t, s, object{"to": []string{"deferred@simulator.test"}})
		becomes(t, s, id, "deferred")
		retry(id)
	})
}

// Queued messages of a suspended account fail.
func TestSuspendedWhileWaiting(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		id, err := db.ParseID(post(t, s, object{"send_at": at(time.Hour)}))
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})
		defer sub.Close()
		suspend(t, s, acc.ID)
		if _, err := s.Outbox.Reschedule(t.Context(), acc.ID, id, time.Now()); err != nil {
			t.Fatal(err)
		}
		for {
			m, err := s.Outbox.Get(t.Context(), acc.ID, id)
			if err != nil {
				t.Fatal(err)
			}
			if m.Status == "failed" {
				if got := m.Deliveries[0].Reply; got != "The account that sends it is suspended." {
					t.Errorf("the reason: %q", got)
				}
				return
			}
			select {
			case <-sub.C:
			case <-t.Context().Done():
				t.Fatalf("it is %v", m.Status)
			}
		}
	})
}

// Cancelling races with sending, immediately and when a scheduled time comes. For each delivery
// exactly one wins, and every response is correct.
func TestCancelRace(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const rounds = 80
		var mu sync.Mutex
		said := map[string]map[string]string{} // the result for each recipient, by the response to cancel
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range rounds / 4 {
					change := object{"cc": []string{"delivered@simulator.test", "alice@demo.test"}}
					if i%2 == 0 {
						change["send_at"] = at(time.Duration(5*i) * time.Millisecond)
					}
					a := s.API("POST", "/outbound/send", mail(change))
					if a.Status != 202 {
						t.Errorf("worker %d: %d %s", worker, a.Status, a.Body)
						return
					}
					id := into(t, a)["id"].(string)
					answers := map[string]string{}
					a = s.API("POST", "/outbound/messages/"+id+"/cancel", nil)
					switch a.Status {
					case 200:
						for _, r := range into(t, a)["recipients"].([]any) {
							answers[r.(object)["email"].(string)] = r.(object)["status"].(string)
						}
					case 409:
					default:
						t.Errorf("%d %s", a.Status, a.Body)
					}
					mu.Lock()
					said[id] = answers
					mu.Unlock()
				}
			})
		}
		all.Wait()
		filed := map[string]uint32{}
		cancelled, sent := 0, 0
		for id, answers := range said {
			m := becomes(t, s, id, "delivered", "cancelled")
			for _, r := range m["recipients"].([]any) {
				email, is := r.(object)["email"].(string), r.(object)["status"].(string)
				switch is {
				case "delivered":
					filed[email]++
					sent++
				case "cancelled":
					cancelled++
				}
				if (is == "cancelled") != (answers[email] == "cancelled") {
					t.Errorf("%s to %s is %s; cancel said %q", id, email, is, answers[email])
				}
			}
		}
		for _, box := range s.Dev.Mailboxes {
			inbox, err := s.Folders.Status(t.Context(), box.ID, "INBOX")
			if err != nil {
				t.Fatal(err)
			}
			if inbox.Messages != filed[box.Address] {
				t.Errorf("%s has %d messages, %d were delivered", box.Address, inbox.Messages, filed[box.Address])
			}
		}
		t.Logf("%d cancelled, %d sent", cancelled, sent)
	})
}
