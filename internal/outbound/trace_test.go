// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// A trace confirms recipients only to callers who already know the address.
func TestPast(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		accepted := send(t, s, "Ann@Example.org", "bob+x@example.org")
		makePast(t, s, accepted)
		if _, err := s.Outbox.Get(t.Context(), demo(t, s).Account, accepted.ID); !fault.Is(err, fault.NotFound) {
			t.Fatalf("it is still there: %v", err)
		}
		for _, c := range []struct {
			n    int
			of   []string
			want string
		}{
			{0, []string{"ann@example.org"}, "ann@example.org"},
			{0, []string{"eve@example.org", "ANN@example.org"}, "ANN@example.org"},
			{1, []string{"bob+x@example.org"}, "bob+x@example.org"},
			{1, []string{"bob@example.org"}, ""},
			{1, []string{"ann@example.org"}, ""},
			{0, nil, ""},
			{2, []string{"ann@example.org"}, ""},
			{-1, []string{"ann@example.org"}, ""},
		} {
			var of []address.Address
			for _, text := range c.of {
				a, err := address.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				of = append(of, a)
			}
			acc, to, err := s.Outbox.PrunedRecipient(t.Context(), accepted.ID, c.n, of)
			if found := !fault.Is(err, fault.NotFound); found && (err != nil || to.String() != c.want || acc != demo(t, s).Account) || !found && c.want != "" {
				t.Errorf("%d %v: %v %v %v, want %q", c.n, c.of, acc, to, err, c.want)
			}
		}
		if _, _, err := s.Outbox.PrunedRecipient(t.Context(), accepted.ID+1, 0, nil); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

// A reply to a pruned message finds its thread and refers to it, until the trace is pruned too.
func TestPruneKeepsThreads(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := demo(t, s)
		first := send(t, s, "ann@example.org")
		makePast(t, s, first)
		found, err := s.Threads.FindOrStart(t.Context(), p.Account, 0, []string{"<nobody@x>", first.MessageID})
		if err != nil || found != first.ThreadID {
			t.Errorf("found %q, %v", found, err)
		}
		if other, err := s.Threads.FindOrStart(t.Context(), p.Account+1, 0, []string{first.MessageID}); err != nil || other == first.ThreadID {
			t.Errorf("a stranger found %q, %v", other, err)
		}
		chain, err := s.Outbox.Chain(t.Context(), p.Account, 0, first.ThreadID, 1<<62)
		if err != nil || len(chain) != 1 || chain[0].MessageID != first.MessageID {
			t.Errorf("the thread is %v, %v", chain, err)
		}
		if n, err := s.Outbox.PruneTraces(t.Context(), first.ID.Time(), 10); n != 0 || err != nil {
			t.Errorf("too early: %d, %v", n, err)
		}
		if n, err := s.Outbox.PruneTraces(t.Context(), time.Now().Add(time.Hour), 10); n != 1 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		if found, err := s.Threads.FindOrStart(t.Context(), p.Account, 0, []string{first.MessageID}); err != nil || found == first.ThreadID {
			t.Errorf("found %q, %v", found, err)
		}
	})
}

// demo is the principal of the demonstration account's key.
func demo(t *testing.T, s *servertest.Server) account.Principal {
	t.Helper()
	found, err := s.Accounts.Authenticate(t.Context(), s.Dev.APIKey, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func send(t *testing.T, s *servertest.Server, to ...string) outbound.AcceptedMessage {
	t.Helper()
	results, err := s.Outbox.Send(t.Context(), demo(t, s), []outbound.SendRequest{{FromEmail: "alice@demo.test", To: to, Subject: "Hello", Text: "Hello"}}, outbound.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return results[0].AcceptedMessage
}

// makePast waits until a message is delivered, and lets it be pruned.
func makePast(t *testing.T, s *servertest.Server, m outbound.AcceptedMessage) {
	t.Helper()
	delivered(t, s, m)
	a := &attic{t: t, s: s}
	a.index(m.ID)
	if n := a.prune(time.Now().Add(time.Hour), 100); len(n) == 0 {
		t.Fatal("nothing was pruned")
	}
}

// delivered waits until a message is delivered or gone.
func delivered(t *testing.T, s *servertest.Server, m outbound.AcceptedMessage) {
	t.Helper()
	servertest.Eventually(t, func() string {
		got, err := s.Outbox.Get(t.Context(), demo(t, s).Account, m.ID)
		if err != nil || got.Status == queue.Delivered {
			return ""
		}
		return string(got.Status)
	})
}

const lateReport = "From: <>\r\nSubject: Undeliverable\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=x\r\n\r\n" +
	"--x\r\n\r\nSorry.\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example.org\r\n\r\n" +
	"Final-Recipient: rfc822; %s\r\nAction: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 no such user\r\n\r\n--x--\r\n"

// A report that arrives after the message was pruned is accepted and still suppresses the message's
// recipient; other addresses in it have no effect.
func TestReportAfterPrune(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := send(t, s, "ann@example.org", "bob@example.org")
		makePast(t, s, m)
		report := func(n int, about string) {
			t.Helper()
			l := s.Inbound.Begin(nil, 0)
			if err := l.AddRecipient(t.Context(), address.Address{Local: s.Inbound.Key.ReturnPath(int64(m.ID), n), Domain: "demo.test"}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.ReceiveMessage(t.Context(), message.ReceivedField{}, strings.NewReader(fmt.Sprintf(lateReport, about))); err != nil {
				t.Errorf("%d %s: %v", n, about, err)
			}
		}
		blocked := func(want ...string) {
			t.Helper()
			var asked []address.Address
			for _, local := range []string{"ann", "bob", "carol"} {
				asked = append(asked, address.Address{Local: local, Domain: "example.org"})
			}
			found, err := s.Suppressions.Blocked(t.Context(), demo(t, s).Account, asked, false)
			if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, want) {
				t.Errorf("blocked are %v, %v; want %v", got, err, want)
			}
		}
		report(0, "carol@example.org")
		report(0, "bob@example.org")
		report(7, "ann@example.org")
		report(0, "ann@example.org\r\nAction: expanded\r\n\r\nOriginal-Recipient: rfc822; ann@example.org\r\nFinal-Recipient: rfc822; member@example.org")
		blocked()
		report(0, "Ann@example.org")
		report(0, "ann@example.org")
		blocked("ann@example.org")
		if n, err := s.Outbox.PruneTraces(t.Context(), time.Now().Add(time.Hour), 10); n != 1 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
		report(1, "bob@example.org")
		blocked("ann@example.org")
	})
}

// Unsubscribing works after the message was pruned.
func TestUnsubscribeAfterPrune(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := send(t, s, "ann@example.org")
		makePast(t, s, m)
		p := demo(t, s)
		if done, err := s.Queue.RecordUnsubscribe(t.Context(), suppression.UnsubscribeLink{Account: p.Account, Message: m.ID, Address: "ann@example.org"}, queue.UnsubscribeByEmail); err != nil || !done {
			t.Fatal(done, err)
		}
		servertest.Eventually(t, func() string {
			got, err := s.Events.List(t.Context(), p.Account, event.Filter{Message: m.ID, Before: 1 << 62, Limit: 1})
			if err != nil {
				return err.Error()
			}
			if len(got.Events) == 1 && got.Events[0].Type == event.Unsubscribe && strings.Contains(string(got.Events[0].Data), `"method":"email"`) && strings.Contains(string(got.Events[0].Data), m.MessageID) && strings.Contains(string(got.Events[0].Data), m.ThreadID) {
				return ""
			}
			return fmt.Sprint("the event is ", got)
		})
	})
}
