// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// route is an operation of the API as its own description has it.
type route struct {
	method, path string // path below /api/v1
	id           string
	scope        string
	body         bool
}

var scopeText = regexp.MustCompile("scope `([a-z_]+(?:\\.[a-z]+)?)`")

// describe loads the OpenAPI document with a library that is not ours.
func describe(t *testing.T, s *servertest.Server) (*openapi3.T, []route) {
	t.Helper()
	answer := s.As("", "GET", "/openapi.json", nil)
	if answer.Status != 200 {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	doc, err := openapi3.NewLoader().LoadFromData(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []route
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		for method, op := range doc.Paths.Value(path).Operations() {
			r := route{method: method, path: strings.TrimPrefix(path, "/api/v1"), id: op.OperationID, body: op.RequestBody != nil && op.RequestBody.Value.Content["application/json"] != nil}
			m := scopeText.FindStringSubmatch(op.Description)
			if m == nil {
				t.Errorf("%s %s does not say which scope it needs", method, path)
				continue
			}
			r.scope = m[1]
			all = append(all, r)
		}
	}
	if len(all) < 20 {
		t.Errorf("there are only %d operations", len(all))
	}
	return doc, all
}

// bodies are requests that are valid but for what the account may do. A new
// operation that takes a body is entered here.
func bodies(t *testing.T, s *servertest.Server) map[string]map[string]any {
	var walked struct{ ID string }
	s.API("POST", "/templates", map[string]any{"name": "walk", "subject": "walk", "text": "walk"}).Into(t, &walked)
	return map[string]map[string]any{
		"createAPIKey":       {"name": "walk"},
		"createAlias":        {"address": "walk@demo.test", "targets": []string{"bob@demo.test"}},
		"updateAlias":        {"targets": []string{"bob@demo.test"}},
		"createAppPassword":  {"name": "walk"},
		"createAppleProfile": {"name": "walk"},
		"createDomain":       {"name": "walk.test"},
		"createMailbox":      {"domain_id": s.Dev.Domain.ID.String(), "local_part": "walk"},
		"updateDomain":       {"dkim_rotation_days": 90, "dmarc_enforcement": "junk", "spam_filtering": "junk", "mta_sts": "enforce"},
		"addDKIMKey":         {"selector": "own", "private_key": ownKey},
		"rotateDKIM":         {"algorithm": "ed25519"},
		"updateMailbox":      {"display_name": "Walked over", "forward_to": []string{"alice@demo.test"}, "keep_copy": true},
		"setVacation":        {"text": "walk"},
		"setMailboxPassword": {"password": "Walked-0ver!"},
		"simulateInbound":    {"from": "walk@elsewhere.example.net", "to": []string{"bob@demo.test"}, "text": "walk", "verdicts": map[string]any{"spf": "pass"}},
		"addSuppression":     {"address": "gone@elsewhere.example.net"},
		"addSuppressions":    {"addresses": []string{"gone@elsewhere.example.net"}},
		"createTemplate":     {"name": "walk", "subject": "walk", "text": "walk"},
		"updateTemplate":     {"text": "walked"},
		"publishTemplate":    {"version": 1},
		"renderTemplate":     {"variables": map[string]any{}},
		"duplicateTemplate":  {"name": "walk"},
		"sendTemplate":       {"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "template_id": walked.ID, "variables": map[string]any{}},
		"sendBatch":          {"messages": []any{map[string]any{"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "walk", "text": "walk"}}},
		"retryQueue":         {"destination": "nowhere.test", "dry_run": true},
		"holdQueue":          {"destination": "nowhere.test", "dry_run": true},
		"releaseQueue":       {"destination": "nowhere.test", "dry_run": true},
		"dropQueue":          {"destination": "nowhere.test", "dry_run": true},
		"setAccountLimits":   {"sends_per_hour": 1_000_000},
		"createAccount":      {"email": "walked@customer.example"},
		"updateAccount":      {"status": "active"},
		"rescheduleMessage":  {"send_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		"send":               {"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "walk", "text": "walk"},

		"createWebhook":       {"url": "http://localhost:65535/walk", "events": []string{"domain_verified"}},
		"updateWebhook":       {"description": "walked"},
		"rotateWebhookSecret": {"overlap_hours": 1},
		"testWebhook":         {"event": "bounce"},

		"testMigrationSource": {"source": map[string]any{"host": "localhost", "port": s.Dev.Ports["imaps"], "username": s.Dev.Mailboxes[1].Address, "password": s.Dev.Mailboxes[1].Password, "insecure_skip_verify": true}},
		"createMigration":     {"mailbox_id": s.Dev.Mailboxes[1].ID.String(), "source": map[string]any{"host": "localhost", "port": 1, "tls": "none", "username": "walk", "password": "walk"}},
	}
}

// ownKey is an Ed25519 key that signs nothing.
const ownKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"

// owned makes one of each resource for the demonstration account: ids by path.
// A new resource is entered here.
func owned(t *testing.T, s *servertest.Server) map[string]string {
	t.Helper()
	made := func(path string, body any) string {
		answer := s.API("POST", path, body)
		if answer.Status != 201 && answer.Status != 202 {
			t.Fatalf("POST %s: %d %s", path, answer.Status, answer.Body)
		}
		var one struct{ ID string }
		answer.Into(t, &one)
		return one.ID
	}
	return map[string]string{
		"/aliases/{id}":      made("/aliases", map[string]any{"address": "team@demo.test", "targets": []string{"bob@demo.test"}}),
		"/api-keys/{id}":     made("/api-keys", map[string]any{"name": "mine"}),
		"/domains/{id}":      made("/domains", map[string]any{"name": "mine.test"}),
		"/mailboxes/{id}":    s.Dev.Mailboxes[1].ID.String(),
		"/templates/{id}":    made("/templates", bodies(t, s)["createTemplate"]),
		"/webhooks/{id}":     made("/webhooks", bodies(t, s)["createWebhook"]),
		"/migrations/{id}":   made("/migrations", bodies(t, s)["createMigration"]),
		"/suppressions/{id}": made("/suppressions", map[string]any{"address": "left@elsewhere.example.net"}),
		"/threads/{id}": func() string {
			message := bodies(t, s)["send"]
			message["thread_id"] = "walked"
			made("/outbound/send", message)
			return "walked"
		}(),
		"/outbound/messages/{id}":       made("/outbound/send", bodies(t, s)["send"]),
		"/sandbox/outbox/{id}":          captured(t, s, made),
		"/operator/queue/messages/{id}": made("/outbound/send", bodies(t, s)["send"]),
		"/operator/accounts/{id}": func() string {
			acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
			if err != nil {
				t.Fatal(err)
			}
			return acc.ID.String()
		}(),
	}
}

// captured sends to the outside, and returns the id of what was captured.
func captured(t *testing.T, s *servertest.Server, made func(path string, body any) string) string {
	t.Helper()
	made("/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"x@elsewhere.example.net"}, "subject": "walk", "text": "walk"})
	quiet(t, s)
	var all struct{ Data []struct{ ID string } }
	s.API("GET", "/sandbox/outbox", nil).Into(t, &all)
	if len(all.Data) == 0 {
		t.Fatal("nothing was captured")
	}
	return all.Data[0].ID
}

// at returns the path with the account's own resource in it; ok is false for a
// path that has none.
func at(t *testing.T, ids map[string]string, path string) (full string, ok bool) {
	t.Helper()
	path = strings.Replace(path, "/versions/{version}", "/versions/1", 1)
	path = strings.Replace(path, "/dkim/{key}", "/dkim/01999999-0000-7000-8000-000000000000", 1)
	path = strings.Replace(path, "/app-passwords/{password}", "/app-passwords/01999999-0000-7000-8000-000000000000", 1)
	path = strings.Replace(path, "/deliveries/{delivery}", "/deliveries/01999999-0000-7000-8000-000000000000", 1)
	path = strings.Replace(path, "/messages/{message}", "/messages/01999999-0000-7000-8000-000000000000", 1)
	path = strings.Replace(path, "/attachments/{n}", "/attachments/0", 1)
	open := strings.IndexByte(path, '{')
	if open < 0 {
		return path, false
	}
	end := strings.IndexByte(path, '}')
	id, known := ids[path[:end+1]]
	if !known || strings.ContainsRune(path[end+1:], '{') {
		t.Errorf("%s: this test does not know such a resource; enter it in owned", path)
	}
	return path[:open] + id + path[end+1:], true
}

// Every operation: nothing without a key, nothing with a key of another scope,
// nothing of another account's, and no field that it does not know.
func TestEveryRoute(t *testing.T) {
	s := servertest.Start(t)
	_, routes := describe(t, s)
	ids, valid := owned(t, s), bodies(t, s)
	stranger, err := s.Accounts.Create(t.Context(), "stranger@example.org", "Stranger")
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := s.Accounts.CreateKey(t.Context(), stranger.ID, account.NewKey{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	unscoped := func(scope string) string { // a key with every scope but that one
		resource, _, _ := strings.Cut(scope, ".")
		scopes := slices.DeleteFunc(account.Scopes(), func(s string) bool { return s == scope || s == resource+".write" || s == account.All })
		var k struct{ Key string }
		s.API("POST", "/api-keys", map[string]any{"name": "without " + scope, "scopes": scopes}).Into(t, &k)
		return k.Key
	}
	operator := operatorKey(t, s)
	quiet(t, s)
	before := s.API("GET", "/mailboxes/"+ids["/mailboxes/{id}"], nil)

	for _, r := range routes {
		t.Run(r.id, func(t *testing.T) {
			var body any
			if r.body {
				if valid[r.id] == nil {
					t.Fatal("this test does not know a valid request; enter it in bodies")
				}
				body = valid[r.id]
			}
			path, single := at(t, ids, r.path)
			expect := func(a servertest.Answer, status int, code string) {
				t.Helper()
				var p struct {
					Code      string
					Status    int
					Type      string
					Title     string
					Detail    string
					RequestID string `json:"request_id"`
				}
				if a.Status != status || a.Header.Get("Content-Type") != "application/problem+json" {
					t.Fatalf("%d %s %s, not a problem with %d", a.Status, a.Header.Get("Content-Type"), a.Body, status)
				}
				a.Into(t, &p)
				if p.Status != status || p.Title == "" || p.Detail == "" || p.Type == "" || p.RequestID == "" || code != "" && p.Code != code {
					t.Errorf("the problem is %s", a.Body)
				}
			}
			whose := s.Dev.APIKey
			if r.scope == account.Operator { // what is of all accounts
				expect(s.API(r.method, path, body), 403, "missing_scope")
				expect(s.As(foreign, r.method, path, body), 403, "missing_scope")
				whose, single = operator, false
			} else {
				expect(s.As(operator, r.method, path, body), 403, "missing_scope")
			}
			expect(s.As("", r.method, path, body), 401, "")
			expect(s.As("ms_"+strings.Repeat("a", 52), r.method, path, body), 401, "")
			expect(s.As(unscoped(r.scope), r.method, path, body), 403, "")
			if single {
				expect(s.As(foreign, r.method, path, body), 404, "not_found")
				// It looks like an id that nobody has.
				other := strings.Replace(path, idIn(ids, r.path), "01999999-0000-7000-8000-000000000000", 1)
				expect(s.As(foreign, r.method, other, body), 404, "not_found")
				expect(s.As(foreign, r.method, strings.Replace(path, idIn(ids, r.path), "nonsense", 1), body), 404, "not_found")
			}
			if r.body {
				more := maps.Clone(valid[r.id])
				more["no_such_field"] = "s3cret-Value"
				a := s.As(whose, r.method, path, more)
				expect(a, 422, "")
				var p struct {
					Errors []struct{ Field, Code string }
				}
				a.Into(t, &p)
				if len(p.Errors) != 1 || p.Errors[0].Field != "no_such_field" || strings.Contains(string(a.Body), "s3cret") {
					t.Errorf("an unknown field: %s", a.Body)
				}
			} else if r.scope == account.Operator {
				expect(s.As(operator, r.method, path+"?no_such_parameter=1", nil), 422, "")
			} else if r.method == http.MethodGet && !single {
				expect(s.As(foreign, r.method, path+"?no_such_parameter=1", nil), 422, "")
				if r.id == "streamEvents" {
					return // it has no end; what a stranger sees there is tested with it
				}
				if a := s.As(foreign, r.method, path, nil); a.Status != 200 || bytes.Contains(a.Body, []byte(s.Dev.Domain.ID.String())) || bytes.Contains(a.Body, []byte("demo.test")) {
					t.Errorf("a stranger sees %d %s", a.Status, a.Body)
				}
			}
		})
	}

	// Ids of others in a request's body or query are as good as none.
	if a := s.As(foreign, "POST", "/mailboxes", valid["createMailbox"]); a.Status != 422 || !bytes.Contains(a.Body, []byte(`"domain_id"`)) {
		t.Errorf("a mailbox under another's domain: %d %s", a.Status, a.Body)
	}
	if a := s.As(foreign, "POST", "/outbound/send", valid["send"]); a.Status != 403 || !bytes.Contains(a.Body, []byte(`"sender_not_allowed"`)) {
		t.Errorf("a send from another's domain: %d %s", a.Status, a.Body)
	}
	for _, path := range []string{"/mailboxes?domain_id=" + s.Dev.Domain.ID.String(), "/events?message=" + ids["/outbound/messages/{id}"]} {
		if a := s.As(foreign, "GET", path, nil); a.Status == 200 && !bytes.Contains(a.Body, []byte(`"data":[]`)) {
			t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	// And nothing of all that changed anything.
	if after := s.API("GET", "/mailboxes/"+ids["/mailboxes/{id}"], nil); after.Status != 200 || !bytes.Equal(before.Body, after.Body) {
		t.Errorf("the mailbox was %s and is %s", before.Body, after.Body)
	}
	if a := s.API("GET", "/domains/"+ids["/domains/{id}"], nil); a.Status != 200 {
		t.Errorf("the domain: %d %s", a.Status, a.Body)
	}
}

// operatorKey makes a key as the operator's command line does.
func operatorKey(t *testing.T, s *servertest.Server) string {
	t.Helper()
	_, key, err := s.Accounts.CreateKey(t.Context(), account.Operators, account.NewKey{Name: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// idIn is the account's own id for a path with {id}.
func idIn(ids map[string]string, path string) string {
	return ids[path[:strings.IndexByte(path, '}')+1]]
}

// checked is a client whose requests and answers are held against the OpenAPI
// document.
type checked struct {
	t      *testing.T
	s      *servertest.Server
	key    string
	router routers.Router
	seen   map[string]bool
}

// call makes a call and returns the answer, which has to have the status. A
// request that is to be refused need not be as the document says.
func (c *checked) call(method, path string, body any, status int) servertest.Answer {
	c.t.Helper()
	if body == nil {
		return c.send(method, path, "", nil, status)
	}
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.send(method, path, "application/json", text, status)
}

// file sends a file.
func (c *checked) file(path, media, text string, status int) servertest.Answer {
	c.t.Helper()
	return c.send("POST", path, media, []byte(text), status)
}

func (c *checked) send(method, path, media string, text []byte, status int) servertest.Answer {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.s.Dev.BaseURL+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	find, err := http.NewRequest(method, "/api/v1"+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	op, params, err := c.router.FindRoute(find)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	c.seen[op.Operation.OperationID] = true
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: op, Options: options}
	if status < 400 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			c.t.Errorf("%s %s: the document does not allow this request: %v", method, path, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != status {
		c.t.Fatalf("%s %s: %d %s, not %d", method, path, resp.StatusCode, answer, status)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: options}
	out.SetBodyBytes(answer)
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		c.t.Errorf("%s %s: the answer is not as the document says: %v\n%s", method, path, err, answer)
	}
	return servertest.Answer{Status: resp.StatusCode, Header: resp.Header, Body: answer}
}

func (c *checked) id(method, path string, body any, status int) string {
	c.t.Helper()
	var one struct{ ID string }
	c.call(method, path, body, status).Into(c.t, &one)
	return one.ID
}

// The whole API once, each request and answer as the document describes them.
func TestDocument(t *testing.T) {
	s := servertest.Start(t)
	doc, routes := describe(t, s)
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, media := range []string{"text/dns", "text/csv", "message/rfc822", "application/octet-stream", "text/event-stream", "application/x-apple-aspen-config", "application/mbox", "application/x-tar"} {
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
	type m = map[string]any

	shop := c.id("POST", "/domains", m{"name": "shop.test"}, 201)
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

	box := c.id("POST", "/mailboxes", m{"domain_id": shop, "local_part": "till", "display_name": "Till", "quota_mb": 10}, 201)
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
	c.addresses()

	moving := m{"mailbox_id": box, "source": m{"host": "localhost", "port": 1, "tls": "none", "username": "till", "password": "Secret-1"}}
	migration := c.id("POST", "/migrations", moving, 201)
	c.call("POST", "/migrations", m{"mailbox_id": shop, "source": m{"host": "no host", "username": "", "password": "x"}}, 422)
	c.call("POST", "/migrations/test", m{"source": m{"host": "localhost", "port": c.s.Dev.Ports["imaps"], "username": "nobody@demo.test", "password": "Secret-1"}}, 422)
	c.call("GET", "/migrations", nil, 200)
	c.call("GET", "/migrations/"+migration, nil, 200)
	c.call("POST", "/migrations/"+migration+"/cancel", nil, 200)
	c.call("POST", "/migrations/"+migration+"/cancel", nil, 200)
	c.call("GET", "/migrations/"+migration+"/events", nil, 200)

	sent := c.id("POST", "/outbound/send", m{
		"from_email": "desk@shop.test", "from_name": "Shop", "to": []string{"Bob <bob@demo.test>"}, "cc": []string{"alice@demo.test"},
		"bcc": []string{"x@elsewhere.example.net"}, "reply_to": "desk@shop.test", "subject": "Grüße", "text": "text", "html": "<p>text</p>",
		"attachments": []m{{"filename": "a.txt", "content": "aGk="}}, "headers": m{"X-Order": "7"}, "metadata": m{"order": 7},
		"thread_id": "order-7", "in_reply_to": "<before@example.net>",
	}, 202)
	c.call("POST", "/outbound/send", m{"from_email": "desk@shop.test", "to": []string{}}, 422)
	c.call("POST", "/outbound/send", m{"from_email": "me@elsewhere.example.net", "to": []string{"bob@demo.test"}, "subject": "s", "text": "t"}, 403)
	quiet(t, s)
	c.call("GET", "/outbound/messages", nil, 200)
	c.call("GET", "/outbound/messages/"+sent, nil, 200)
	c.call("GET", "/outbound/messages?after=nonsense", nil, 422)
	servertest.Eventually(t, func() string {
		if a := c.call("GET", "/events?limit=100", nil, 200); strings.Count(string(a.Body), `"delivery_status"`) < 3 {
			return fmt.Sprintf("the events are %s", a.Body)
		}
		return ""
	})
	c.call("GET", "/events?type=delivery_status&message="+sent, nil, 200)
	c.call("GET", "/stats", nil, 200)
	c.call("GET", "/stats?by=hour&from="+time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)+"&domain_id="+shop, nil, 200)
	c.call("GET", "/stats?from=2020-01-01T00:00:00Z", nil, 422)

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
	c.call("POST", "/outbound/messages/"+waiting+"/cancel", nil, 409)
	c.call("POST", "/outbound/messages/"+waiting+"/retry", nil, 409)
	c.call("GET", "/threads/order-7", nil, 200)
	c.call("GET", "/threads/order-8", nil, 404)

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

	left := c.id("POST", "/suppressions", m{"address": "left@elsewhere.example.net", "reason": "unsubscribe"}, 201)
	c.call("POST", "/suppressions", m{"address": "left"}, 422)
	c.call("POST", "/suppressions/batch", m{"addresses": []string{"a@elsewhere.example.net", "b@elsewhere.example.net"}}, 201)
	c.call("GET", "/suppressions?reason=unsubscribe&limit=1", nil, 200)
	c.call("GET", "/suppressions?address=left@elsewhere.example.net", nil, 200)
	c.call("GET", "/suppressions/"+left, nil, 200)
	c.call("GET", "/suppressions/left@elsewhere.example.net", nil, 200)
	c.file("/suppressions/import", "text/csv", "email,reason\nd@elsewhere.example.net,bounce\nnobody\n", 200)
	c.file("/suppressions/import", "text/plain", "d@elsewhere.example.net", 415)
	c.call("GET", "/suppressions/export", nil, 200)
	c.call("DELETE", "/suppressions/"+left, nil, 204)
	c.call("DELETE", "/suppressions/"+left, nil, 404)

	walked := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String()
	c.file(walked+"/import?folder=Walked", "application/mbox", "From x Sat Nov 21 17:00:00 2026\nSubject: walked\n\nHello.\n", 200)
	c.file(walked+"/import", "text/plain", "Subject: walked\n", 415)
	c.file(walked+"/import", "application/x-tar", "no tar", 422)
	c.call("GET", walked+"/export?folder=Walked", nil, 200)
	c.call("GET", walked+"/export?format=maildir&folder=Walked", nil, 200)
	c.call("GET", walked+"/export?format=zip", nil, 422)
	c.call("GET", walked+"/export?folder=Nowhere", nil, 404)

	c.webhooks()
	c.mail()

	key := c.id("POST", "/api-keys", m{
		"name": "till", "scopes": []string{"outbound.send"}, "domain": "shop.test", "allowed_ips": []string{"127.0.0.1"},
		"expires_at": "2099-01-01T00:00:00Z", "limits": m{"sends_per_hour": 10, "requests_per_second": 5, "burst": 9},
	}, 201)
	c.call("GET", "/limits", nil, 200)
	limited := c.call("POST", "/api-keys", m{"name": "limited", "limits": m{"recipients_per_day": 10, "requests_per_second": 5}}, 201)
	var made struct{ Key string }
	limited.Into(t, &made)
	whole := c.key
	c.key = made.Key
	c.call("GET", "/limits", nil, 200)
	c.key = whole
	c.call("GET", "/api-keys", nil, 200)
	c.call("DELETE", "/api-keys/"+key, nil, 204)
	c.call("DELETE", "/api-keys/"+key, nil, 404)
	c.call("DELETE", "/mailboxes/"+box, nil, 204)

	c.operator(sent)
	other := c.id("POST", "/domains", m{"name": "other.test"}, 201)
	c.call("DELETE", "/domains/"+other, nil, 204)
	c.call("GET", "/events/stream?after=x", nil, 422)
	for _, r := range routes {
		if !c.seen[r.id] {
			t.Errorf("%s (%s %s) is not tried here", r.id, r.method, r.path)
		}
	}
}

// mail walks through what is in a mailbox and in the sandbox's outbox.
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
		"attachments": []m{{"filename": "a.bin", "content": "aGk="}}, "verdicts": m{"spf": "pass", "dkim": "pass", "dmarc": "pass", "spam": "ham"},
	}, 200).Into(c.t, &in)
	c.call("POST", "/sandbox/inbound", m{"raw": "U3ViamVjdDogaGkNCg0KaGkNCg==", "rcpt_to": []string{"nobody@demo.test"}}, 200)
	c.call("POST", "/sandbox/inbound", m{"raw": "?"}, 422)
	mails := "/mailboxes/" + in.Recipients[0].Mailbox + "/messages"
	c.call("GET", mails+"?folder=INBOX&from=elsewhere.example.net&subject=gr&since=2026-01-31T00:00:00Z", nil, 200)
	c.call("GET", mails+"?folder=nowhere", nil, 422)
	one := mails + "/" + in.Recipients[0].ID
	c.call("GET", one, nil, 200)
	c.call("GET", mails+"/01999999-0000-7000-8000-000000000000", nil, 404)
	c.call("GET", one+"/raw", nil, 200)
	c.call("GET", one+"/attachments/0", nil, 200)
	c.call("GET", one+"/attachments/1", nil, 404)
	var out struct{ Data []struct{ ID string } }
	c.call("GET", "/sandbox/outbox?limit=1", nil, 200).Into(c.t, &out)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID, nil, 200)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID+"/raw", nil, 200)
	c.call("DELETE", "/sandbox/outbox", nil, 204)
	c.call("GET", "/sandbox/outbox/"+out.Data[0].ID, nil, 404)
}

// operator walks through what operators have; sent is a message.
func (c *checked) operator(sent string) {
	c.t.Helper()
	type m = map[string]any
	const queue = "/operator/queue/"
	customer := c.key
	c.call("GET", queue+"holds", nil, 403)
	c.key = operatorKey(c.t, c.s)
	c.call("POST", queue+"hold", m{"destination": "held.example.net", "reason": "they asked"}, 200)
	c.call("POST", queue+"hold", m{}, 422)
	c.call("GET", queue+"holds", nil, 200)
	c.key = customer
	held := c.id("POST", "/outbound/send", m{"from_email": "desk@shop.test", "to": []string{"x@held.example.net"}, "subject": "s", "text": "t"}, 202)
	c.key = operatorKey(c.t, c.s)
	c.call("POST", queue+"hold", m{"message": held, "once": true}, 200) // the node may not have heard of the other
	servertest.Eventually(c.t, func() string {
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
	c.call("POST", queue+"drop", m{"message": held, "reason": "gone", "silent": true, "wait": 5}, 200)
	c.call("POST", queue+"drop", m{"message": held, "wait": 31}, 422)
	c.call("POST", queue+"release", m{"destination": "held.example.net"}, 200)
	acc, err := c.s.Accounts.ByEmail(c.t.Context(), "you@demo.test")
	if err != nil {
		c.t.Fatal(err)
	}
	c.call("PUT", "/operator/accounts/"+acc.ID.String()+"/limits", m{"sends_per_hour": 900_000, "storage_mb": 0}, 200)
	c.call("PUT", "/operator/accounts/"+acc.ID.String()+"/limits", m{"burst": -1}, 422)
	c.call("GET", "/operator/accounts/"+acc.ID.String()+"/limits", nil, 200)
	other := c.id("POST", "/operator/accounts", m{"email": "other@customer.example", "name": "Other"}, 201)
	c.call("POST", "/operator/accounts", m{"email": "other@customer.example"}, 409)
	c.call("POST", "/operator/accounts", m{"email": "none", "name": "a\nb"}, 422)
	c.call("GET", "/operator/accounts?limit=1", nil, 200)
	c.call("GET", "/operator/accounts/"+other, nil, 200)
	c.call("PATCH", "/operator/accounts/"+other, m{"status": "suspended"}, 200)
	c.call("PATCH", "/operator/accounts/"+other, m{"status": "gone"}, 422)
	c.call("PATCH", "/operator/accounts/"+account.Operators.String(), m{"status": "suspended"}, 404)
	c.key = customer
}
