// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The whole API once; each request and response must match the document.
func TestDocument(t *testing.T) {
	s := servertest.Start(t)
	doc, routes := describe(t, s)
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, media := range []string{"text/dns", "text/csv", "message/rfc822", "application/octet-stream", "text/event-stream", "application/x-apple-aspen-config", "application/mbox", "application/x-ndjson", "application/x-tar"} {
		former := openapi3filter.RegisteredBodyDecoder(media)
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.PlainBodyDecoder)
		defer func() {
			openapi3filter.UnregisterBodyDecoder(media)
			if former != nil {
				openapi3filter.RegisterBodyDecoder(media, former)
			}
		}()
	}
	c := &checked{t, s, s.Dev.APIKey, router, map[string]bool{}}
	shop := c.domains()
	box := c.mailboxes(shop)
	c.addresses()
	c.migrations(box, shop)
	sent := c.sending()
	c.events(sent, shop)
	c.laterAndTogether()
	c.templates()
	c.suppressions()
	c.transfers()
	c.webhooks()
	c.mail()
	c.keys()
	c.call("DELETE", "/mailboxes/"+box, nil, 204)
	c.operator(sent)
	other := c.id("POST", "/domains", map[string]any{"name": "other.test"}, 201)
	c.call("DELETE", "/domains/"+other, nil, 204)
	for _, r := range routes {
		if !c.seen[r.id] {
			t.Errorf("%s (%s %s) is not tried here", r.id, r.method, r.path)
		}
	}
}

// domains creates a domain and returns its id.
func (c *checked) domains() (shop string) {
	c.t.Helper()
	type m = map[string]any
	shop = c.id("POST", "/domains", m{"name": "shop.test"}, 201)
	c.call("POST", "/domains", m{"name": "shop.test"}, 409)
	c.call("POST", "/domains", m{"name": "com"}, 422)
	c.call("GET", "/domains?limit=1", nil, 200)
	c.call("GET", "/domains/"+shop, nil, 200)
	c.call("GET", "/domains/"+shop+"/verify", nil, 200)
	c.call("POST", "/domains/"+shop+"/verify", nil, 200)
	c.call("POST", "/domains/"+shop+"/verify-dns", nil, 200)
	c.call("GET", "/domains/"+shop+"/zone", nil, 200)
	c.call("PATCH", "/domains/"+shop, m{"dkim_rotation_days": 90}, 200)
	c.call("PATCH", "/domains/"+shop, m{"dkim_rotation_days": 1}, 422)
	c.call("PATCH", "/domains/"+shop, m{"dmarc_enforcement": "off"}, 200)
	c.call("PATCH", "/domains/"+shop, m{"dmarc_enforcement": "maybe"}, 422)
	c.call("PATCH", "/domains/"+shop, m{"spam_filtering": "off", "mta_sts": "none"}, 200)
	c.call("PATCH", "/domains/"+shop, m{"spam_filtering": "maybe", "mta_sts": "maybe"}, 422)
	c.call("POST", "/domains/"+shop+"/dkim/rotate", nil, 200)
	c.call("POST", "/domains/"+shop+"/dkim/rotate", m{"algorithm": "rsa"}, 409)
	c.call("POST", "/domains/"+shop+"/verify-dns", nil, 200)
	own := c.id("POST", "/domains/"+shop+"/dkim", m{"selector": "own", "private_key": ownKey}, 201)
	c.call("POST", "/domains/"+shop+"/dkim", m{"selector": "own", "private_key": ownKey}, 409)
	c.call("GET", "/domains/"+shop+"/dkim", nil, 200)
	c.call("DELETE", "/domains/"+shop+"/dkim/"+own, nil, 204)
	c.call("DELETE", "/domains/"+shop+"/dkim/"+own, nil, 404)
	return shop
}

// mailboxes creates a mailbox in a domain and returns its id.
func (c *checked) mailboxes(shop string) (box string) {
	c.t.Helper()
	type m = map[string]any
	box = c.id("POST", "/mailboxes", m{"domain_id": shop, "local_part": "till", "display_name": "Till", "quota_mb": 10}, 201)
	c.call("POST", "/mailboxes", m{"domain_id": shop, "local_part": "other", "password": "weak"}, 422)
	c.call("POST", "/mailboxes", m{"domain_id": shop, "local_part": "till"}, 409)
	c.call("GET", "/mailboxes?domain_id="+shop, nil, 200)
	c.call("GET", "/mailboxes/"+box, nil, 200)
	c.call("GET", "/mailboxes/"+box+"/client-setup", nil, 200)
	c.call("POST", "/mailboxes/"+box+"/client-setup/check", nil, 200)
	c.call("GET", "/mailboxes/"+box+"/apple-profile", nil, 200)
	c.call("POST", "/mailboxes/"+box+"/apple-profile", m{"name": "Till's phone"}, 200)
	c.call("POST", "/mailboxes/"+box+"/apple-profile", m{"name": ""}, 422)
	c.call("PATCH", "/mailboxes/"+box, m{"display_name": "Till B", "status": "suspended"}, 200)
	c.call("POST", "/mailboxes/"+box+"/password", m{}, 200)
	c.call("DELETE", "/domains/"+shop, nil, 409)
	c.call("DELETE", "/mailboxes/"+box, nil, 204)
	c.call("GET", "/mailboxes/"+box, nil, 404)
	c.call("GET", "/mailboxes?deleted=true", nil, 200)
	c.call("POST", "/mailboxes/"+box+"/restore", nil, 200)
	return box
}

// migrations copies into a mailbox.
func (c *checked) migrations(box, shop string) {
	c.t.Helper()
	type m = map[string]any
	moving := m{"mailbox_id": box, "source": m{"host": "localhost", "port": 1, "tls": "none", "username": "till", "password": "Secret-1"}}
	migration := c.id("POST", "/migrations", moving, 201)
	c.call("POST", "/migrations", m{"mailbox_id": shop, "source": m{"host": "no host", "username": "", "password": "x"}}, 422)
	c.call("POST", "/migrations/test", m{"source": m{"host": "localhost", "port": c.s.Dev.Ports["imaps"], "username": "nobody@demo.test", "password": "Secret-1"}}, 422)
	c.call("GET", "/migrations", nil, 200)
	c.call("GET", "/migrations/"+migration, nil, 200)
	c.call("POST", "/migrations/"+migration+"/cancel", nil, 200)
	c.call("POST", "/migrations/"+migration+"/cancel", nil, 200)
	c.call("GET", "/migrations/"+migration+"/events", nil, 200)
}

// sending sends a message and returns its id.
func (c *checked) sending() (sent string) {
	c.t.Helper()
	type m = map[string]any
	sent = c.id("POST", "/outbound/send", m{
		"from_email": "desk@shop.test", "from_name": "Shop", "to": []string{"Bob <bob@demo.test>"}, "cc": []string{"alice@demo.test"},
		"bcc": []string{"x@elsewhere.example.net"}, "reply_to": "desk@shop.test", "subject": "Grüße", "text": "text", "html": "<p>text</p>",
		"attachments": []m{{"filename": "a.txt", "content": "aGk="}}, "headers": m{"X-Order": "7"}, "metadata": m{"order": 7},
		"thread_id": "order-7", "in_reply_to": "<before@example.net>",
	}, 202)
	c.call("POST", "/outbound/send", m{"from_email": "desk@shop.test", "to": []string{}}, 422)
	c.call("POST", "/outbound/send", m{"from_email": "me@elsewhere.example.net", "to": []string{"bob@demo.test"}, "subject": "s", "text": "t"}, 403)
	quiet(c.t, c.s)
	c.call("GET", "/outbound/messages", nil, 200)
	c.call("GET", "/outbound/messages/export", nil, 200)
	c.call("GET", "/outbound/messages/export?format=csv", nil, 200)
	c.call("GET", "/outbound/messages/"+sent, nil, 200)
	c.call("GET", "/outbound/messages/"+sent+"/raw", nil, 200)
	c.call("GET", "/outbound/messages/"+sent+"/attachments/0", nil, 200)
	c.call("GET", "/outbound/messages/"+sent+"/attachments/9", nil, 404)
	c.call("GET", "/outbound/messages?after=nonsense", nil, 422)
	return sent
}

// events tests the events of a message, and statistics.
func (c *checked) events(sent, shop string) {
	c.t.Helper()
	servertest.Eventually(c.t, func() string {
		if a := c.call("GET", "/events?limit=100", nil, 200); strings.Count(string(a.Body), `"delivery_status"`) < 3 {
			return fmt.Sprintf("the events are %s", a.Body)
		}
		return ""
	})
	c.call("GET", "/events?type=delivery_status&message="+sent, nil, 200)
	c.call("GET", "/events/export", nil, 200)
	c.call("GET", "/stats/export?format=csv", nil, 200)
	c.call("GET", "/stats", nil, 200)
	c.call("GET", "/stats?by=hour&starts_at="+time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)+"&domain_id="+shop, nil, 200)
	c.call("GET", "/stats?starts_at=2020-01-01T00:00:00Z", nil, 422)
	c.call("GET", "/events/stream?after=x", nil, 422)
}

// laterAndTogether tests batches and scheduled sends.
func (c *checked) laterAndTogether() {
	c.t.Helper()
	type m = map[string]any
	batch := []m{{"from_email": "desk@shop.test", "to": []string{"bob@demo.test"}, "subject": "s", "text": "t"}, {"from_email": "desk@shop.test", "to": []string{"x"}, "subject": "s", "text": "t"}}
	c.call("POST", "/outbound/batch", m{"messages": batch}, 422)
	c.call("POST", "/outbound/batch", m{"messages": batch, "partial": true}, 202)
	later := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	waiting := c.id("POST", "/outbound/send", m{
		"from_email": "desk@shop.test", "to": []string{"bob@demo.test"}, "subject": "s", "text": "t", "send_at": later(time.Hour),
	}, 202)
	c.call("PATCH", "/outbound/messages/"+waiting, m{"send_at": later(2 * time.Hour)}, 200)
	c.call("PATCH", "/outbound/messages/"+waiting, m{"send_at": later(-time.Hour)}, 422)
	c.call("POST", "/outbound/messages/"+waiting+"/cancel", nil, 200)
	c.call("POST", "/outbound/messages/"+waiting+"/cancel", nil, 200)
	c.call("POST", "/outbound/messages/"+waiting+"/retry", nil, 409)
	c.call("GET", "/threads/order-7", nil, 200)
	c.call("GET", "/threads/order-8", nil, 404)
}

// templates creates a template and sends with it.
func (c *checked) templates() {
	c.t.Helper()
	type m = map[string]any
	welcome := c.id("POST", "/templates", m{
		"name": "Welcome", "alias": "welcome", "subject": "Hi {{name}}", "html": "<p>Hi {{name}}</p>", "inline_css": true,
		"variables": []m{{"key": "name", "type": "string", "required": true}, {"key": "n", "type": "number", "fallback": 1}},
	}, 201)
	c.call("POST", "/templates", m{"name": "x", "alias": "welcome", "subject": "x", "text": "x"}, 409)
	c.call("POST", "/templates", m{"name": "x", "subject": "{{", "text": "x"}, 422)
	c.call("GET", "/templates?limit=1", nil, 200)
	c.call("GET", "/templates/welcome", nil, 200)
	c.call("PATCH", "/templates/"+welcome, m{"text": "Hi {{name}}", "publish": false}, 200)
	c.call("GET", "/templates/"+welcome+"/versions", nil, 200)
	c.call("GET", "/templates/"+welcome+"/versions/1", nil, 200)
	c.call("POST", "/templates/"+welcome+"/publish", m{"version": 2}, 200)
	c.call("POST", "/templates/"+welcome+"/render", m{"variables": m{"name": "Ann"}, "version": 1}, 200)
	c.call("POST", "/templates/"+welcome+"/duplicate", nil, 201)
	c.id("POST", "/outbound/send-template", m{
		"from_email": "desk@shop.test", "to": []string{"bob@demo.test"}, "template_id": welcome, "variables": m{"name": "Bob"}, "metadata": m{"order": 8},
	}, 202)
	c.call("POST", "/outbound/send-template", m{"from_email": "desk@shop.test", "to": []string{"bob@demo.test"}, "template_id": welcome, "variables": m{}}, 422)
	c.call("DELETE", "/templates/"+welcome, nil, 204)
}

// suppressions tests the suppression list.
func (c *checked) suppressions() {
	c.t.Helper()
	type m = map[string]any
	left := c.id("POST", "/suppressions", m{"email": "left@elsewhere.example.net", "reason": "unsubscribe"}, 201)
	c.call("POST", "/suppressions", m{"email": "left"}, 422)
	c.call("POST", "/suppressions/batch", m{"emails": []string{"a@elsewhere.example.net", "b@elsewhere.example.net"}}, 201)
	c.call("GET", "/suppressions?reason=unsubscribe&limit=1", nil, 200)
	c.call("GET", "/suppressions?email=left@elsewhere.example.net", nil, 200)
	c.call("GET", "/suppressions/"+left, nil, 200)
	c.call("GET", "/suppressions/left@elsewhere.example.net", nil, 200)
	c.file("/suppressions/import", "text/csv", "email,reason\nd@elsewhere.example.net,bounce\nnobody\n", 200)
	c.file("/suppressions/import", "text/plain", "d@elsewhere.example.net", 415)
	c.call("GET", "/suppressions/export", nil, 200)
	c.call("DELETE", "/suppressions/"+left, nil, 204)
	c.call("DELETE", "/suppressions/"+left, nil, 404)
}

// transfers imports and exports mail.
func (c *checked) transfers() {
	c.t.Helper()
	walked := "/mailboxes/" + c.s.Dev.Mailboxes[0].ID.String()
	c.file(walked+"/import?folder=Walked", "application/mbox", "From x Sat Nov 21 17:00:00 2026\nSubject: walked\n\nHello.\n", 200)
	c.file(walked+"/import", "text/plain", "Subject: walked\n", 415)
	c.file(walked+"/import", "application/x-tar", "no tar", 422)
	c.call("GET", walked+"/export?folder=Walked", nil, 200)
	c.call("GET", walked+"/export?format=maildir&folder=Walked", nil, 200)
	c.call("GET", walked+"/export?format=zip", nil, 422)
	c.call("GET", walked+"/export?folder=Nowhere", nil, 404)
}

// keys creates API keys with their own limits.
func (c *checked) keys() {
	c.t.Helper()
	type m = map[string]any
	key := c.id("POST", "/api-keys", m{
		"name": "till", "scopes": []string{"outbound.send"}, "domain": "shop.test", "allowed_ips": []string{"127.0.0.1"},
		"expires_at": "2099-01-01T00:00:00Z", "limits": m{"sends_per_hour": 10, "requests_per_second": 5, "burst": 9},
	}, 201)
	c.call("GET", "/limits", nil, 200)
	c.call("GET", "/activity", nil, 200)
	limited := c.call("POST", "/api-keys", m{"name": "limited", "limits": m{"recipients_per_day": 10, "requests_per_second": 5}}, 201)
	var made struct{ Key string }
	limited.Decode(c.t, &made)
	whole := c.key
	c.key = made.Key
	c.call("GET", "/limits", nil, 200)
	c.key = whole
	c.call("GET", "/api-keys", nil, 200)
	c.call("DELETE", "/api-keys/"+key, nil, 204)
	c.call("DELETE", "/api-keys/"+key, nil, 404)
}

// mail tests the contents of a mailbox and of the sandbox's outbox.
func (c *checked) mail() {
	c.t.Helper()
	type m = map[string]any
	var in struct {
		Recipients []struct {
			ID      string
			Mailbox string `json:"mailbox_id"`
		}
	}
	c.call("POST", "/sandbox/inbound", m{
		"mail_from": "", "rcpt_to": []string{"bob@demo.test"}, "from": "Ann <ann@elsewhere.example.net>", "to": []string{"bob@demo.test"}, "cc": []string{}, "reply_to": "ann@elsewhere.example.net",
		"subject": "Grüße", "text": "text", "html": "<p>text</p>", "message_id": "<a@elsewhere.example.net>", "in_reply_to": "<b@demo.test>", "headers": m{"List-Id": "<l>"},
		"attachments": []m{{"filename": "a.bin", "content": "aGk="}}, "check_results": m{"spf": "pass", "dkim": "pass", "dmarc": "pass", "spam": "ham"},
	}, 200).Decode(c.t, &in)
	c.call("POST", "/sandbox/inbound", m{"raw": "U3ViamVjdDogaGkNCg0KaGkNCg==", "rcpt_to": []string{"nobody@demo.test"}}, 200)
	c.call("POST", "/sandbox/inbound", m{"raw": "?"}, 422)
	mails := "/mailboxes/" + in.Recipients[0].Mailbox + "/messages"
	c.call("GET", mails+"/export?format=csv", nil, 200)
	c.call("GET", mails+"?folder=INBOX&from=elsewhere.example.net&subject=gr&received_after=2026-01-31T00:00:00Z", nil, 200)
	c.call("GET", mails+"?folder=nowhere", nil, 422)
	one := mails + "/" + in.Recipients[0].ID
	c.call("GET", one, nil, 200)
	c.call("GET", mails+"/01999999-0000-7000-8000-000000000000", nil, 404)
	c.call("GET", one+"/raw", nil, 200)
	c.call("GET", one+"/attachments/0", nil, 200)
	c.call("GET", one+"/attachments/1", nil, 404)
	var out struct{ Data []struct{ ID string } }
	c.call("GET", "/sandbox/outbox?limit=1", nil, 200).Decode(c.t, &out)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID, nil, 200)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID+"/raw", nil, 200)
	c.call("DELETE", "/sandbox/outbox", nil, 204)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID, nil, 404)
}

// operator tests the operators' API; sent is a message.
func (c *checked) operator(sent string) {
	c.t.Helper()
	type m = map[string]any
	const queue = "/operator/queue/"
	customer := c.key
	c.call("GET", queue+"holds", nil, 403)
	c.call("GET", "/operator/dns", nil, 403)
	c.key = operatorKey(c.t, c.s)
	c.call("POST", queue+"hold", m{"destination": "held.example.net", "detail": "they asked"}, 200)
	c.call("POST", queue+"hold", m{}, 422)
	c.call("GET", queue+"holds", nil, 200)
	operator, held := c.key, ""
	servertest.Eventually(c.t, func() string { // messages sent before the node knows of the hold may be gone
		c.key = customer
		held = c.id("POST", "/outbound/send", m{"from_email": "desk@shop.test", "to": []string{"x@held.example.net"}, "subject": "s", "text": "t"}, 202)
		c.key = operator
		c.call("POST", queue+"hold", m{"message": held, "once": true}, 200)
		if a := c.call("GET", queue+"deliveries?held=true&destination=held.example.net&account=you@demo.test&sender=shop.test&older_than=0", nil, 200); !strings.Contains(string(a.Body), held) {
			return string(a.Body)
		}
		return ""
	})
	c.call("GET", queue+"destinations?limit=1", nil, 200)
	c.call("GET", queue+"deliveries?state=delivered", nil, 422)
	c.call("GET", queue+"messages/"+held, nil, 200)
	c.call("GET", queue+"messages/"+sent, nil, 200)
	c.call("GET", queue+"messages/01999999-0000-7000-8000-000000000000", nil, 404)
	c.call("POST", queue+"retry", m{"all": true, "dry_run": true}, 200)
	c.call("POST", queue+"drop", m{"message": held, "detail": "gone", "silent": true, "wait": 5}, 200)
	c.call("POST", queue+"drop", m{"message": held, "wait": 31}, 422)
	c.call("POST", queue+"release", m{"destination": "held.example.net"}, 200)
	acc, err := c.s.Accounts.ByEmail(c.t.Context(), "you@demo.test")
	if err != nil {
		c.t.Fatal(err)
	}
	c.call("PUT", "/operator/accounts/"+acc.ID.String()+"/limits", m{"sends_per_hour": 900_000, "storage_mb": 0}, 200)
	c.call("PUT", "/operator/accounts/"+acc.ID.String()+"/limits", m{"burst": -1}, 422)
	c.call("GET", "/operator/accounts/"+acc.ID.String()+"/limits", nil, 200)
	c.call("GET", "/operator/dns", nil, 200)
	c.call("GET", "/operator/domains/demo.test", nil, 200)
	c.call("PATCH", "/operator/domains/demo.test", map[string]any{"suspended": false}, 200)
	c.call("GET", "/operator/domains/nowhere.test", nil, 404)
	other := c.id("POST", "/operator/accounts", m{"email": "other@customer.example", "name": "Other"}, 201)
	c.call("POST", "/operator/accounts", m{"email": "other@customer.example"}, 409)
	c.call("POST", "/operator/accounts", m{"email": "none", "name": "a\nb"}, 422)
	c.call("GET", "/operator/accounts?limit=1", nil, 200)
	c.call("GET", "/operator/accounts/"+other, nil, 200)
	c.call("PATCH", "/operator/accounts/"+other, m{"status": "suspended"}, 200)
	c.call("PATCH", "/operator/accounts/"+other, m{"status": "gone"}, 422)
	c.call("PATCH", "/operator/accounts/"+account.OperatorAccount.String(), m{"status": "suspended"}, 404)
	c.key = customer
}
