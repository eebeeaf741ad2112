// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/webhook"
)

// document loads and validates the OpenAPI document.
func document(t *testing.T, s *servertest.Server) *openapi3.T {
	t.Helper()
	a := s.APIWithKey("", "GET", "/openapi.json", nil)
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", a.Status, a.Header)
	}
	doc, err := openapi3.NewLoader().LoadFromData(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, leftover := range []string{"$schema", "ErrorModel", "ErrorDetail", "huma"} {
		if bytes.Contains(a.Body, []byte(leftover)) {
			t.Errorf("the document speaks of %s", leftover)
		}
	}
	return doc
}

// The document describes every operation, parameter and field, with responses and errors.
func TestDocumentIsComplete(t *testing.T) {
	doc := document(t, servertest.Start(t))
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Components.SecuritySchemes["key"] == nil || len(doc.Security) == 0 {
		t.Errorf("version %s, security %v", doc.OpenAPI, doc.Security)
	}
	var tags, used []string
	for _, tag := range doc.Tags {
		tags = append(tags, tag.Name)
		if tag.Description == "" {
			t.Errorf("the tag %s is not described", tag.Name)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			what := method + " " + path
			if op.Summary == "" || len(op.Description) < 40 || op.OperationID == "" || len(op.Tags) != 1 || !slices.Contains(tags, op.Tags[0]) {
				t.Errorf("%s: half described: %q %q %q %v", what, op.OperationID, op.Summary, op.Description, op.Tags)
			}
			used = append(used, op.Tags...)
			for _, p := range op.Parameters {
				if p.Value.Description == "" || p.Value.Schema == nil {
					t.Errorf("%s: the parameter %s is not described", what, p.Value.Name)
				}
			}
			if want := method == "POST" && strings.Count(path, "/") == 3 || method == "PATCH" || method == "PUT" || strings.HasSuffix(path, "/password") ||
				method == "POST" && slices.Contains([]string{"/api/v1/outbound/send", "/api/v1/outbound/batch", "/api/v1/suppressions/batch", "/api/v1/suppressions/import",
					"/api/v1/domains/{id}/dkim", "/api/v1/domains/{id}/dkim/rotate", "/api/v1/outbound/send-template", "/api/v1/templates/{id}/render", "/api/v1/templates/{id}/duplicate", "/api/v1/templates/{id}/publish",
					"/api/v1/operator/accounts", "/api/v1/operator/queue/retry", "/api/v1/operator/queue/hold", "/api/v1/operator/queue/release", "/api/v1/operator/queue/drop",
					"/api/v1/sandbox/inbound", "/api/v1/mailboxes/{id}/import", "/api/v1/migrations/test", "/api/v1/mailboxes/{id}/app-passwords", "/api/v1/mailboxes/{id}/apple-profile", "/api/v1/webhooks/{id}/test", "/api/v1/webhooks/{id}/rotate-secret"}, path); want != (op.RequestBody != nil) {
				t.Errorf("%s: request body: %v", what, op.RequestBody != nil)
			}
			checkResponses(t, what, op)
		}
	}
	for _, tag := range tags {
		if !slices.Contains(used, tag) {
			t.Errorf("nothing has the tag %s", tag)
		}
	}
	for name, schema := range doc.Components.Schemas {
		if strings.Contains(name, "Response") || name[0] < 'A' || name[0] > 'Z' {
			t.Errorf("a strange name: %s", name)
		}
		for field, property := range schema.Value.Properties {
			if property.Value.Description == "" && property.Extensions["description"] == nil {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
}

func checkResponses(t *testing.T, what string, op *openapi3.Operation) {
	t.Helper()
	good := 0
	for code, r := range op.Responses.Map() {
		if n, err := strconv.Atoi(code); err == nil && n < 300 {
			good++
			if n != 204 && len(r.Value.Content) == 0 {
				t.Errorf("%s: %s has no content", what, code)
			}
			continue
		}
		media := r.Value.Content["application/problem+json"]
		if media == nil || media.Schema.Ref != "#/components/schemas/Problem" || media.Example == nil {
			t.Errorf("%s: %s is no problem", what, code)
		}
	}
	if good != 1 {
		t.Errorf("%s: %d answers of success", what, good)
	}
	for _, code := range []string{"401", "403", "422", "500", "default"} {
		if op.Responses.Value(code) == nil {
			t.Errorf("%s: %s is missing", what, code)
		}
	}
}

// An event is one of the bodies that webhooks get, told apart by its type, in lists as well. The
// events of a webhook are an enumeration.
func TestDocumentOfEvents(t *testing.T) {
	doc := document(t, servertest.Start(t))
	schemas := doc.Components.Schemas
	union := schemas["Event"].Value
	if len(union.OneOf) != len(event.Kinds) || union.Discriminator == nil || union.Discriminator.PropertyName != "type" || len(union.Discriminator.Mapping) != len(event.Kinds) {
		t.Fatalf("Event has %d alternatives and the discriminator %+v", len(union.OneOf), union.Discriminator)
	}
	if items := schemas["EventList"].Value.Properties["data"].Value.Items; items.Ref != "#/components/schemas/Event" {
		t.Errorf("a list has %s", items.Ref)
	}
	valid := func(text string) bool {
		t.Helper()
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return doc.ValidateSchemaJSON(union, v, openapi3.EnableJSONSchema2020()) == nil
	}
	for _, kind := range event.Kinds {
		ref := union.Discriminator.Mapping[kind].Ref
		if !slices.ContainsFunc(union.OneOf, func(s *openapi3.SchemaRef) bool { return s.Ref == ref }) {
			t.Errorf("%s leads to %q, which is not among the alternatives", kind, ref)
			continue
		}
		body := schemas[strings.TrimPrefix(ref, "#/components/schemas/")].Value
		if of := body.Properties["type"].Value.Enum; len(of) != 1 || of[0] != kind || !slices.Contains(body.Required, "type") {
			t.Errorf("%s: the type is one of %v", kind, of)
		}
		if test := body.Properties["data"].Value.Properties["test"]; test == nil || slices.Contains(body.Properties["data"].Value.Required, "test") {
			t.Errorf("%s: data does not describe test events", kind)
		}
		text := string(webhook.Example(kind))
		if !valid(text) || !valid(strings.Replace(text, `"data": {`, `"data": {"test": true,`, 1)) {
			t.Errorf("the example of %s, or its test, is no event", kind)
		}
		if valid(strings.Replace(text, `"type": "`+kind, `"type": "`+event.Kinds[(slices.Index(event.Kinds[:], kind)+1)%len(event.Kinds)], 1)) {
			t.Errorf("the data of %s is taken for that of another type", kind)
		}
	}
	kinds := func(name, field string, more ...any) {
		t.Helper()
		var want []any
		for _, kind := range event.Kinds {
			want = append(want, kind)
		}
		s := schemas[name].Value.Properties[field].Value
		if s.Items != nil {
			s = s.Items.Value
		}
		if want = append(want, more...); !slices.Equal(s.Enum, want) {
			t.Errorf("%s.%s is one of %v", name, field, s.Enum)
		}
	}
	kinds("CreateWebhookRequest", "events", "all")
	kinds("UpdateWebhookRequest", "events", "all")
	kinds("Webhook", "events", "all")
	kinds("WebhookDelivery", "type")
	kinds("TestWebhookRequest", "event")
}

// Responses match the document, and the service accepts the requests that the document describes.
func TestDocumentIsTrue(t *testing.T) {
	s := servertest.Start(t)
	doc := document(t, s)
	conforms := func(method, path, template string, body any) servertest.Response {
		t.Helper()
		a := s.API(method, path, body)
		op := doc.Paths.Value("/api/v1" + template).GetOperation(method)
		r := op.Responses.Value(strconv.Itoa(a.Status))
		if r == nil {
			t.Fatalf("%s %s: %d is not in the document: %s", method, path, a.Status, a.Body)
		}
		if a.Status == 204 {
			return a
		}
		var v any
		a.Decode(t, &v)
		media := r.Value.Content[a.Header.Get("Content-Type")]
		if media == nil {
			t.Fatalf("%s %s: %s is not in the document", method, path, a.Header.Get("Content-Type"))
		}
		if err := doc.ValidateSchemaJSON(media.Schema.Value, v, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, a.Body)
		}
		return a
	}
	d := into(t, conforms("POST", "/domains", "/domains", object{"name": "new.test"}))["id"].(string)
	conforms("POST", "/domains", "/domains", object{"name": 5})
	conforms("GET", "/domains?limit=1", "/domains", nil)
	conforms("GET", "/domains/"+d, "/domains/{id}", nil)
	conforms("POST", "/domains/"+d+"/verify", "/domains/{id}/verify", nil)
	conforms("GET", "/domains/"+d+"/verify", "/domains/{id}/verify", nil)
	conforms("POST", "/domains/"+d+"/verify-dns", "/domains/{id}/verify-dns", nil)
	m := into(t, conforms("POST", "/mailboxes", "/mailboxes", object{"domain_id": d, "local_part": "x"}))["id"].(string)
	conforms("PATCH", "/mailboxes/"+m, "/mailboxes/{id}", object{"quota_mb": 3})
	conforms("POST", "/mailboxes/"+m+"/password", "/mailboxes/{id}/password", nil)
	conforms("DELETE", "/mailboxes/"+m, "/mailboxes/{id}", nil)
	conforms("GET", "/mailboxes?deleted=true", "/mailboxes", nil)
	conforms("POST", "/mailboxes/"+m+"/restore", "/mailboxes/{id}/restore", nil)
	conforms("POST", "/mailboxes/"+m+"/restore", "/mailboxes/{id}/restore", nil)
	k := into(t, conforms("POST", "/api-keys", "/api-keys", object{"name": "x", "expires_at": "2999-01-01T00:00:00Z"}))["id"].(string)
	conforms("GET", "/api-keys", "/api-keys", nil)
	conforms("DELETE", "/api-keys/"+k, "/api-keys/{id}", nil)
	sent := into(t, conforms("POST", "/outbound/send", "/outbound/send", mail(object{"metadata": object{"a": 1}})))["id"].(string)
	conforms("POST", "/outbound/send", "/outbound/send", "{}")
	arrived(t, s)
	conforms("GET", "/outbound/messages/"+sent, "/outbound/messages/{id}", nil)
	conforms("GET", "/outbound/messages", "/outbound/messages", nil)
	conforms("POST", "/outbound/batch", "/outbound/batch", object{"partial": true, "messages": []object{mail(nil), {}, mail(object{"from_email": "x@rival.test"})}})
	conforms("POST", "/outbound/batch", "/outbound/batch", object{"messages": []object{mail(nil), {}}})
	later := time.Now().Add(time.Hour)
	sent = into(t, conforms("POST", "/outbound/send", "/outbound/send", mail(object{"send_at": later})))["id"].(string)
	conforms("PATCH", "/outbound/messages/"+sent, "/outbound/messages/{id}", object{"send_at": later})
	conforms("POST", "/outbound/messages/"+sent+"/retry", "/outbound/messages/{id}/retry", nil)
	conforms("POST", "/outbound/messages/"+sent+"/cancel", "/outbound/messages/{id}/cancel", nil)
	conforms("POST", "/outbound/messages/"+sent+"/cancel", "/outbound/messages/{id}/cancel", nil)
	conforms("POST", "/outbound/send", "/outbound/send", mail(object{"thread_id": "a"}))
	conforms("GET", "/threads/a", "/threads/{id}", nil)
	conforms("GET", "/events", "/events", nil)

	// The example of a send is valid, except for its sender.
	send := doc.Components.Schemas["SendRequest"].Value
	example := object{}
	for field, property := range send.Properties {
		if examples := property.Value.Examples; len(examples) > 0 {
			example[field] = examples[0]
		}
	}
	text, err := json.Marshal(example)
	if err != nil || len(example) < 10 {
		t.Fatalf("%v in %s", err, text)
	}
	refused(t, fmt.Sprintf("the example %s", text), s.API("POST", "/outbound/send", string(text)), 403, "sender_not_allowed")
}

// Many servers run concurrently in one process, for the race detector.
func TestManyServers(t *testing.T) {
	for i := range 3 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := servertest.Start(t)
			for range 5 {
				refused(t, "a bad body", s.API("POST", "/domains", "{}"), 422, "validation_failed", "name required")
				document(t, s)
			}
		})
	}
}
