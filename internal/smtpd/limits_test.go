// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// metered is a complete service whose limits use a stopped clock.
type metered struct {
	*servertest.Server
	t   *testing.T
	now *atomic.Int64 // microseconds
}

func (m *metered) rates(r quota.Rates) {
	m.t.Helper()
	acc, err := m.Accounts.ByEmail(m.t.Context(), "you@demo.test")
	if err == nil {
		err = m.Limits.SetOverrides(m.t.Context(), acc.ID, quota.AccountLimits{Rates: r})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// login starts a session on port 465.
func (m *metered) login(user, password string) *smtp.Client {
	m.t.Helper()
	nc, err := tls.Dial("tcp", m.Addr("submissions"), m.TLS())
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := smtp.NewClient(nc, "localhost")
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.Close() })
	if err := c.Auth(smtp.PlainAuth("", user, password, "localhost")); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// submit submits a message, until a command is rejected.
func submit(c *smtp.Client, to ...string) (step string, err error) {
	if err := c.Mail("alice@demo.test"); err != nil {
		return "MAIL", err
	}
	for _, a := range to {
		if err := c.Rcpt(a + "@simulator.test"); err != nil {
			return "RCPT", errors.Join(err, c.Reset())
		}
	}
	w, err := c.Data()
	if err != nil {
		return "DATA", err
	}
	_, err = fmt.Fprintf(w, "From: alice@demo.test\r\nTo: delivered@simulator.test\r\nSubject: x\r\n\r\nx\r\n")
	return "the end", errors.Join(err, w.Close())
}

// tooMuch fails the test unless a command got the reply 450 4.7.1.
func tooMuch(t *testing.T, at, step string, err error) {
	t.Helper()
	var r *textproto.Error
	if !errors.As(err, &r) || r.Code != 450 || !strings.HasPrefix(r.Msg, "4.7.1 ") || step != at {
		t.Errorf("at %s: %v, want 450 4.7.1 at %s", step, err, at)
	}
}

func (m *metered) submits(c *smtp.Client, to ...string) {
	m.t.Helper()
	if step, err := submit(c, to...); err != nil {
		m.t.Fatalf("%s: %v", step, err)
	}
}

func (m *metered) sends(status int) {
	m.t.Helper()
	a := m.API("POST", "/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"delivered@simulator.test"}, "subject": "x", "text": "x"})
	if a.Status != status {
		m.t.Fatalf("sending by the API: %d %s, want %d", a.Status, a.Body, status)
	}
}

// has fails the test unless there is this number of messages, and this usage.
func (m *metered) has(messages int, used string) {
	m.t.Helper()
	var list struct{ Data []struct{ ID string } }
	m.API("GET", "/outbound/messages?limit=100", nil).Decode(m.t, &list)
	var u map[string]any
	m.API("GET", "/limits", nil).Decode(m.t, &u)
	got := ""
	for _, name := range []string{"sends_per_hour", "sends_per_day", "recipients_per_day"} {
		got += fmt.Sprint(u[name].(map[string]any)["used"], " ")
	}
	if len(list.Data) != messages || got != used+" " {
		m.t.Errorf("there are %d messages, %s used; want %d, %s", len(list.Data), got, messages, used)
	}
}

// Mail counts by the same limits on every path, and rejected mail is not queued.
func TestSubmissionLimits(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		now := &atomic.Int64{}
		now.Store(time.Date(2026, 5, 4, 10, 30, 0, 0, time.UTC).UnixMicro())
		m := &metered{servertest.Start(t, servertest.Database(url), servertest.Clock(func() time.Time { return time.UnixMicro(now.Load()) })), t, now}
		m.rates(quota.Rates{SendsPerHour: 4})
		alice := m.Dev.Mailboxes[0]
		mailbox, key := m.login(alice.Address, alice.Password), m.login("api", m.Dev.APIKey)

		m.submits(mailbox, "delivered")
		m.submits(key, "delivered", "delivered+2")
		m.sends(202)
		m.has(3, "3 3 4")
		// At the end of a transaction that began before the limit was reached.
		if err := mailbox.Mail(alice.Address); err != nil {
			t.Fatal(err)
		}
		if err := mailbox.Rcpt("delivered@simulator.test"); err != nil {
			t.Fatal(err)
		}
		m.sends(202)
		w, err := mailbox.Data()
		if err == nil {
			_, err = fmt.Fprint(w, "From: alice@demo.test\r\nSubject: late\r\n\r\nx\r\n")
			err = errors.Join(err, w.Close())
		}
		tooMuch(t, "the end", "the end", err)
		for _, c := range []*smtp.Client{mailbox, key} {
			step, err := submit(c, "delivered")
			tooMuch(t, "MAIL", step, err)
		}
		m.sends(429)
		m.has(4, "4 4 5")

		now.Add(30 * time.Minute.Microseconds())
		for range 2 {
			m.submits(mailbox, "delivered")
			m.submits(key, "delivered")
		}
		m.sends(429)
		m.has(8, "4 8 9")

		// Rejected mail does not count.
		m.rates(quota.Rates{RecipientsPerDay: 11})
		step, err := submit(key, "delivered", "delivered+2", "delivered+3")
		tooMuch(t, "RCPT", step, err)
		now.Add(24 * time.Hour.Microseconds())
		m.rates(quota.Rates{RecipientsPerDay: 2})
		step, err = submit(mailbox, "delivered", "delivered+2", "delivered+3") // more than the whole limit: by itself the third can be sent tomorrow
		tooMuch(t, "RCPT", step, err)
		m.has(8, "0 0 0")
		m.submits(mailbox, "delivered", "delivered+2")
		m.has(9, "1 1 2")
	})
}

// A key's own limits apply to its SMTP submissions.
func TestSubmissionKeyLimits(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := &metered{s, t, nil}
		a := m.API("POST", "/api-keys", map[string]any{"name": "x", "limits": map[string]any{"sends_per_day": 1}})
		var made struct{ Key string }
		if a.Decode(t, &made); a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		day := time.Now().UTC().Day()
		own, other := m.login("api", made.Key), m.login("api", m.Dev.APIKey)
		m.submits(own, "delivered")
		step, err := submit(own, "delivered")
		if time.Now().UTC().Day() != day {
			return // it was midnight, so the key may send
		}
		tooMuch(t, "MAIL", step, err)
		m.submits(other, "delivered")
	})
}

// A client that tries out names is slowed down and then disconnected, as is a network that sends
// too much.
func TestClients(t *testing.T) {
	d := open(t, func(s *smtpd.Server) {
		s.ClientLimiter = ratelimit.NewClientLimiter(3, 5, nil)
		s.ClientLimiter.TarpitBase = time.Millisecond
	})
	begin := func() *client {
		c := d.dial()
		c.want("220 ")
		c.say("EHLO a.example", "250 ")
		c.say("MAIL FROM:<a@b.example>", "250 ")
		return c
	}
	c := begin()
	c.send(strings.Repeat("RCPT TO:<nobody@demo.test>\r\n", 5) + "RCPT TO:<bob@demo.test>\r\nRCPT TO:<nobody@demo.test>\r\n")
	for range 5 {
		c.want("550 5.1.1 ")
	}
	c.want("250 ")
	c.want("421 4.7.0 Too many recipients that do not exist")
	c.wantEOF()
	c = begin()
	c.say("RCPT TO:<full@demo.test>", "452 ") // exists
	c.say("RCPT TO:<nobody@demo.test>", "421 ")
	c.wantEOF()
	c = begin()
	c.say("RSET", "250 ")
	c.say("MAIL FROM:<a@b.example>", "450 4.7.1 Too many messages")
	c.say("QUIT", "221 ")
}
