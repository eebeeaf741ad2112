// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base32"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// writeCertificate writes a CA and a certificate that it issued, and returns their paths.
func writeCertificate(t *testing.T, host string) (pair, authority string) {
	t.Helper()
	a := certtest.New(t, "Story")
	dir := t.TempDir()
	write := func(name, kind string, blocks ...[]byte) string {
		var text []byte
		for _, b := range blocks {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})...)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	made := a.ServerConfig(host).Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return write("cert.pem", "CERTIFICATE", made.Certificate...) + "," + write("key.pem", "PRIVATE KEY", key), write("ca.pem", "CERTIFICATE", a.Cert.Raw)
}

// ticked returns the number of completed steps in the checklist.
func (b *browser) ticked() int {
	b.t.Helper()
	b.open("/")
	return script[int](b, `document.querySelectorAll(".steps .ticked").length`)
}

// The first customer of a new service starts from the link that serve prints. They set up a domain,
// a mailbox, a template with a test message, and a webhook that is called.
func TestStory(t *testing.T) {
	const host = "mail.story.example"
	heard := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "thank you")
		heard <- string(body)
	}))
	defer receiver.Close()
	pair, authority := writeCertificate(t, host)
	resolver, zone := dnstest.Start(t, host+". A 127.0.0.1", "spf."+host+`. TXT "v=spf1 ip4:127.0.0.1 -all"`)
	s := servertest.Start(t, servertest.ServeMode(host, resolver, pair, authority))
	link, err := url.Parse(s.SetupURL)
	if err != nil || link.Host == "" {
		t.Fatalf("%q %v", s.SetupURL, err)
	}
	b := browseAt(t, "https://"+link.Host, "MAP "+host+" 127.0.0.1")

	b.open(link.Path)
	b.reads("You are the first")
	if got := script[string](b, `document.querySelector("[name=email]").value`); got != servertest.OperatorAddress {
		t.Errorf("the operator is asked to confirm %q", got)
	}
	b.looks("story-link")
	b.fill("email", "ann@story.example")
	b.fill("name", "Ann Lee")
	b.fill("password", "Correct-Horse-7")
	b.press(link.Path)
	b.reads("Get going")
	b.open(link.Path)
	b.reads("Not found") // it works once
	b.open("/profile/factor")
	secret := script[string](b, `document.querySelector("[name=secret]").value`)
	b.fill("code", codeOf(t, secret))
	b.press("/profile/factor")
	b.reads("Each of these signs you in once")
	b.accessible()

	if n := b.ticked(); n != 0 {
		t.Errorf("%d steps are done at the beginning:\n%s", n, b.text())
	}
	b.looks("story-start")
	b.open("/domains")
	b.reads("No domain yet")
	b.fill("name", "story.example")
	b.press("/domains")
	b.reads("Added the domain story.example.")
	b.accessible()
	b.publish(s, zone)
	b.becomes("pending")
	script[string](b, `window.same = "yes"`)
	me, err := s.Accounts.ByEmail(t.Context(), "ann@story.example")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := db.ParseID(strings.TrimPrefix(b.path(), "/domains/"))
	if err != nil {
		t.Fatal(err)
	}
	// The service does this a minute after the domain was added.
	if _, err := s.Domains.CheckDNS(t.Context(), me.ID, domain); err != nil {
		t.Fatal(err)
	}
	script[bool](b, `new Promise(done => {
		const look = () => [...document.querySelectorAll("#records .summary .badge")].filter(x => x.textContent === "verified").length === 2;
		if (look()) return done(true);
		new MutationObserver((_, o) => { if (look()) { o.disconnect(); done(true); } }).observe(document.body, {childList: true, subtree: true});
	})`)
	if script[string](b, `window.same`) != "yes" {
		t.Error("the page was loaded anew")
	}
	if n := script[int](b, `document.querySelectorAll("#keys .badge.good").length`); n != 2 {
		t.Errorf("%d keys are shown as active", n)
	}
	b.looks("story-verified")
	if n := b.ticked(); n != 2 {
		t.Errorf("%d steps are done with a domain:\n%s", n, b.text())
	}

	b.open("/mailboxes")
	b.reads("Make a mailbox")
	b.open("/mailboxes/new")
	b.fill("local_part", "ann")
	b.fill("display_name", "Ann Lee")
	b.press("/mailboxes")
	b.reads("ann@story.example is ready")
	b.accessible()
	password := script[string](b, `document.querySelectorAll("main code")[1].textContent`)
	setup := script[string](b, `document.querySelector("main .actions .button").getAttribute("href")`)
	b.open(setup)
	if strings.Contains(script[string](b, `document.documentElement.outerHTML`), password) {
		t.Error("the password is shown twice")
	}
	b.press(setup + "/check")
	b.reads("It works")
	b.accessible()

	b.open("/templates/new")
	b.fill("name", "Welcome")
	b.fill("subject", "Welcome, {{name}}")
	b.fill("html", "<h1>Welcome, {{name}}!</h1><p>Good to have you here.</p>")
	script[string](b, `document.querySelector("[name=key]").value = "name"; document.querySelector("[name=trial]").value = "Bob"; ""`)
	b.press("/templates")
	b.reads("Welcome")
	template := strings.SplitN(b.path(), "?", 2)[0]
	send := func() {
		t.Helper()
		b.open(template + "/test")
		b.fill("to", "ann@story.example")
		b.fill("trial", "Bob")
		b.press(template + "/test")
		b.reads("Sent a test of the template")
		b.becomes("Attempt 1: delivered")
	}
	send()
	b.accessible()
	b.open("/messages")
	b.reads("[Test] Welcome, Bob")
	if n := script[int](b, `document.querySelectorAll("tbody tr").length`); n != 2 {
		t.Errorf("what was sent and what arrived are %d messages:\n%s", n, b.text())
	}
	b.accessible()

	b.open("/webhooks/new")
	b.fill("url", receiver.URL+"/hook")
	b.tick("events", "delivery_status")
	b.press("/webhooks")
	b.reads("whsec_")
	hook := script[string](b, `document.querySelector("main .button").getAttribute("href")`)
	send()
	if body := <-heard; !strings.Contains(body, "delivered") {
		t.Error("the receiver heard", body)
	}
	servertest.Eventually(t, func() string {
		b.open(hook)
		if script[bool](b, `!!document.querySelector("tbody .badge.good")`) {
			return ""
		}
		return b.text()
	})
	b.open(script[string](b, `document.querySelector("tbody a").getAttribute("href")`))
	script[string](b, `document.querySelectorAll("main details").forEach(d => d.open = true); ""`)
	b.reads("thank you")
	b.reads("webhook-signature")
	b.reads("ann@story.example")
	b.accessible()

	// A sent message is counted when it is indexed, some seconds later.
	servertest.Eventually(t, func() string {
		b.open("/")
		if text := b.text(); strings.Contains(text, "Get going") {
			return text
		}
		return ""
	})
	b.looks("story-end")
	b.reads("Your e-mail address is not confirmed yet.")
	b.open("/profile")
	b.press("/profile/confirmation")
	b.reads("Sent a link to ann@story.example.")
	b.accessible()
	confirm := readLink(t, fmt.Sprintf("127.0.0.1:%d", s.Dashboard.ClientSetup.Settings("ann@story.example", "").Incoming[0].Port), host, authority, "ann@story.example", password)
	b.open(confirm)
	b.accessible()
	b.press(confirm)
	b.reads("Confirmed the e-mail address.")
	if strings.Contains(b.text(), "not confirmed") {
		t.Error("it is not:", b.text())
	}
	b.press("/sign-out")
	b.open("/sign-in")
	b.fill("email", "ann@story.example")
	b.fill("password", "Correct-Horse-7")
	b.press("/sign-in")
	b.reads("code")
}

// readLink waits for a link in the INBOX of a mailbox, like a mail client.
func readLink(t *testing.T, at, host, authority, address, password string) (path string) {
	t.Helper()
	known, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(known)
	c, err := imapclient.DialTLS(at, &imapclient.Options{TLSConfig: &tls.Config{RootCAs: roots, ServerName: host}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was read
	if err := c.Login(address, password).Wait(); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, func() string {
		box, err := c.Select("INBOX", nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		whole := &imap.FetchItemBodySection{Peek: true}
		got, err := c.Fetch(imap.SeqSetNum(box.NumMessages), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{whole}}).Collect()
		if err != nil {
			t.Fatal(err)
		}
		text := string(got[0].FindBodySection(whole))
		if !strings.Contains(text, "mst_") {
			return "the newest message is " + text
		}
		path = link(t, text)
		return ""
	})
	return path
}

// publish adds the records of a domain's page to a zone.
func (b *browser) publish(s *servertest.Server, zone *dnstest.Zone) {
	b.t.Helper()
	type record struct {
		Type, Name, Value string
		Priority          *int
	}
	for i, r := range script[[]record](b, `[...document.querySelectorAll("article.record")].map(a => {
		const said = {};
		for (const d of a.querySelectorAll(".inner > dl > div")) said[d.querySelector("dt").textContent] = d.querySelector("code").textContent;
		return {Type: said.Type, Name: said.Name, Value: said.Value, Priority: said.Priority ? Number(said.Priority) : null};
	})`) {
		if r.Type == "" || r.Name == "" || r.Value == "" {
			b.t.Fatalf("record %d is shown as %+v", i, r)
		}
		zone.Publish(r.Type, r.Name, r.Value, r.Priority)
	}
}

// codeOf returns the current code of an authenticator (RFC 6238 §4).
func codeOf(t *testing.T, secret string) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha1.New, key)
	_ = binary.Write(h, binary.BigEndian, time.Now().Unix()/30) // writing to a hash doesn't fail
	sum := h.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1_000_000)
}
