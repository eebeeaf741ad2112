// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"crypto/tls"
	"fmt"
	"net/smtp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// demo returns the id of the demonstration account.
func demo(t *testing.T, s *servertest.Server) db.ID {
	t.Helper()
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	return acc.ID
}

var everything suppression.Filter

// history returns a message's events in order, such as "delivery_status delivered, complaint".
func history(t *testing.T, s *servertest.Server, message string) string {
	t.Helper()
	a := s.API("GET", "/events?limit=100&message="+message, nil)
	status(t, "listing events", a, 200)
	var list struct {
		Data []struct {
			Type string
			Data struct {
				Status, Type, Reason, Method string
				Sequence                     int
			}
		}
	}
	a.Decode(t, &list)
	var all []string
	for i := len(list.Data) - 1; i >= 0; i-- {
		e := list.Data[i]
		if e.Data.Sequence != len(all)+1 {
			t.Errorf("event %d has the sequence %d", len(all)+1, e.Data.Sequence)
		}
		all = append(all, strings.Join(strings.Fields(e.Type+" "+e.Data.Status+" "+e.Data.Type+" "+e.Data.Reason+" "+e.Data.Method), " "))
	}
	return strings.Join(all, ", ")
}

// happens waits until a message has the given events.
func happens(t *testing.T, s *servertest.Server, message, want string) {
	t.Helper()
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(demo(t, s))})
	defer sub.Close()
	for {
		got := history(t, s, message)
		if got == want {
			return
		}
		if !strings.HasPrefix(want, got) {
			t.Fatalf("%s: got %s, want %s", message, got, want)
		}
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatalf("%s: waited in vain for %s, got %s", message, want, got)
		}
	}
}

// sent makes a valid send with the given changes.
func sent(t *testing.T, s *servertest.Server, change object) (id string, answer object) {
	t.Helper()
	a := s.API("POST", "/outbound/send", mail(change))
	status(t, "sending", a, 202)
	answer = into(t, a)
	return answer["id"].(string), answer
}

func message(t *testing.T, s *servertest.Server, id string) object {
	t.Helper()
	a := s.API("GET", "/outbound/messages/"+id, nil)
	status(t, "showing a message", a, 200)
	return into(t, a)
}

func recipient(m object, n int) object { return m["recipients"].([]any)[n].(object) }

const (
	isDelivered = "delivery_status delivered"
	isBounced   = "delivery_status bounced, bounce Permanent"
)

// Each simulator address behaves as documented, with a correct timeline. A bounce and a complaint are
// listed for inspection and suppress nothing: the second round sends to the same addresses again.
func TestSimulator(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		for _, label := range []string{"", "+label", "", "+label"} {
			ids := map[string]string{}
			for _, local := range []string{"delivered", "bounced", "deferred", "complained", "suppressed", "nobody"} {
				ids[local], _ = sent(t, s, object{"to": []string{local + label + "@simulator.test"}})
			}
			happens(t, s, ids["delivered"], isDelivered)
			happens(t, s, ids["bounced"], isBounced)
			happens(t, s, ids["nobody"], isBounced)
			happens(t, s, ids["complained"], isDelivered+", delivery_status complained, complaint")
			happens(t, s, ids["suppressed"], "delivery_status suppressed bounce")
			happens(t, s, ids["deferred"], "delivery_status deferred")
			id, err := db.ParseID(ids["deferred"])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Queue.Retry(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			happens(t, s, ids["deferred"], "delivery_status deferred, "+isDelivered)
			for local, want := range map[string]string{
				"delivered": "delivered 250", "bounced": "bounced 550 5.1.1", "nobody": "bounced 550 5.1.1", "complained": "delivered 250, complained complaint",
				"deferred": "deferred 451 4.7.1, delivered 250", "suppressed": "",
			} {
				r := recipient(message(t, s, ids[local]), 0)
				timeline, _ := r["timeline"].([]any)
				var got []string
				for _, a := range timeline {
					a := a.(object)
					if a["remote_mta"] != "simulator" {
						t.Errorf("%s: %v", local, a)
					}
					if a["number"] == 0.0 {
						got = append(got, fmt.Sprint(a["outcome"], " ", a["stage"]))
						continue
					}
					got = append(got, fmt.Sprint(a["outcome"], " ", a["smtp_code"]))
					if code := a["enhanced_code"].(string); !strings.HasPrefix(code, "2") {
						got[len(got)-1] += " " + code
					}
				}
				if strings.Join(got, ", ") != want {
					t.Errorf("%s: the timeline is %q, want %q", local, got, want)
				}
			}
		}
		var list struct {
			Data []struct {
				Email, Reason string
				Simulated     bool
			}
		}
		s.API("GET", "/suppressions", nil).Decode(t, &list)
		var got []string
		for _, e := range list.Data {
			if !e.Simulated {
				t.Errorf("%s is not marked as simulated", e.Email)
			}
			got = append(got, e.Email+" "+e.Reason)
		}
		slices.Sort(got)
		if want := "bounced+label@simulator.test bounce, bounced@simulator.test bounce, " +
			"complained+label@simulator.test complaint, complained@simulator.test complaint"; strings.Join(got, ", ") != want {
			t.Errorf("on the list: %s", strings.Join(got, ", "))
		}
	})
}

// A pending simulated complaint is made after a restart.
func TestSimulatedComplaintSurvives(t *testing.T) {
	dir := t.TempDir()
	s := servertest.Start(t, servertest.Data(dir))
	id, _ := sent(t, s, object{"to": []string{"complained@simulator.test"}})
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(demo(t, s))})
	for !strings.HasPrefix(history(t, s, id), isDelivered) {
		<-sub.C
	}
	sub.Close()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = servertest.Start(t, servertest.Data(dir))
	happens(t, s, id, isDelivered+", delivery_status complained, complaint")
}

// Mail submitted by a mailbox gets the same simulation, and suppresses nothing.
func TestSimulatorBySubmission(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		alice := s.Dev.Mailboxes[0]
		nc, err := tls.Dial("tcp", s.Addr("submissions"), s.TLS())
		if err != nil {
			t.Fatal(err)
		}
		c, err := smtp.NewClient(nc, "localhost")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // the test is over
		if err := c.Auth(smtp.PlainAuth("", alice.Address, alice.Password, "localhost")); err != nil {
			t.Fatal(err)
		}
		submit := func(to ...string) {
			t.Helper()
			if err := c.Mail(alice.Address); err != nil {
				t.Fatal(err)
			}
			for _, a := range to {
				if err := c.Rcpt(a); err != nil {
					t.Fatal(err)
				}
			}
			w, err := c.Data()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(w, "From: %s\r\nTo: %s\r\nSubject: x\r\n\r\nx\r\n", alice.Address, strings.Join(to, ", ")); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct{ local, want string }{
			{"delivered", isDelivered}, {"bounced", isBounced}, {"deferred", "delivery_status deferred"}, {"suppressed", isDelivered},
			{"complained", isDelivered + ", delivery_status complained, complaint"},
		} {
			submit(c.local + "@simulator.test")
			var list struct{ Data []struct{ ID string } }
			s.API("GET", "/outbound/messages?limit=1", nil).Decode(t, &list)
			happens(t, s, list.Data[0].ID, c.want)
		}
		if all, _, err := s.Suppressions.List(t.Context(), demo(t, s), everything, db.Page{}); err != nil || len(all) != 0 {
			t.Errorf("on the list: %+v, %v", all, err)
		}
	})
}
