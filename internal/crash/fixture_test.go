// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// fixture is one service of two nodes: two processes with one PostgreSQL database and one directory
// for large messages. Its customer has a verified domain with two mailboxes; mail to outside
// domains goes to the sink.
type fixture struct {
	*testing.T
	a, b *service
	sink *sink
	url  string   // database URL
	args []string // flags of each node
}

// lease is the nodes' lease duration: short, so that a test doesn't wait long for the other node to
// take over.
const lease = "3s"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	h := &fixture{T: t, sink: startSink(t), url: dbtest.Postgres(t)}
	resolver, zone := dnstest.Start(t, "mx.outside.example. A "+sinkAddr,
		"mail.service.example. A 127.0.0.1", `spf.mail.service.example. TXT "v=spf1 ip4:127.0.0.1 -all"`)
	zone.Add("elsewhere.example.net. MX 10 mx.outside.example.")
	for i := range outsides {
		zone.Add(outside(i) + ". MX 10 mx.outside.example.")
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	h.args = []string{
		"--host", "mail.service.example", "--resolver", resolver, "--smtp-port", h.sink.port, "--allow-private", "127.0.0.0/8",
		"--blobs", t.TempDir(), "--secret-key", hex.EncodeToString(key), "--lease", lease, "--scram", "on",
	}
	h.a = h.node("a")
	h.a.Start()
	h.b = h.node("b")
	h.b.Start()
	h.furnish(zone)
	return h
}

// outsides is the number of outside domains, and of concurrent deliveries: it is the limit for
// connections to their host.
const outsides = 10

func outside(i int) string { return fmt.Sprintf("outside%d.example", i) }

// node creates a node, which isn't running yet.
func (h *fixture) node(name string) *service {
	s := newService(h.T, h.T.TempDir(), h.url)
	s.ServeFlags = append([]string{"--node", name}, h.args...)
	return s
}

// furnish creates the customer.
func (h *fixture) furnish(zone *dnstest.Zone) {
	h.Helper()
	out, err := exec.CommandContext(h.Context(), binary, "account", "create", "--email", "owner@example.org",
		"--data", h.a.Data, "--database", h.url).CombinedOutput()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 5 {
		h.Fatalf("%v: %s", err, out)
	}
	h.a.Dev.APIKey = words[4]
	c, ctx := h.a.Client(), h.Context()
	d, err := c.CreateDomain(ctx, "demo.example")
	h.must(err)
	for _, r := range d.Records {
		zone.Publish(r.Type, r.Name, r.Value, r.Priority)
	}
	_, err = c.VerifyDomain(ctx, d.ID)
	h.must(err)
	d, err = c.VerifyDomainDNS(ctx, d.ID)
	h.must(err)
	if d.Status != "verified" {
		h.Fatalf("the domain is %s: %+v", d.Status, d.Records)
	}
	var boxes []map[string]string
	for _, name := range []string{"alice", "bob"} {
		box, err := c.CreateMailbox(ctx, client.NewMailbox{DomainID: d.ID, LocalPart: name, QuotaMB: 100_000})
		h.must(err)
		boxes = append(boxes, map[string]string{"id": box.ID, "address": box.Address, "password": box.Password})
	}
	known, err := json.Marshal(map[string]any{"api_key": words[4], "mailboxes": boxes})
	h.must(err)
	for _, s := range []*service{h.a, h.b} {
		h.must(json.Unmarshal(known, &s.Dev))
	}
}

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// next receives a value that must arrive.
func next[T any](h *fixture, from <-chan T) (v T) {
	h.Helper()
	select {
	case v = <-from:
	case <-time.After(servertest.Timeout):
		h.Fatalf("nothing came within %v", servertest.Timeout)
	}
	return v
}

// send sends a message by a node's API as alice, and returns its id.
func (h *fixture) send(s *service, subject string, to ...string) string {
	h.Helper()
	m, err := s.Client().Send(h.Context(), &client.Send{
		FromEmail: s.Dev.Mailboxes[0].Address, To: to, Subject: subject, Text: "This is " + subject + ".",
	})
	h.must(err)
	return m.ID
}

// dialIMAP opens an IMAP session.
func (s *service) dialIMAP(o *imapclient.Options) *imapclient.Client {
	s.t.Helper()
	if o == nil {
		o = &imapclient.Options{}
	}
	o.TLSConfig = s.TLS()
	c, err := imapclient.DialTLS(s.Addr("imaps"), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// imap opens an IMAP session for mailbox i: 0 is alice's, 1 bob's.
func (s *service) imap(i int, o *imapclient.Options) *imapclient.Client {
	s.t.Helper()
	c := s.dialIMAP(o)
	if err := c.Login(s.Dev.Mailboxes[i].Address, s.Dev.Mailboxes[i].Password).Wait(); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// text returns a message for APPEND and SMTP.
func text(subject string) string {
	return strings.ReplaceAll(fmt.Sprintf("From: <someone@elsewhere.example.net>\nTo: <alice@demo.example>\nSubject: %s\n"+
		"Date: Thu, 01 Jan 2026 12:00:00 +0000\nMessage-ID: <%s@test.example.net>\n\nThis is %s.\n", subject, subject, subject), "\n", "\r\n")
}
