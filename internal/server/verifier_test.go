// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/smtp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// outsider is a remote host that sends to the MX, from loopback.
type outsider struct {
	t    *testing.T
	s    *servertest.Server
	zone *dnstest.Zone
	sign mailauth.Signer
}

func newOutsider(t *testing.T, options ...servertest.Option) *outsider {
	t.Helper()
	addr, zone := dnstest.Start(t,
		`good.com. TXT "v=spf1 ip4:127.0.0.1 -all"`, `_dmarc.good.com. TXT "v=DMARC1; p=reject"`,
		`bank.com. TXT "v=spf1 -all"`, `_dmarc.bank.com. TXT "v=DMARC1; p=reject"`,
		`_dmarc.shop.com. TXT "v=DMARC1; p=quarantine"`,
		`1.0.0.127.in-addr.arpa. PTR mx.good.com.`, `mx.good.com. A 127.0.0.1`)
	zone.ServFail("_dmarc.dead.com")
	key, err := mailauth.GenerateKey(mailauth.RSA)
	if err != nil {
		t.Fatal(err)
	}
	record, err := mailauth.KeyRecord(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	zone.Publish("TXT", "s1._domainkey.bank.com", record, nil)
	resolver := func(c *server.Config) { c.Resolver = addr }
	return &outsider{
		t: t, s: servertest.Start(t, append([]servertest.Option{resolver}, options...)...), zone: zone,
		sign: mailauth.Signer{Domain: "bank.com", Keys: []mailauth.Key{{Selector: "s1", Private: key}}},
	}
}

// send sends a message to the MX for alice, and returns the rejection; "" if it was accepted.
func (o *outsider) send(sender, msg string) string {
	o.t.Helper()
	c, err := smtp.Dial(o.s.Addr("smtp"))
	if err != nil {
		o.t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only a client
	if err := errors.Join(c.Mail(sender), c.Rcpt(o.s.Dev.Mailboxes[0].Address)); err != nil {
		o.t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		o.t.Fatal(err)
	}
	_, _ = io.WriteString(w, msg) // an error shows at the end
	if err := w.Close(); err != nil {
		return strings.ReplaceAll(err.Error(), `"`, "")
	}
	return ""
}

// testMail returns a message whose subject is its name.
func testMail(name, from string) string {
	return "From: " + from + "\r\nTo: alice@demo.test\r\nSubject: " + name + "\r\n\r\nHi\r\n"
}

// shown returns alice's messages from the API: their folder and authentication results, by subject.
func (o *outsider) shown() map[string]string {
	o.t.Helper()
	box := o.s.Dev.Mailboxes[0].ID.String()
	var list struct {
		Data []struct {
			ID      string         `json:"id"`
			Subject string         `json:"subject"`
			Results map[string]any `json:"check_results"`
			Folders []struct {
				Folder string `json:"folder"`
			} `json:"folders"`
		} `json:"data"`
	}
	o.s.API("GET", "/mailboxes/"+box+"/messages", nil).Decode(o.t, &list)
	all := map[string]string{}
	for _, m := range list.Data {
		all[m.Subject] = fmt.Sprint(m.Folders[0].Folder, " spf=", m.Results["spf"], " dkim=", m.Results["dkim"], " dmarc=", m.Results["dmarc"])
	}
	return all
}

// Mail over SMTP: which messages pass, are rejected or go to Junk, and the results in the API and
// in the message.
func TestVerifiedAtTheListener(t *testing.T) {
	o := newOutsider(t)
	signed := testMail("signed", "a@bank.com")
	sig, err := o.sign.Sign([]byte(signed))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, sender, msg, answer, shown string }{
		{"passes", "a@good.com", testMail("passes", "a@good.com"), "", "INBOX spf=pass dkim=none dmarc=pass"},
		{"signed", "a@bank.com", string(sig) + signed, "", "INBOX spf=fail dkim=pass dmarc=pass"},
		{"forged", "a@good.com", testMail("forged", "Bank <a@bank.com>"), "550 5.7.1 The DMARC policy of bank.com refuses this message", ""},
		{"suspect", "a@good.com", testMail("suspect", "a@shop.com"), "", "Junk spf=pass dkim=none dmarc=fail"},
		{"unknown", "a@good.com", testMail("unknown", "a@dead.com"), "451 4.7.0", ""},
		{"doubled", "a@good.com", "From: a@bank.com\r\n" + testMail("doubled", "a@good.com"), "550 5.7.1", ""},
		{"boasting", "a@good.com", "Authentication-Results: mail.mailstead.test; dmarc=pass header.from=none.com\r\n" + testMail("boasting", "a@none.com"), "", "INBOX spf=pass dkim=none dmarc=none"},
	} {
		answer := o.send(tt.sender, tt.msg)
		if tt.answer == "" && answer != "" || !strings.HasPrefix(answer, tt.answer) {
			t.Errorf("%s: %s, want %s", tt.name, answer, tt.answer)
		}
		if got := o.shown()[tt.name]; got != tt.shown {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.shown)
		}
	}
	// The domain chooses a weaker enforcement.
	for i, tt := range []struct{ enforcement, where string }{{"junk", "Junk"}, {"off", "INBOX"}, {"enforce", ""}} {
		if a := o.s.API("PATCH", "/domains/"+o.s.Dev.Domain.ID.String(), map[string]any{"dmarc_enforcement": tt.enforcement}); a.Status != 200 {
			t.Fatalf("%s", a.Body)
		}
		name := fmt.Sprint("softened", i)
		answer := o.send("a@good.com", testMail(name, "a@bank.com"))
		if got, _, _ := strings.Cut(o.shown()[name], " "); got != tt.where || (answer == "") != (tt.where != "") {
			t.Errorf("%s: %s, in %q", tt.enforcement, answer, got)
		}
	}
}

// Submitted and locally delivered mail is not verified.
func TestOwnMailIsNotVerified(t *testing.T) {
	o := newOutsider(t, func(c *server.Config) { c.DMARC = "enforce" })
	o.zone.Set("_dmarc.com", `TXT "v=DMARC1; p=reject"`)
	if a := o.s.API("POST", "/outbound/send", map[string]any{"from_email": "bob@demo.test", "to": []string{"alice@demo.test"}, "subject": "own", "text": "x"}); a.Status != 202 {
		t.Fatalf("%s", a.Body)
	}
	text := arrived(t, o.s, 0, 1)
	if strings.Contains(text, "\r\nAuthentication-Results:") || o.shown()["own"] != "INBOX spf=none dkim=none dmarc=none" {
		t.Errorf("%s:\n%s", o.shown()["own"], text)
	}
}

// The operator's setting applies to all domains, and trusted forwarders must be domain names.
func TestOperatorsDMARC(t *testing.T) {
	o := newOutsider(t, func(c *server.Config) { c.DMARC = "off" })
	if answer := o.send("a@good.com", testMail("forged", "a@bank.com")); answer != "" {
		t.Errorf("%s", answer)
	}
	if got := o.shown()["forged"]; got != "INBOX spf=pass dkim=none dmarc=fail" {
		t.Errorf("%s", got)
	}
	c := server.DevConfig(t.TempDir())
	c.PortBase, c.TrustedForwarder = server.AnyPort, []string{"lists.example.com", "no domain"}
	if _, err := server.Start(t.Context(), c, servertest.Log(t)); err == nil || !slices.Contains(strings.Fields(err.Error()), "--trusted-forwarder") {
		t.Errorf("a forwarder that is none: %v", err)
	}
}
