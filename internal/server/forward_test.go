// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sentOn waits until n messages were forwarded to an outside address, and returns the newest.
func sentOn(t *testing.T, s *servertest.Server, to string, n int) (text string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		var all struct {
			Data []struct {
				ID       string
				Envelope struct {
					RcptTo []string `json:"rcpt_to"`
				}
			}
		}
		s.API("GET", "/sandbox/outbox?limit=100", nil).Decode(t, &all)
		found := 0
		for _, one := range all.Data {
			if len(one.Envelope.RcptTo) == 1 && one.Envelope.RcptTo[0] == to {
				if found++; found == 1 {
					text = string(s.API("GET", "/sandbox/outbox/"+one.ID+"/raw", nil).Body)
				}
			}
		}
		if found != n {
			return fmt.Sprintf("%d messages went to %s, want %d", found, to, n)
		}
		return ""
	})
	return text
}

// A message that a hosted domain forwards carries an ARC seal that the recipient can verify with
// DNS. So the author's DMARC pass is preserved, although SPF fails.
func TestForwardIsSealed(t *testing.T) {
	o := newOutsider(t)
	const far = "far@away.com"
	if a := o.s.API("POST", "/aliases", map[string]any{"address": "out@demo.test", "targets": []string{far, "alice@demo.test"}}); a.Status != 201 {
		t.Fatalf("%s", a.Body)
	}
	msg := "From: a@bank.com\r\nTo: out@demo.test\r\nSubject: sealed\r\n\r\n" + strings.Repeat("Hi\r\n", 50_000) // once as a file, and once inline
	for n, text := range []string{msg, strings.Replace(msg[:200], "sealed", "small", 1)} {
		sig, err := o.sign.Sign([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		bring(t, o.s, "out@demo.test", string(sig)+text)
		sealed := sentOn(t, o.s, far, n+1)
		j := (&mailauth.Verifier{DNS: dnstest.Resolver(t, o.s.Addr("dns")), Now: time.Now}).Begin([]byte(sealed[:strings.Index(sealed, "\r\n\r\n")+2]))
		_, body, _ := strings.Cut(sealed, "\r\n\r\n")
		_, _ = j.Write([]byte(body))
		found := j.Verify(t.Context(), mailauth.ClientIdentity{IP: netip.MustParseAddr("192.0.2.1"), Helo: "x.test", From: "x@x.test"})
		if found.ARC.Result != mailauth.Pass || found.ARC.TrustedSealer("bank.com", []string{"demo.test"}) != "demo.test" {
			t.Errorf("%s (%s), sealed by %v:\n%.2000s", found.ARC.Result, found.ARC.Reason, found.ARC.Sealers, sealed)
		}
		if h := message.Header(sealed); !strings.HasPrefix(sealed, "ARC-Seal: i=1; a=rsa-sha256; cv=none;") || !strings.HasSuffix(sealed, string(sig)+text) || h.Count("DKIM-Signature") != 1 {
			t.Errorf("sent on:\n%.2000s", sealed)
		}
	}
	if got := o.shown()["sealed"]; got != "INBOX spf=none dkim=pass dmarc=pass" {
		t.Errorf("alice has it as %s", got)
	}
	if raw := arrived(t, o.s, 0, 1); strings.Contains(raw, "ARC-") {
		t.Errorf("what stays here is sealed:\n%.1000s", raw)
	}
}

// In an offline sandbox, where missing DNS causes no rejection, mail that is only forwarded is not
// rejected either.
func TestForwardOffline(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		s.Inbound.AcceptUnknownPolicy = true
		if _, err := clientOf(t, s).CreateAlias(t.Context(), "out@demo.test", away); err != nil {
			t.Fatal(err)
		}
		if err := mx(t, s, "ann@good.com", "From: a@dead.com\r\nSubject: Hi\r\n\r\nHi\r\n", "out@demo.test"); err != nil {
			t.Fatal(err)
		}
		wentOut(t, s, away, 1)
	})
}

// An account over its sending limit does not keep other recipients from getting a message: only its
// own forwards are rejected, at RCPT.
func TestForwardOverTheLimit(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c := clientOf(t, s)
		for n, targets := range [][]string{{away}, {away}, {away, "b@away.example.net", "c@away.example.net"}} {
			if _, err := c.CreateAlias(t.Context(), fmt.Sprintf("out%d@demo.test", n), targets...); err != nil {
				t.Fatal(err)
			}
		}
		forwards(t, c, s, 1, false, away)
		demo, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Limits.SetOverrides(t.Context(), demo.ID, quota.AccountLimits{Rates: quota.Rates{SendsPerHour: 2, RecipientsPerDay: 2}}); err != nil {
			t.Fatal(err)
		}
		both := func(to string) (refused error) {
			t.Helper()
			mc, err := smtp.Dial(s.Addr("smtp"))
			if err != nil {
				t.Fatal(err)
			}
			defer mc.Close() //nolint:errcheck // only a client
			if err := errors.Join(mc.Mail("ann@good.com"), mc.Rcpt("alice@demo.test")); err != nil {
				t.Fatal(err)
			}
			for one := range strings.SplitSeq(to, " ") {
				refused = errors.Join(refused, mc.Rcpt(one))
			}
			w, err := mc.Data()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(w, question) // an error shows at the end
			if err := w.Close(); err != nil {
				t.Errorf("with %s: %v", to, err)
			}
			return refused
		}
		n := uint32(0)
		for _, tt := range []struct{ to, want string }{
			{"out2@demo.test", "550"}, {"out0@demo.test out1@demo.test bob@demo.test", "450"}, {"out0@demo.test", "450"}, {"bob@demo.test", "450"},
		} {
			if err := both(tt.to); err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", tt.to, err)
			}
			n++
			arrived(t, s, 0, n)
		}
		wentOut(t, s, away, 2)
	})
}

// Remote addresses beyond the RFCs are accepted: long local parts of forwarders and lists, dots in
// addresses of Japanese carriers, hosts with underscores.
func TestOddAddresses(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		c, ctx := clientOf(t, s), t.Context()
		for n, target := range []string{"a..b@away.example.net", ".c.@away.example.net"} {
			if _, err := c.CreateAlias(ctx, fmt.Sprintf("odd%d@demo.test", n), target); err != nil {
				t.Fatal(err)
			}
		}
		n := uint32(0)
		for _, from := range []string{strings.Repeat("long.local.part", 10) + "x@good.com", "a..b@good.com", ".a@good.com"} {
			if err := mx(t, s, from, question, "alice@demo.test"); err != nil {
				t.Errorf("from %s: %v", from, err)
				continue
			}
			n++
			arrived(t, s, 0, n)
		}
		for n := range 2 {
			if err := mx(t, s, "ann@good.com", question, fmt.Sprintf("odd%d@demo.test", n)); err != nil {
				t.Fatal(err)
			}
		}
		wentOut(t, s, `"a..b"@away.example.net`, 1)
		wentOut(t, s, `".c."@away.example.net`, 1)
		if _, err := c.Send(ctx, &client.Send{FromEmail: "bob@demo.test", To: []string{"x..y@mail_in.example.net"}, Subject: "Hi", Text: "Hi"}); err != nil {
			t.Fatal(err)
		}
		_, text := wentOut(t, s, `"x..y"@mail_in.example.net`, 1)
		if !strings.Contains(text, "To: \"x..y\"@mail_in.example.net\r\n") {
			t.Errorf("it went out as\n%s", text)
		}
	})
}
