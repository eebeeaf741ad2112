// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/signal"
)

const nobody = "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21" // an id of nothing

// house is a running service and a customer of it.
type house struct {
	*testing.T
	s      *servertest.Server
	c      *client.Client
	domain string // verified
	boxes  []string
	wake   *signal.Sub
}

// Every operation, by the client alone, on both engines.
func TestService(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		c, p, _ := to(t, s, s.Dev.APIKey)
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		h := &house{T: t, s: s, c: c, domain: s.Dev.Domain.ID.String(), wake: s.Hub.Subscribe(signal.Key{Kind: signal.Stream, ID: int64(acc.ID)})}
		defer h.wake.Close()
		for _, m := range s.Dev.Mailboxes {
			h.boxes = append(h.boxes, m.ID.String())
		}
		h.domains()
		h.mailboxes()
		h.aliases()
		h.logins()
		h.vacations()
		h.keys()
		h.sending()
		h.batches()
		h.scheduling()
		h.suppressions()
		h.templates()
		h.threads()
		h.mail()
		h.sandbox()
		h.events()
		h.stats()
		h.limits()
		h.operator(p)
		h.webhooks()
		h.migrations()
		h.transfers()
		covered(t, s, p)
	})
}

// want fails the test on an error.
func (h *house) want(what string, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
}

// collect walks through a list, which has no errors.
func collect[T any](h *house, all iter.Seq2[T, error]) (list []T) {
	h.Helper()
	for item, err := range all {
		h.want("walking", err)
		list = append(list, item)
	}
	return list
}

// await asks for a message until f says that it is as it should be.
func (h *house) await(id string, f func(m *client.Message) bool) *client.Message {
	h.Helper()
	for {
		m, err := h.c.GetMessage(h.Context(), id)
		h.want("showing a message", err)
		if f(m) {
			return m
		}
		select {
		case <-h.wake.C:
		case <-h.Context().Done():
			h.Fatalf("it stays %s", raw(h.T, m))
		}
	}
}

func settled(m *client.Message) bool { return m.Status.Final() }

func (h *house) domains() {
	h.Helper()
	ctx := h.Context()
	d, err := h.c.CreateDomain(ctx, "Bücher.test")
	h.want("adding a domain", err)
	if d.Name != "xn--bcher-kva.test" || d.DisplayName != "bücher.test" || d.Status != "pending" || len(d.Records) < 5 || d.CreatedAt.IsZero() || d.VerifiedAt != nil {
		h.Errorf("added %+v", d)
	}
	_, err = h.c.CreateDomain(ctx, "bücher.test")
	refused(h, "again", err, 409, "domain_exists")
	if !errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrNotFound) || !client.HasCode(err, "x", "domain_exists") || client.HasCode(err, "x") {
		h.Errorf("its kind: %v", err)
	}
	_, err = h.c.CreateDomain(ctx, "co.uk")
	refused(h, "a public suffix", err, 422, "validation_failed", "name public_suffix")

	o, err := h.c.GetDomainVerification(ctx, d.ID)
	h.want("showing the ownership", err)
	if o.OwnershipStatus != "pending" || o.Record.Kind != "OWNERSHIP" || o.ID != d.ID {
		h.Errorf("the ownership is %+v", o)
	}
	if d, err = h.c.VerifyDomain(ctx, d.ID); err != nil || d.OwnershipStatus != "verified" || d.Status != "pending" {
		h.Errorf("verified: %+v, %v", d, err)
	}
	if d, err = h.c.VerifyDomainDNS(ctx, d.ID); err != nil || d.Status != "verified" || d.VerifiedAt == nil || d.LastCheckedAt == nil {
		h.Errorf("verified: %+v, %v", d, err)
	}
	zone, err := h.c.GetDomainZone(ctx, d.ID)
	if err != nil || !strings.Contains(zone, "v=DMARC1; p=none") {
		h.Errorf("the zone is %s, %v", zone, err)
	}
	h.dkim(d.ID)
	if d, err = h.c.GetDomain(ctx, d.ID); err != nil || d.RotationDays != 90 {
		h.Errorf("shown as %+v, %v", d, err)
	}
	shown, err := h.c.GetDomain(ctx, d.ID)
	if err != nil || raw(h.T, shown) != raw(h.T, d) {
		h.Errorf("shown as %+v, %v", shown, err)
	}
	if all := collect(h, h.c.Domains(ctx)); len(all) != 2 || all[0].ID != d.ID || all[1].ID != h.domain {
		h.Errorf("the domains are %+v", all)
	}
	page, err := h.c.ListDomains(ctx, client.Paging{Limit: 1})
	h.want("a page", err)
	rest, err := h.c.ListDomains(ctx, client.Paging{Limit: 1, After: page.NextCursor})
	if err != nil || !page.HasMore || rest.HasMore || len(rest.Data) != 1 || rest.Data[0].ID != h.domain {
		h.Errorf("the second page is %+v, %v", rest, err)
	}
	back, err := h.c.ListDomains(ctx, client.Paging{Before: rest.Data[0].ID})
	if err != nil || len(back.Data) != 1 || back.Data[0].ID != d.ID {
		h.Errorf("the page before is %+v, %v", back, err)
	}
	_, err = h.c.ListDomains(ctx, client.Paging{Limit: 1000, After: "x"})
	refused(h, "a bad page", err, 422, "validation_failed", "limit out_of_range")
	refused(h, "deleting one with mailboxes", h.c.DeleteDomain(ctx, h.domain), 409, "domain_has_mailboxes")
	h.want("deleting", h.c.DeleteDomain(ctx, d.ID))
	_, err = h.c.GetDomain(ctx, d.ID)
	refused(h, "when gone", err, 404, "not_found")
}

func (h *house) dkim(domain string) {
	h.Helper()
	ctx := h.Context()
	made, err := h.c.RotateDKIM(ctx, domain, "ed25519")
	if err != nil || len(made) != 1 || made[0].State != "pending" || made[0].Record.Note == "" || made[0].ActiveAt != nil {
		h.Fatalf("made %+v, %v", made, err)
	}
	_, err = h.c.RotateDKIM(ctx, domain, "ed25519")
	refused(h, "rotating twice", err, 409, "key_pending")
	_, err = h.c.AddDKIMKey(ctx, domain, client.NewDKIMKey{Selector: "-", PrivateKey: "secret"})
	refused(h, "no key", err, 422, "validation_failed", "selector invalid_selector", "private_key invalid_key")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	h.want("making a key", err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	h.want("writing a key", err)
	own, err := h.c.AddDKIMKey(ctx, domain, client.NewDKIMKey{Selector: "own", PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil || own.Origin != "own" || own.Algorithm != "rsa" {
		h.Fatalf("brought %+v, %v", own, err)
	}
	_, err = h.c.VerifyDomainDNS(ctx, domain)
	h.want("looking", err)
	retiring := 0
	for _, k := range collect(h, h.c.DKIMKeys(ctx, domain)) {
		if k.State == "retiring" && k.KeepUntil != nil {
			retiring++
			h.want("deleting", h.c.DeleteDKIMKey(ctx, domain, k.ID))
		}
	}
	if page, err := h.c.ListDKIMKeys(ctx, domain, client.Paging{}); retiring != 2 || err != nil || len(page.Data) != 2 || page.Data[0].ActiveAt == nil {
		h.Errorf("the keys are %+v, %v", page, err)
	}
	if err := h.c.DeleteDKIMKey(ctx, domain, ""); err == nil {
		h.Error("no id is an id")
	}
	if d, err := h.c.UpdateDomain(ctx, domain, client.DomainChange{DKIMRotationDays: new(90), Enforcement: new("junk")}); err != nil || d.RotationDays != 90 || d.Enforcement != "junk" {
		h.Errorf("changed to %+v, %v", d, err)
	}
}

func (h *house) mailboxes() {
	h.Helper()
	ctx := h.Context()
	_, err := h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: nobody, LocalPart: "x", Password: "weak", QuotaMB: -1})
	refused(h, "all wrong", err, 422, "validation_failed", "domain_id not_found", "password too_short", "password missing_uppercase", "password missing_digit",
		"password missing_special", "quota_mb out_of_range")
	m, err := h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: h.domain, LocalPart: "carol", DisplayName: "<Carol>", QuotaMB: 5})
	h.want("making", err)
	if m.Password == "" || m.Address != "carol@demo.test" || m.DisplayName != "<Carol>" || m.QuotaMB != 5 || m.Status != "active" || m.DomainID != h.domain {
		h.Errorf("made %+v", m)
	}
	if m, err = h.c.GetMailbox(ctx, m.ID); err != nil || m.Password != "" || m.LocalPart != "carol" {
		h.Errorf("shown as %+v, %v", m, err)
	}
	if m, err = h.c.UpdateMailbox(ctx, m.ID, client.MailboxChange{DisplayName: new(""), Status: new("suspended")}); err != nil ||
		m.DisplayName != "" || m.Status != "suspended" || m.QuotaMB != 5 {
		h.Errorf("changed to %+v, %v", m, err)
	}
	_, err = h.c.UpdateMailbox(ctx, m.ID, client.MailboxChange{QuotaMB: new(0), Status: new("asleep")})
	refused(h, "wrong changes", err, 422, "validation_failed", "quota_mb out_of_range", "status unknown_status")
	if got, err := h.c.SetMailboxPassword(ctx, m.ID, ""); err != nil || len(got) < 8 {
		h.Errorf("generated %q, %v", got, err)
	}
	if got, err := h.c.SetMailboxPassword(ctx, m.ID, "C0rrect<horse>"); err != nil || got != "" {
		h.Errorf("answered %q, %v", got, err)
	}
	_, err = h.c.SetMailboxPassword(ctx, m.ID, "short")
	refused(h, "a weak password", err, 422, "validation_failed", "password too_short", "password missing_uppercase", "password missing_digit", "password missing_special")
	if all := collect(h, h.c.Mailboxes(ctx, client.MailboxFilter{DomainID: h.domain})); len(all) != 3 || all[0].ID != m.ID {
		h.Errorf("the mailboxes are %+v", all)
	}
	if check, err := h.c.CheckClientSetup(ctx, m.ID); err != nil || !check.OK || len(check.Doors) != 4 || len(check.Doors[0].Steps) != 3 || check.Doors[0].Port == 0 {
		h.Errorf("%+v %v", check, err)
	}
	if setup, err := h.c.GetClientSetup(ctx, m.ID); err != nil || setup.Username != m.Address || len(setup.IMAP) != 2 || setup.IMAP[0].Security != "tls" || len(setup.SMTP) != 2 || setup.SMTP[1].Security != "starttls" {
		h.Errorf("set up %+v, %v", setup, err)
	}
	if profile, err := h.c.CreateAppleProfile(ctx, m.ID, "Phone"); err != nil || !bytes.Contains(profile, []byte("IncomingPassword")) {
		h.Errorf("the profile with a password: %v\n%s", err, profile)
	}
	if profile, err := h.c.GetAppleProfile(ctx, m.ID); err != nil || !bytes.Contains(profile, []byte(m.Address)) {
		h.Errorf("a profile %s, %v", profile, err)
	}
	h.want("deleting", h.c.DeleteMailbox(ctx, m.ID))
	page, err := h.c.ListMailboxes(ctx, client.MailboxFilter{Deleted: true}, client.Paging{})
	if err != nil || len(page.Data) != 1 || page.Data[0].DeletedAt == nil {
		h.Errorf("the deleted ones are %+v, %v", page, err)
	}
	if m, err = h.c.RestoreMailbox(ctx, m.ID); err != nil || m.DeletedAt != nil {
		h.Errorf("restored %+v, %v", m, err)
	}
	_, err = h.c.RestoreMailbox(ctx, m.ID)
	refused(h, "restoring one that lives", err, 409, "not_deleted")
}

func (h *house) keys() {
	h.Helper()
	ctx := h.Context()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	k, err := h.c.CreateAPIKey(ctx, client.NewAPIKey{Name: "reader", Scopes: []string{"domains.read"}, Domain: "demo.test", AllowedIPs: []string{"127.0.0.1"}, ExpiresAt: &end})
	h.want("making a key", err)
	if !strings.HasPrefix(k.Key, k.Hint) || k.Domain != "demo.test" || !k.ExpiresAt.Equal(end) || fmt.Sprint(k.Scopes, k.AllowedIPs) != "[domains.read] [127.0.0.1/32]" {
		h.Errorf("made %+v", k)
	}
	_, err = h.c.CreateAPIKey(ctx, client.NewAPIKey{Scopes: []string{"x"}})
	refused(h, "a key without a name", err, 422, "validation_failed", "name invalid_name", "scopes[0] unknown_scope")
	reader, _, _ := to(h.T, h.s, k.Key)
	_, err = reader.GetDomain(ctx, h.domain)
	h.want("reading with it", err)
	_, err = reader.ListAPIKeys(ctx, client.Paging{})
	refused(h, "what it may not", err, 403, "missing_scope")
	if !errors.Is(err, client.ErrDenied) {
		h.Errorf("its kind: %v", err)
	}
	if all := collect(h, h.c.APIKeys(ctx)); len(all) != 2 || all[0].ID != k.ID || all[0].Key != "" {
		h.Errorf("the keys are %+v", all)
	}
	h.want("deleting", h.c.DeleteAPIKey(ctx, k.ID))
	_, err = reader.GetDomain(ctx, h.domain)
	refused(h, "the key when gone", err, 401, "invalid_api_key")
	if !errors.Is(err, client.ErrUnknownKey) {
		h.Errorf("its kind: %v", err)
	}
}

func (h *house) sending() {
	h.Helper()
	ctx := h.Context()
	const metadata = `{"n":12345678901234567890,"s":"<b>"}`
	a, err := h.c.Send(ctx, &client.Send{
		FromEmail: "alice@demo.test", FromName: "Alice", To: []string{"Bob <bob@demo.test>"}, Cc: []string{"delivered@simulator.test"}, Bcc: []string{"alice@demo.test"},
		ReplyTo: "support@demo.test", Subject: "<Grüße>", Text: "Hello", HTML: "<p>Hello</p>", Headers: map[string]string{"X-Order": "42"},
		Metadata: json.RawMessage(metadata), ThreadID: "order-42", InReplyTo: "<a@demo.test>",
		Attachments: []client.Attachment{client.File("body.go"), client.Bytes("empty", nil),
			{Filename: "x", ContentType: "image/png", ContentID: "logo", Disposition: "inline", Content: strings.NewReader("png")}},
	})
	h.want("sending", err)
	if a.Status != client.Queued || a.ThreadID != "order-42" || string(a.Metadata) != metadata || len(a.Recipients) != 3 || a.Recipients[2].Type != "bcc" ||
		a.MessageID != "<"+a.ID+"@demo.test>" || a.Replayed || a.SendAt != nil {
		h.Errorf("accepted %+v", a)
	}
	m := h.await(a.ID, settled)
	if m.Status != client.Delivered || m.Subject != "<Grüße>" || string(m.Metadata) != metadata || m.ThreadID != "order-42" || m.MailboxID != "" ||
		len(m.Recipients) != 3 || len(m.Recipients[0].Timeline) != 1 || m.Recipients[0].Timeline[0].Outcome != client.Delivered || m.Size < 1000 {
		h.Errorf("shown as %s", raw(h.T, m))
	}
	if all := collect(h, h.c.Messages(ctx, client.MessageFilter{})); len(all) != 1 || all[0].ID != a.ID || all[0].Recipients[0].Timeline != nil {
		h.Errorf("the messages are %+v", all)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "x@elsewhere.example", To: []string{"bob@demo.test"}, Subject: "x", Text: "x"})
	refused(h, "a foreign sender", err, 403, "sender_not_allowed")
	_, err = h.c.GetMessage(ctx, nobody)
	refused(h, "no message", err, 404, "not_found")
}

func (h *house) events() {
	h.Helper()
	ctx := h.Context()
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bounced@simulator.test"}, Subject: "x", Text: "x", Metadata: map[string]int{"order": 7}})
	h.want("sending", err)
	if m := h.await(a.ID, settled); m.Status != client.Bounced {
		h.Fatalf("the simulator does not bounce: %s", raw(h.T, m))
	}
	f := client.EventFilter{Types: []string{"bounce", "delivery_status"}, MessageID: a.ID}
	var all []client.Event
	for all = collect(h, h.c.Events(ctx, f)); len(all) < 2; all = collect(h, h.c.Events(ctx, f)) {
		<-h.wake.C
	}
	kinds := map[string]bool{}
	for _, e := range all {
		kinds[e.Type] = true
		var d client.MessageData
		if e.Type == "bounce" {
			var b client.BounceData
			h.want("a bounce", e.Decode(&b))
			if d = b.MessageData; b.Type != "Permanent" || b.Category != "recipient" || b.SMTPCode != 550 || b.EnhancedCode != "5.1.1" {
				h.Errorf("the bounce is %s", e.Data)
			}
		} else {
			var s client.StatusData
			h.want("a status", e.Decode(&s))
			if d = s.MessageData; s.Status != client.Bounced || s.Attempts != 1 {
				h.Errorf("the status is %s", e.Data)
			}
		}
		if d.ID != a.ID || d.MessageID != a.MessageID || d.Recipient != "bounced@simulator.test" || string(d.Metadata) != `{"order":7}` {
			h.Errorf("the event is %s", e.Data)
		}
	}
	if len(kinds) != 2 {
		h.Errorf("the events are %+v", all)
	}
	for e, err := range h.c.StreamEvents(ctx, f, "0") {
		if err != nil || e.ID != all[len(all)-1].ID || e.Cursor == "" || !bytes.Contains(e.Body, []byte(e.ID)) {
			h.Errorf("the stream begins with %+v, %v", e, err)
		}
		break
	}
	for e, err := range h.c.StreamEvents(ctx, client.EventFilter{Types: []string{"all"}}, "") {
		refused(h, "a wrong stream", err, 422, "validation_failed", "type unknown_type")
		if e.ID != "" {
			h.Errorf("and %+v", e)
		}
	}
	_, err = h.c.ListEvents(ctx, client.EventFilter{Types: []string{"all"}, MessageID: "x"}, client.Paging{})
	refused(h, "a bad filter", err, 422, "validation_failed", "type unknown_type", "message invalid_id")
}

// stats looks after events: what they told is counted.
func (h *house) stats() {
	h.Helper()
	to := time.Now()
	got, err := h.c.GetStats(h.Context(), client.StatsQuery{By: client.ByHour, From: to.Add(-2 * time.Hour), To: to, DomainID: h.domain})
	h.want("figures", err)
	if n := len(got.Data); n < 2 || n > 3 || got.By != client.ByHour || !got.Data[0].Period.Equal(got.From) || got.Totals.Bounced == 0 || got.Totals.BounceRate == nil {
		h.Errorf("the figures are %+v", got)
	}
	_, err = h.c.GetStats(h.Context(), client.StatsQuery{By: "year"})
	refused(h, "a bad period", err, 422, "validation_failed", "by unknown_period")
}

func (h *house) batches() {
	h.Helper()
	ctx := h.Context()
	one := func(to string) client.Send {
		return client.Send{FromEmail: "alice@demo.test", To: []string{to}, Subject: "Batch", Text: "x", Attachments: []client.Attachment{client.Bytes("a.txt", []byte("a"))}}
	}
	b := &client.Batch{Messages: []client.Send{one("delivered@simulator.test"), one("bob@demo.test")}, IdempotencyKey: "batch-1"}
	got, err := h.c.SendBatch(ctx, b)
	h.want("a batch", err)
	if len(got.Data) != 2 || got.Data[0].Accepted == nil || got.Data[1].Accepted.Recipients[0].Email != "bob@demo.test" || got.Replayed {
		h.Errorf("answered %+v", got)
	}
	again, err := h.c.SendBatch(ctx, b)
	if err != nil || !again.Replayed || again.Data[1].Accepted.ID != got.Data[1].Accepted.ID {
		h.Errorf("again %+v, %v", again, err)
	}
	b.Messages[0].To = []string{"x"}
	_, err = h.c.SendBatch(ctx, b)
	refused(h, "another under the same key", err, 422, "idempotency_key_reused")
	b.IdempotencyKey = ""
	_, err = h.c.SendBatch(ctx, b)
	refused(h, "half a batch", err, 422, "validation_failed", "messages[0].to[0] invalid_address")
	b.Partial = true
	got, err = h.c.SendBatch(ctx, b)
	h.want("what can be accepted", err)
	if got.Data[0].Problem == nil || got.Data[0].Accepted != nil || got.Data[1].Accepted == nil || got.Data[1].Problem != nil {
		h.Fatalf("answered %+v", got)
	}
	refused(h, "the message", got.Data[0].Problem, 422, "validation_failed", "to[0] invalid_address")
	b.Messages[0].IdempotencyKey = "x"
	if _, err := h.c.SendBatch(ctx, b); err == nil {
		h.Error("a message of a batch may have a key")
	}
	_, err = h.c.SendBatch(ctx, &client.Batch{})
	refused(h, "no messages", err, 422, "validation_failed", "messages required")
}

func (h *house) scheduling() {
	h.Helper()
	ctx := h.Context()
	at := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Subject: "Later", Text: "x", SendAt: at})
	h.want("scheduling", err)
	if a.Status != client.Scheduled || a.SendAt == nil || !a.SendAt.Equal(at) {
		h.Errorf("accepted %+v", a)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Subject: "Later", Text: "x", SendAt: at.AddDate(0, 0, 31)})
	refused(h, "in a month", err, 422, "validation_failed", "send_at too_far_ahead")
	m, err := h.c.RescheduleMessage(ctx, a.ID, at.Add(time.Hour))
	if err != nil || m.SendAt == nil || !m.SendAt.Equal(at.Add(time.Hour)) {
		h.Errorf("moved to %+v, %v", m, err)
	}
	if m, err = h.c.CancelMessage(ctx, a.ID); err != nil || m.Status != client.Cancelled {
		h.Errorf("cancelled: %+v, %v", m, err)
	}
	_, err = h.c.CancelMessage(ctx, a.ID)
	refused(h, "again", err, 409, "not_cancellable")
	_, err = h.c.RescheduleMessage(ctx, a.ID, at)
	refused(h, "moving it", err, 409, "not_scheduled")
	_, err = h.c.RetryMessage(ctx, a.ID)
	refused(h, "retrying it", err, 409, "not_retryable")

	a, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"deferred@simulator.test"}, Subject: "Twice", Text: "x"})
	h.want("sending", err)
	h.await(a.ID, func(m *client.Message) bool { return m.Status == client.Deferred })
	_, err = h.c.RetryMessage(ctx, a.ID)
	h.want("retrying", err)
	if m = h.await(a.ID, settled); m.Status != client.Delivered || m.Recipients[0].Attempts != 2 {
		h.Errorf("retried: %s", raw(h.T, m))
	}
}

func (h *house) suppressions() {
	h.Helper()
	ctx := h.Context()
	e, err := h.c.AddSuppression(ctx, "Gone@Example.org", "")
	h.want("adding", err)
	if e.Address != "gone@example.org" || e.Reason != client.Manual || e.SourceMessageID != "" || e.Simulated {
		h.Errorf("added %+v", e)
	}
	_, err = h.c.AddSuppression(ctx, "x", "because")
	refused(h, "no address", err, 422, "validation_failed", "reason unknown_reason", "address invalid_address")
	many, err := h.c.AddSuppressions(ctx, []string{"gone@example.org", "left@example.org"}, client.Unsubscribed)
	if err != nil || len(many) != 2 || many[1].Reason != client.Unsubscribed {
		h.Errorf("added %+v, %v", many, err)
	}
	if got, err := h.c.GetSuppression(ctx, "gone@example.org"); err != nil || got.ID != e.ID {
		h.Errorf("shown as %+v, %v", got, err)
	}
	file := strings.NewReader("email,reason\nimported@example.org,bounce\nnonsense,bounce\n")
	in, err := h.c.ImportSuppressions(ctx, file, client.Complaint)
	if err != nil || in.Added != 1 || in.Rejected != 1 || len(in.Errors) != 1 || in.Errors[0].Line != 3 {
		h.Errorf("imported %+v, %v", in, err)
	}
	in, err = h.c.ImportSuppressions(ctx, file, "") // which stands at its start again
	if err != nil || in.Added != 0 || in.Existing != 1 {
		h.Errorf("imported once more: %+v, %v", in, err)
	}
	_, err = h.c.ImportSuppressions(ctx, file, "because")
	refused(h, "an unknown reason", err, 422, "validation_failed", "reason unknown_reason")
	var out strings.Builder
	h.want("exporting", h.c.ExportSuppressions(ctx, &out))
	if !strings.Contains(out.String(), "imported@example.org") || !strings.Contains(out.String(), "left@example.org") {
		h.Errorf("exported %s", out.String())
	}
	if all := collect(h, h.c.Suppressions(ctx, client.SuppressionFilter{Reason: client.Bounce, Address: "imported@example.org"})); len(all) != 1 {
		h.Errorf("found %+v", all)
	}
	a, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"gone@example.org"}, Subject: "x", Text: "x"})
	if err != nil || a.Status != client.Suppressed || a.Recipients[0].Reason != "manual" {
		h.Errorf("sent as %+v, %v", a, err)
	}
	a, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"x@simulator.test"}, Subject: "x", Text: "x", Unsubscribe: &client.Unsubscribe{}})
	if err != nil || a.Status != client.Queued {
		h.Errorf("sent as %+v, %v", a, err)
	}
	_, err = h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"x@simulator.test"}, Subject: "x", Text: "x",
		Unsubscribe: &client.Unsubscribe{URL: "http://example.com", Mailto: "x"}})
	refused(h, "a bad link", err, 422, "validation_failed", "unsubscribe.url invalid_url", "unsubscribe.mailto invalid_address")
	h.want("deleting", h.c.DeleteSuppression(ctx, e.ID))
	_, err = h.c.GetSuppression(ctx, e.ID)
	refused(h, "when gone", err, 404, "not_found")
}

func (h *house) threads() {
	h.Helper()
	ctx := h.Context()
	const id = "a/b?c#d%20ü"
	first, err := h.c.Send(ctx, &client.Send{FromEmail: "alice@demo.test", To: []string{"bob@demo.test"}, Cc: []string{"c@simulator.test"}, Subject: "x", Text: "x", ThreadID: id})
	h.want("sending", err)
	h.await(first.ID, settled)
	second, err := h.c.Send(ctx, &client.Send{FromEmail: "bob@demo.test", To: []string{"d@simulator.test"}, Subject: "Re: x", Text: "x", InReplyTo: first.MessageID})
	h.want("answering", err)
	if second.ThreadID != id {
		h.Errorf("the answer is in %q", second.ThreadID)
	}
	all := collect(h, h.c.ThreadMessages(ctx, id))
	if len(all) != 3 || all[0].ID != first.ID || all[0].Direction != "outbound" || all[1].Direction != "inbound" || all[1].MailboxID != h.boxes[1] || all[1].Status != "" ||
		all[2].ID != second.ID || len(all[0].Cc) != 1 || all[0].Size == 0 {
		h.Errorf("the thread is %s", raw(h.T, all))
	}
	page, err := h.c.GetThread(ctx, id, client.Paging{Limit: 1})
	if err != nil || page.ID != id || !page.HasMore || len(page.Messages) != 1 {
		h.Errorf("a page of it is %+v, %v", page, err)
	}
	page, err = h.c.GetThread(ctx, id, client.Paging{After: page.NextCursor})
	if err != nil || page.HasMore || len(page.Messages) != 2 || page.NextCursor != "" {
		h.Errorf("the next is %+v, %v", page, err)
	}
	_, err = h.c.GetThread(ctx, "nothing", client.Paging{})
	refused(h, "no thread", err, 404, "not_found")
}

func (h *house) templates() {
	h.Helper()
	ctx := h.Context()
	made, err := h.c.CreateTemplate(ctx, client.NewTemplate{Name: "Welcome", Alias: "welcome", TemplateContent: client.TemplateContent{
		Subject: "Welcome {{name}}", HTML: "<p>Hi {{name}}</p>",
		Variables: []client.TemplateVariable{{Key: "name", Type: "string", Required: true}, {Key: "n", Type: "number", Fallback: 1}},
	}})
	h.want("making a template", err)
	if made.Version != 1 || made.PublishedVersion != 1 || len(made.Variables) != 2 || made.Variables[1].Fallback != 1.0 {
		h.Errorf("made %+v", made)
	}
	_, err = h.c.CreateTemplate(ctx, client.NewTemplate{Name: "x", TemplateContent: client.TemplateContent{Subject: "{{", Text: "x"}})
	refused(h, "a broken template", err, 422, "validation_failed", "subject invalid_template")
	if got, err := h.c.GetTemplate(ctx, "welcome"); err != nil || got.ID != made.ID {
		h.Errorf("by alias: %+v, %v", got, err)
	}
	text, no := "Hello {{name}}", false
	changed, err := h.c.UpdateTemplate(ctx, made.ID, client.TemplateChange{Text: &text, Publish: &no})
	if err != nil || changed.Version != 2 || changed.PublishedVersion != 1 || changed.Text != text {
		h.Errorf("changed to %+v, %v", changed, err)
	}
	if got, err := h.c.PublishTemplate(ctx, made.ID, 2); err != nil || got.PublishedVersion != 2 {
		h.Errorf("published: %+v, %v", got, err)
	}
	if got, err := h.c.ListTemplateVersions(ctx, made.ID, client.Paging{Limit: 1}); err != nil || len(got.Data) != 1 || got.Data[0].Version != 2 || got.NextCursor != "2" {
		h.Errorf("versions: %+v, %v", got, err)
	}
	if all := collect(h, h.c.TemplateVersions(ctx, made.ID)); len(all) != 2 || all[1].Version != 1 {
		h.Errorf("all versions: %+v", all)
	}
	if got, err := h.c.GetTemplateVersion(ctx, made.ID, 1); err != nil || got.Version != 1 || got.Text != "" {
		h.Errorf("the first version: %+v, %v", got, err)
	}
	r, err := h.c.RenderTemplate(ctx, made.ID, 1, map[string]any{"name": "Ann", "other": 1})
	if err != nil || r.Subject != "Welcome Ann" || r.Text != "Hi Ann" || len(r.Missing) != 0 || len(r.Unused) != 1 {
		h.Errorf("rendered %+v, %v", r, err)
	}
	send := &client.TemplateSend{FromEmail: "desk@demo.test", To: []string{"bob@demo.test"}, TemplateID: made.ID, Variables: map[string]string{"name": "Bob"}}
	sent, err := h.c.SendTemplate(ctx, send)
	h.want("sending a template", err)
	if m, err := h.c.GetMessage(ctx, sent.ID); err != nil || m.Subject != "Welcome Bob" || m.TemplateID != made.ID || m.TemplateVersion != 2 {
		h.Errorf("sent %+v, %v", m, err)
	}
	send.Variables = nil
	_, err = h.c.SendTemplate(ctx, send)
	refused(h, "a missing variable", err, 422, "validation_failed", "variables.name missing_variable")
	double, err := h.c.DuplicateTemplate(ctx, made.ID, "")
	if err != nil || double.Name != "Copy of Welcome" || double.Alias != "" || double.Text != text {
		h.Errorf("a copy: %+v, %v", double, err)
	}
	count := 0
	for got, err := range h.c.Templates(ctx) {
		if err != nil || got.Subject != "" {
			h.Errorf("in the list: %+v, %v", got, err)
		}
		count++
	}
	if count != 2 {
		h.Errorf("%d templates", count)
	}
	h.want("deleting", h.c.DeleteTemplate(ctx, double.ID))
}
