// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// outside returns the captured messages to an external address, newest first.
func outside(t *testing.T, s *servertest.Server, to string) (senders, raw []string) {
	t.Helper()
	var all struct {
		Data []struct {
			ID       string
			Envelope struct {
				MailFrom string   `json:"mail_from"`
				RcptTo   []string `json:"rcpt_to"`
			}
		}
	}
	s.API("GET", "/sandbox/outbox?limit=100", nil).Decode(t, &all)
	for _, one := range all.Data {
		if slices.Equal(one.Envelope.RcptTo, []string{to}) {
			senders = append(senders, one.Envelope.MailFrom)
			raw = append(raw, string(s.API("GET", "/sandbox/outbox/"+one.ID+"/raw", nil).Body))
		}
	}
	return senders, raw
}

// simulateArrival delivers a message from outside and returns the SMTP reply.
func simulateArrival(t *testing.T, s *servertest.Server, from, to, raw string, results object) string {
	t.Helper()
	m := object{"raw": base64.StdEncoding.EncodeToString([]byte(raw)), "mail_from": from, "rcpt_to": []string{to}}
	if results != nil {
		m["check_results"] = results
	}
	a := s.API("POST", "/sandbox/inbound", m)
	status(t, "receiving", a, 200)
	var said struct {
		SMTPCode     int    `json:"smtp_code"`
		EnhancedCode string `json:"enhanced_code"`
		Recipients   []struct {
			SMTPCode     int    `json:"smtp_code"`
			EnhancedCode string `json:"enhanced_code"`
		}
	}
	a.Decode(t, &said)
	if said.Recipients[0].SMTPCode != 250 {
		return fmt.Sprint("RCPT ", said.Recipients[0].SMTPCode, " ", said.Recipients[0].EnhancedCode)
	}
	return fmt.Sprint(said.SMTPCode, " ", said.EnhancedCode)
}

const forwarded = "From: Ann <ann@elsewhere.example.net>\r\nTo: out@demo.test\r\nSubject: on and on\r\nMessage-ID: <7@elsewhere.example.net>\r\n" +
	"DKIM-Signature: v=1; d=elsewhere.example.net\r\n\r\ncaf\xc3\xa9\r\n"

func TestForwarding(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const far = "far@away.example.net"
		newAlias(t, s, "out@demo.test", far)
		newAlias(t, s, "both@demo.test", far, "bob@demo.test")
		pass, fail := object{"spf": "pass"}, object{"dmarc": "fail"}
		arrives := func(n int) (sender, text string) {
			t.Helper()
			servertest.Eventually(t, func() string {
				if senders, _ := outside(t, s, far); len(senders) != n {
					return fmt.Sprintf("%d messages were sent on, want %d", len(senders), n)
				}
				return ""
			})
			senders, raw := outside(t, s, far)
			return senders[0], raw[0]
		}
		if said := simulateArrival(t, s, "Ann@elsewhere.example.net", "out+x@demo.test", forwarded, pass); said != "250 2.0.0" {
			t.Fatal(said)
		}
		back, text := arrives(1)
		if !strings.HasPrefix(back, "SRS0=") || !strings.HasSuffix(back, "=elsewhere.example.net=Ann@demo.test") {
			t.Errorf("the return path is %s", back)
		}
		if !strings.HasSuffix(text, forwarded) || strings.Count(text, "DKIM-Signature") != 1 || !strings.HasPrefix(text, "Delivered-To: out+x@demo.test\r\n") {
			t.Errorf("sent on:\n%s", text)
		}

		// Only bounces to the return path are accepted; they go to the original sender.
		report := "From: MAILER-DAEMON@away.example.net\r\nSubject: failed\r\n\r\nno such user\r\n"
		for path, want := range map[string]string{back: "250 2.0.0", strings.Replace(back, "=Ann@", "=eve@", 1): "RCPT 550 5.1.1"} {
			if said := simulateArrival(t, s, "", path, report, nil); said != want {
				t.Errorf("a report to %s: %s", path, said)
			}
		}
		if said := simulateArrival(t, s, "eve@elsewhere.example.net", back, report, pass); said != "RCPT 550 5.7.1" {
			t.Errorf("no report: %s", said)
		}
		servertest.Eventually(t, func() string {
			if senders, raw := outside(t, s, "Ann@elsewhere.example.net"); len(senders) != 1 || senders[0] != "" || !strings.HasSuffix(raw[0], report) {
				return fmt.Sprintf("the sender was told %q %q", senders, raw)
			}
			return ""
		})

		// A sender that was not authenticated gets no report.
		if said := simulateArrival(t, s, "ann@elsewhere.example.net", "out@demo.test", forwarded, object{"spf": "softfail"}); said != "250 2.0.0" {
			t.Error(said)
		}
		if sender, _ := arrives(2); sender != "postmaster@demo.test" {
			t.Errorf("the return path is %s", sender)
		}
		// If the sender's address doesn't fit into a return path, the path is opaque, and bounces
		// still reach the sender.
		long := strings.Repeat("l", 60) + "@elsewhere.example.net"
		if said := simulateArrival(t, s, long, "both@demo.test", forwarded, pass); said != "250 2.0.0" {
			t.Error(said)
		}
		opaque, _ := arrives(3)
		if local, _, _ := strings.Cut(opaque, "@"); !strings.HasPrefix(opaque, "SRS0=p=") || !strings.HasSuffix(opaque, "@demo.test") || len(local) > 64 {
			t.Errorf("the return path is %s", opaque)
		}
		for path, want := range map[string]string{opaque: "250 2.0.0", strings.Replace(opaque, "SRS0=p=", "SRS0=p=a", 1): "RCPT 550 5.1.1"} {
			if said := simulateArrival(t, s, "", path, report, nil); said != want {
				t.Errorf("a report to %s: %s", path, said)
			}
		}
		servertest.Eventually(t, func() string {
			if senders, raw := outside(t, s, long); len(senders) != 1 || senders[0] != "" || !strings.HasSuffix(raw[0], report) {
				return fmt.Sprintf("the sender was told %q %q", senders, raw)
			}
			return ""
		})
		if n, err := s.Inbound.PruneForwardPaths(t.Context(), time.Now().Add(time.Minute), 10); n != 1 || err != nil {
			t.Errorf("forgot %d senders, %v", n, err)
		}
		if said := simulateArrival(t, s, "", opaque, report, nil); said != "RCPT 550 5.1.1" {
			t.Errorf("a report when the sender is forgotten: %s", said)
		}

		// Unwanted mail is not forwarded.
		bob := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String() + "/messages"
		for _, bad := range []object{fail, {"spam": "spam"}} {
			if said := simulateArrival(t, s, "ann@elsewhere.example.net", "out@demo.test", forwarded, bad); said != "550 5.7.1" {
				t.Errorf("with %v: %s", bad, said)
			}
			if said := simulateArrival(t, s, "ann@elsewhere.example.net", "both@demo.test", forwarded, bad); said != "250 2.0.0" {
				t.Errorf("with %v: %s", bad, said)
			}
		}
		if got := ids(t, s.API("GET", bob, nil)); len(got) != 3 {
			t.Errorf("bob has %d messages", len(got))
		}
		for _, again := range []string{"X-Loop: OUT@demo.test\r\n", "Delivered-To: out@demo.test\r\n", strings.Repeat("Delivered-To: x@example.org\r\n", 10)} {
			if said := simulateArrival(t, s, "ann@elsewhere.example.net", "out@demo.test", again+forwarded, pass); said != "554 5.4.6" {
				t.Errorf("round in circles: %s", said)
			}
		}

		// Mail sent from here is forwarded, too, with its original signature.
		status(t, "sending", s.API("POST", "/outbound/send", mail(object{"to": []string{"both@demo.test"}})), 202)
		if sender, text := arrives(4); !strings.HasPrefix(sender, "b-") || !strings.Contains(text, "DKIM-Signature: v=1; a=") {
			t.Errorf("from %s goes on\n%s", sender, text)
		}
		if got := ids(t, s.API("GET", bob, nil)); len(got) != 4 {
			t.Errorf("bob has %d messages", len(got))
		}
		// If forwarding fails, the sender gets a report, or else the postmaster.
		newAlias(t, s, "dead@demo.test", "bounced@simulator.test")
		if said := simulateArrival(t, s, "carol@elsewhere.example.net", "dead@demo.test", forwarded, pass); said != "250 2.0.0" {
			t.Error(said)
		}
		servertest.Eventually(t, func() string {
			if senders, raw := outside(t, s, "carol@elsewhere.example.net"); len(senders) != 1 || senders[0] != "" || !strings.Contains(raw[0], "multipart/report") {
				return fmt.Sprintf("the sender was told %q %q", senders, raw)
			}
			return ""
		})
		if said := simulateArrival(t, s, "dave@elsewhere.example.net", "dead@demo.test", forwarded, object{"spf": "none"}); said != "250 2.0.0" {
			t.Error(said)
		}
		alice := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String() + "/messages"
		servertest.Eventually(t, func() string {
			if got := ids(t, s.API("GET", alice, nil)); len(got) != 1 {
				return fmt.Sprintf("the postmaster has %d messages", len(got))
			}
			return ""
		})
		if a := s.API("GET", "/suppressions", nil); len(ids(t, a)) != 0 {
			t.Errorf("suppressed: %s", a.Body)
		}

		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Limits.SetOverrides(t.Context(), acc.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerHour: 1}}); err != nil {
			t.Fatal(err)
		}
		if said := simulateArrival(t, s, "ann@elsewhere.example.net", "out@demo.test", forwarded, pass); said != "RCPT 450 4.7.1" {
			t.Errorf("over the limit: %s", said)
		}
	})
}
