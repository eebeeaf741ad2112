// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

var update = flag.Bool("update", false, "write the examples of events anew")

// A webhook receives every event type as the document says: signed, with no undocumented member,
// and byte for byte like the stream. The same holds for test events, and the example is valid, too.
func TestPayloads(t *testing.T) {
	s := servertest.Start(t)
	kinds := forms(t, s)
	c := clientOf(t, s, s.Dev.APIKey)
	h := listening(t, c)
	happen(t, s, c)
	left := maps.Clone(kinds)
	for e, err := range c.StreamEvents(t.Context(), client.EventFilter{}, "0") {
		if err != nil {
			t.Fatal(err)
		}
		fits(t, kinds, e.Type, e.Body)
		if e.ID < h.hook.ID {
			continue // it happened before the webhook existed
		}
		if body := h.body(e.ID, e.Type); !bytes.Equal(body, e.Body) {
			t.Errorf("the webhook got\n%s\nand the stream\n%s", body, e.Body)
		}
		if e.Type == "delivery_status" && !bytes.Contains(e.Data, []byte(`"status":"delivered"`)) {
			continue
		}
		if *update && left[e.Type] != nil {
			example(t, s, e)
		}
		if delete(left, e.Type); len(left) == 0 {
			break
		}
	}
	for kind := range kinds {
		d, err := c.TestWebhook(t.Context(), h.hook.ID, kind)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(d.Body, `"test":true,`) || d.Body != string(h.body(d.ID, kind)) {
			t.Errorf("the test of %s is %s", kind, d.Body)
		}
		fits(t, kinds, kind, []byte(d.Body))
	}
}

// hooked is a webhook and the requests that it received.
type hooked struct {
	t    *testing.T
	hook *client.Webhook
	got  sync.Map // bodies by event and type, as the header says
}

func listening(t *testing.T, c *client.Client) *hooked {
	h := &hooked{t: t}
	ready := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-ready
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if e, err := client.VerifyWebhook(r.Header, body, h.hook.Secret); err != nil || !client.WebhookSigned(r.Header, body, h.hook.Secret) || e.ID != r.Header.Get("X-Event-ID") {
			t.Errorf("not authentic: %v, %v", r.Header, err)
		}
		h.got.Store(r.Header.Get("X-Event-ID")+r.Header.Get("X-Service-Event"), body)
	}))
	t.Cleanup(receiver.Close)
	var err error
	if h.hook, err = c.CreateWebhook(t.Context(), client.NewWebhook{URL: receiver.URL, Events: []string{"all"}}); err != nil {
		t.Fatal(err)
	}
	close(ready)
	return h
}

// body waits for an event and returns its body.
func (h *hooked) body(id, kind string) (body []byte) {
	h.t.Helper()
	servertest.Eventually(h.t, func() string {
		got, ok := h.got.Load(id + kind)
		if !ok {
			return "the webhook did not get " + kind + " " + id
		}
		body = got.([]byte)
		return ""
	})
	return body
}

// happen causes an event of every type.
func happen(t *testing.T, s *servertest.Server, c *client.Client) {
	t.Helper()
	d, err := c.CreateDomain(t.Context(), "shop.test")
	if err == nil {
		_, err = c.VerifyDomain(t.Context(), d.ID)
	}
	if err == nil {
		d, err = c.VerifyDomainDNS(t.Context(), d.ID)
	}
	if err != nil || d.Status != "verified" {
		t.Fatal(d, err)
	}
	m, err := c.CreateMailbox(t.Context(), client.NewMailbox{DomainID: d.ID, LocalPart: "orders", DisplayName: "Orders"})
	if err != nil {
		t.Fatal(err)
	}
	if in, err := c.SimulateInbound(t.Context(), &client.SimulatedMessage{
		From: "Ann Lee <ann@example.org>", To: []string{m.Address}, Subject: "Your offer", Text: "Yes, please.", HTML: "<p>Yes, please.</p>",
		Attachments:  []client.Attachment{{Filename: "order.txt", ContentType: "text/plain", Content: strings.NewReader("Two of them.\n")}},
		CheckResults: &client.CheckResults{SPF: "pass", DKIM: "pass", DMARC: "pass", Spam: "ham"},
	}); err != nil || !in.Accepted {
		t.Fatal(in, err)
	}
	few := int64(5)
	limited, err := c.CreateAPIKey(t.Context(), client.NewAPIKey{Name: "limited", Limits: &client.KeyLimits{SendsPerDay: &few}})
	if err != nil {
		t.Fatal(err)
	}
	cl := clientOf(t, s, limited.Key) // its 4th of 5 sends is at 80 %
	for _, to := range []string{"bounced@simulator.test", "complained@simulator.test", "deferred@simulator.test", m.Address} {
		if _, err := cl.Send(t.Context(), &client.Send{
			FromEmail: m.Address, To: []string{to}, Subject: "An example", Text: "Hello.", ThreadID: "order-42", Metadata: map[string]any{"order": 42},
		}); err != nil {
			t.Fatal(err)
		}
	}
	offer, err := c.Send(t.Context(), &client.Send{
		FromEmail: m.Address, To: []string{"delivered@simulator.test"}, Subject: "News", Text: "Hello.", Unsubscribe: &client.Unsubscribe{},
		ThreadID: "order-42", Metadata: map[string]any{"order": 42}, Tags: []string{"newsletter"},
	})
	if err != nil {
		t.Fatal(err)
	}
	id, err := db.ParseID(offer.ID)
	if err != nil {
		t.Fatal(err)
	}
	happens(t, s, offer.ID, isDelivered)
	url := s.Suppressions.UnsubscribeURL(suppression.UnsubscribeLink{Account: demo(t, s), Message: id, Address: "delivered@simulator.test"})
	if status, _, text := requestPage(t, "POST", url, form, oneClickForm); status != 200 {
		t.Fatal(status, text)
	}
	host, port, err := net.SplitHostPort(s.Addr("imaps"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateMigration(t.Context(), client.NewMigration{MailboxID: s.Dev.Mailboxes[0].ID.String(), Source: client.NewMigrationSource{
		Host: host, Port: number, Username: m.Address, Password: m.Password, InsecureSkipVerify: true,
	}}); err != nil {
		t.Fatal(err)
	}
}

// fits reports an event that doesn't match the document.
func fits(t *testing.T, kinds map[string]*openapi3.Schema, kind string, text []byte) {
	t.Helper()
	form := kinds[kind]
	if form == nil {
		t.Fatalf("the document has no %s", kind)
	}
	var body any
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	if err := form.VisitJSON(body); err != nil {
		t.Errorf("%s is not as the document says: %v\n%s", kind, err, text)
	}
	unnamed(t, kind, form, body)
}

// forms returns the bodies that the document describes, by event type.
func forms(t *testing.T, s *servertest.Server) map[string]*openapi3.Schema {
	t.Helper()
	text := s.APIWithKey("", "GET", "/openapi.json", nil).Body
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Webhooks map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct {
						Schema struct {
							Ref string `json:"$ref"`
						}
						Example json.RawMessage
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*openapi3.Schema{}
	for kind, hook := range raw.Webhooks {
		media := hook.Post.RequestBody.Content["application/json"]
		kinds[kind] = doc.Components.Schemas[filepath.Base(media.Schema.Ref)].Value
		if !*update {
			fits(t, kinds, kind, media.Example)
		}
	}
	return kinds
}

// unnamed reports members that a schema does not have.
func unnamed(t *testing.T, what string, form *openapi3.Schema, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if len(form.Properties) == 0 {
			return // any value
		}
		for name, value := range v {
			member := form.Properties[name]
			if member == nil {
				t.Errorf("%s: the document does not name %s", what, name)
				continue
			}
			unnamed(t, what+"."+name, member.Value, value)
		}
	case []any:
		for _, value := range v {
			unnamed(t, what, form.Items.Value, value)
		}
	}
}

// example writes an event as the example of the document and of test events.
func example(t *testing.T, s *servertest.Server, e client.StreamedEvent) {
	t.Helper()
	var text bytes.Buffer
	if err := json.Indent(&text, bytes.ReplaceAll(e.Body, []byte(s.Dev.BaseURL), []byte("https://mail.example.com")), "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	if err := os.WriteFile(filepath.Join("../webhook/examples", e.Type+".json"), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
