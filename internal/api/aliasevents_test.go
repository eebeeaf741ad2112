// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A message for several mailboxes, one of them addressed twice, causes one event for each mailbox.
// The events differ in id and mailbox; Message-ID and thread are those of the message.
func TestEventForEachMailbox(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		newAlias(t, s, "team@demo.test", "alice@demo.test", "bob@demo.test")
		a := s.API("POST", "/sandbox/inbound", object{
			"raw":       []byte("From: ann@example.org\r\nTo: team@demo.test\r\nMessage-ID: <offer@example.org>\r\nSubject: Offer\r\n\r\nHello\r\n"),
			"mail_from": "ann@example.org", "rcpt_to": []string{"team@demo.test", "alice@demo.test"},
		})
		status(t, "receiving", a, 200)
		type inbound struct {
			ID        string
			MessageID string `json:"message_id"`
			ThreadID  string `json:"thread_id"`
			Mailbox   struct{ Address string }
			Envelope  struct {
				RcptTo []string `json:"rcpt_to"`
			}
		}
		var list struct{ Data []struct{ Data inbound } }
		servertest.Eventually(t, func() string {
			s.API("GET", "/events?type=inbound_email", nil).Decode(t, &list)
			if len(list.Data) < 2 {
				return "an event is missing"
			}
			return ""
		})
		if len(list.Data) != 2 {
			t.Fatalf("%d events", len(list.Data))
		}
		one, two := list.Data[0].Data, list.Data[1].Data
		if one.MessageID != "<offer@example.org>" || two.MessageID != one.MessageID || one.ThreadID == "" || two.ThreadID != one.ThreadID || one.ID == two.ID {
			t.Errorf("the events are %+v and %+v", one, two)
		}
		for _, e := range []inbound{one, two} {
			want := map[string]string{"alice@demo.test": "team@demo.test alice@demo.test", "bob@demo.test": "team@demo.test"}[e.Mailbox.Address]
			if got := strings.Join(e.Envelope.RcptTo, " "); want == "" || got != want {
				t.Errorf("%s: recipients %s", e.Mailbox.Address, got)
			}
		}
		if !slices.Contains([]string{one.Mailbox.Address, two.Mailbox.Address}, "alice@demo.test") || one.Mailbox == two.Mailbox {
			t.Errorf("mailboxes %+v and %+v", one.Mailbox, two.Mailbox)
		}
	})
}
