// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// route is an operation of the API in its own description.
type route struct {
	method, path string // path below /api/v1
	id           string
	scope        string
	body         bool
}

var scopeText = regexp.MustCompile("scope `([a-z_]+(?:\\.[a-z]+)?)`")

// describe loads the OpenAPI document with a third-party library.
func describe(t *testing.T, s *servertest.Server) (*openapi3.T, []route) {
	t.Helper()
	answer := s.APIWithKey("", "GET", "/openapi.json", nil)
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

// at returns the path with the account's own resource in it; ok is false for a path without one.
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

// Every operation: it rejects requests without a key, with a key of another scope, for another
// account's resources, and with unknown fields.
func TestEveryRoute(t *testing.T) {
	s := servertest.Start(t)
	_, routes := describe(t, s)
	ids, valid := owned(t, s), bodies(t, s)
	stranger, err := s.Accounts.Create(t.Context(), "stranger@example.org", "Stranger")
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := s.Accounts.CreateKey(t.Context(), stranger.ID, account.KeyParams{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	unscoped := func(scope string) string { // a key with every scope except that one
		resource, _, _ := strings.Cut(scope, ".")
		scopes := slices.DeleteFunc(account.Scopes(), func(s string) bool { return s == scope || s == resource+".write" || s == account.ScopeAll })
		var k struct{ Key string }
		s.API("POST", "/api-keys", map[string]any{"name": "without " + scope, "scopes": scopes}).Decode(t, &k)
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
			expect := func(a servertest.Response, status int, code string) {
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
				a.Decode(t, &p)
				if p.Status != status || p.Title == "" || p.Detail == "" || p.Type == "" || p.RequestID == "" || code != "" && p.Code != code {
					t.Errorf("the problem is %s", a.Body)
				}
			}
			whose := s.Dev.APIKey
			if r.scope == account.ScopeOperator { // resources of all accounts
				expect(s.API(r.method, path, body), 403, "missing_scope")
				expect(s.APIWithKey(foreign, r.method, path, body), 403, "missing_scope")
				whose, single = operator, false
			} else {
				expect(s.APIWithKey(operator, r.method, path, body), 403, "missing_scope")
			}
			expect(s.APIWithKey("", r.method, path, body), 401, "")
			expect(s.APIWithKey("ms_"+strings.Repeat("a", 52), r.method, path, body), 401, "")
			expect(s.APIWithKey(unscoped(r.scope), r.method, path, body), 403, "")
			if single {
				expect(s.APIWithKey(foreign, r.method, path, body), 404, "not_found")
				// A valid id that doesn't exist.
				other := strings.Replace(path, idIn(ids, r.path), "01999999-0000-7000-8000-000000000000", 1)
				expect(s.APIWithKey(foreign, r.method, other, body), 404, "not_found")
				expect(s.APIWithKey(foreign, r.method, strings.Replace(path, idIn(ids, r.path), "nonsense", 1), body), 404, "not_found")
			}
			if r.body {
				more := maps.Clone(valid[r.id])
				more["no_such_field"] = "s3cret-Value"
				a := s.APIWithKey(whose, r.method, path, more)
				expect(a, 422, "")
				var p struct {
					Errors []struct{ Field, Code string }
				}
				a.Decode(t, &p)
				if len(p.Errors) != 1 || p.Errors[0].Field != "no_such_field" || strings.Contains(string(a.Body), "s3cret") {
					t.Errorf("an unknown field: %s", a.Body)
				}
			} else if r.scope == account.ScopeOperator {
				expect(s.APIWithKey(operator, r.method, path+"?no_such_parameter=1", nil), 422, "")
			} else if r.method == http.MethodGet && !single {
				expect(s.APIWithKey(foreign, r.method, path+"?no_such_parameter=1", nil), 422, "")
				if r.id == "streamEvents" {
					return // it never ends; access to it is tested elsewhere
				}
				if a := s.APIWithKey(foreign, r.method, path, nil); a.Status != 200 || bytes.Contains(a.Body, []byte(s.Dev.Domain.ID.String())) || bytes.Contains(a.Body, []byte("demo.test")) {
					t.Errorf("a stranger sees %d %s", a.Status, a.Body)
				}
			}
		})
	}

	// Other accounts' ids in a request's body or query count as missing.
	if a := s.APIWithKey(foreign, "POST", "/mailboxes", valid["createMailbox"]); a.Status != 422 || !bytes.Contains(a.Body, []byte(`"domain_id"`)) {
		t.Errorf("a mailbox under another's domain: %d %s", a.Status, a.Body)
	}
	if a := s.APIWithKey(foreign, "POST", "/outbound/send", valid["send"]); a.Status != 403 || !bytes.Contains(a.Body, []byte(`"sender_not_allowed"`)) {
		t.Errorf("a send from another's domain: %d %s", a.Status, a.Body)
	}
	for _, path := range []string{"/mailboxes?domain_id=" + s.Dev.Domain.ID.String(), "/events?message=" + ids["/outbound/messages/{id}"]} {
		if a := s.APIWithKey(foreign, "GET", path, nil); a.Status == 200 && !bytes.Contains(a.Body, []byte(`"data":[]`)) {
			t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	// None of this changed anything.
	if after := s.API("GET", "/mailboxes/"+ids["/mailboxes/{id}"], nil); after.Status != 200 || !bytes.Equal(before.Body, after.Body) {
		t.Errorf("the mailbox was %s and is %s", before.Body, after.Body)
	}
	if a := s.API("GET", "/domains/"+ids["/domains/{id}"], nil); a.Status != 200 {
		t.Errorf("the domain: %d %s", a.Status, a.Body)
	}
}

// operatorKey creates a key like the operator's command line.
func operatorKey(t *testing.T, s *servertest.Server) string {
	t.Helper()
	_, key, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// idIn returns the account's own id for a path with {id}.
func idIn(ids map[string]string, path string) string {
	return ids[path[:strings.IndexByte(path, '}')+1]]
}
