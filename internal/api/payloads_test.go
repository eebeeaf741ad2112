// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var update = flag.Bool("update", false, "write the examples of events anew")

// Every kind of event that really happens is as the document says, has no
// member that it does not name, and so has the example.
func TestPayloads(t *testing.T) {
	s := servertest.Start(t)
	kinds := forms(t, s)
	c := clientOf(t, s, s.Dev.APIKey)
	if in, err := c.SimulateInbound(t.Context(), &client.Simulation{
		From: "Ann Lee <ann@example.org>", To: []string{s.Dev.Mailboxes[1].Address}, Subject: "Your offer", Text: "Yes, please.", HTML: "<p>Yes, please.</p>",
		Attachments: []client.Attachment{{Filename: "order.txt", ContentType: "text/plain", Content: strings.NewReader("Two of them.\n")}},
		Verdicts:    &client.Verdicts{SPF: "pass", DKIM: "pass", DMARC: "pass", Spam: "ham"},
	}); err != nil || !in.Accepted {
		t.Fatal(in, err)
	}
	few := int64(5)
	limited, err := c.CreateAPIKey(t.Context(), client.NewAPIKey{Name: "limited", Limits: &client.KeyLimits{SendsPerDay: &few}})
	if err != nil {
		t.Fatal(err)
	}
	cl := clientOf(t, s, limited.Key) // whose 4th of 5 sends is 80 %
	for _, to := range []string{"bounced@simulator.test", "complained@simulator.test", "deferred@simulator.test", s.Dev.Mailboxes[1].Address} {
		if _, err := cl.Send(t.Context(), &client.Send{
			FromEmail: s.Dev.Mailboxes[0].Address, To: []string{to}, Subject: "An example", Text: "Hello.", ThreadID: "order-42", Metadata: map[string]any{"order": 42},
		}); err != nil {
			t.Fatal(err)
		}
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
		Host: host, Port: number, Username: s.Dev.Mailboxes[1].Address, Password: s.Dev.Mailboxes[1].Password, InsecureSkipVerify: true,
	}}); err != nil {
		t.Fatal(err)
	}
	left := maps.Clone(kinds)
	for e, err := range c.StreamEvents(t.Context(), client.EventFilter{}, "0") {
		if err != nil {
			t.Fatal(err)
		}
		form := kinds[e.Type]
		if form == nil {
			t.Fatalf("the document has no %s", e.Type)
		}
		var body any
		if err := json.Unmarshal(e.Body, &body); err != nil {
			t.Fatal(err)
		}
		if err := form.VisitJSON(body); err != nil {
			t.Errorf("%s is not as the document says: %v\n%s", e.Type, err, e.Body)
		}
		unnamed(t, e.Type, form, body)
		if e.Type == "delivery_status" && !bytes.Contains(e.Data, []byte(`"status":"delivered"`)) {
			continue
		}
		if *update && left[e.Type] != nil {
			example(t, e)
		}
		if delete(left, e.Type); len(left) == 0 {
			break
		}
	}
}

// forms are the bodies that the document describes, by kind.
func forms(t *testing.T, s *servertest.Server) map[string]*openapi3.Schema {
	t.Helper()
	text := s.As("", "GET", "/openapi.json", nil).Body
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
		var body any
		if err := json.Unmarshal(media.Example, &body); err != nil && !*update {
			t.Fatalf("the example of %s: %v", kind, err)
		}
		if err := kinds[kind].VisitJSON(body); err != nil && !*update {
			t.Errorf("the example of %s is not as the document says: %v", kind, err)
		}
		unnamed(t, "the example of "+kind, kinds[kind], body)
	}
	return kinds
}

// unnamed complains of members that a schema does not have.
func unnamed(t *testing.T, what string, form *openapi3.Schema, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		if len(form.Properties) == 0 {
			return // anything
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

// example makes an event the example of the document.
func example(t *testing.T, e client.StreamedEvent) {
	t.Helper()
	var text bytes.Buffer
	if err := json.Indent(&text, e.Body, "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	if err := os.WriteFile(filepath.Join("examples", e.Type+".json"), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
