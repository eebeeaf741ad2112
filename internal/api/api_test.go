// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Unknown paths below /api get a problem; all others belong to the dashboard.
func TestNoSuchEndpoint(t *testing.T) {
	s := servertest.Start(t)
	for _, path := range []string{"/api", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/domains", "/api/v1//domains",
		"/api/v1/domains/../domains", "/api/v1/./domains", "/api/v1/threads", "/api/v1/openapi.yaml", "/api/v1/openapi-3.0.json"} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS", "BREW"} {
			refused(t, method+" "+path, call(t, s, method, path, nil, nil), 404, "no_such_endpoint")
		}
	}
	for _, path := range []string{"/domains/", "/domains/x/verify/", "/mailboxes/x/y"} {
		a := s.API("GET", path, nil)
		if a.Status != 404 || a.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

func TestMethods(t *testing.T) {
	s := servertest.Start(t)
	for path, allow := range map[string]string{
		"/domains": "GET, HEAD, POST", "/domains/x": "GET, HEAD, PATCH, DELETE", "/domains/x/verify": "GET, HEAD, POST", "/domains/x/verify-dns": "POST",
		"/mailboxes/x": "GET, HEAD, PATCH, DELETE", "/outbound/send": "POST", "/events": "GET, HEAD", "/openapi.json": "GET, HEAD",
	} {
		for _, method := range []string{"PUT", "OPTIONS", "BREW"} {
			a := s.API(method, path, nil)
			refused(t, method+" "+path, a, 405, "method_not_allowed")
			if got := a.Header.Get("Allow"); got != allow {
				t.Errorf("%s: Allow: %s, want %s", path, got, allow)
			}
		}
	}
	a := s.API("HEAD", "/domains", nil)
	if a.Status != 200 || len(a.Body) != 0 || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v %s", a.Status, a.Header, a.Body)
	}
}

func TestAuthentication(t *testing.T) {
	s := servertest.Start(t)
	for what, c := range map[string]struct{ header, code, challenge string }{
		"none":         {"", "api_key_required", `Bearer realm="mailstead"`},
		"basic":        {"Basic YTpi", "api_key_required", `Bearer realm="mailstead", error="invalid_token"`},
		"empty":        {"Bearer ", "api_key_required", `Bearer realm="mailstead", error="invalid_token"`},
		"unknown":      {"Bearer ms_x", "invalid_api_key", `Bearer realm="mailstead", error="invalid_token"`},
		"mistyped":     {"Bearer " + s.Dev.APIKey + "x", "invalid_api_key", `Bearer realm="mailstead", error="invalid_token"`},
		"without type": {s.Dev.APIKey, "api_key_required", `Bearer realm="mailstead", error="invalid_token"`},
	} {
		a := call(t, s, "GET", "/api/v1/domains", map[string]string{"Authorization": c.header}, nil)
		if c.header == "" {
			a = s.APIWithKey("", "GET", "/domains", nil)
		}
		refused(t, what, a, 401, c.code)
		if got := a.Header.Get("WWW-Authenticate"); got != c.challenge {
			t.Errorf("%s: %s, want %s", what, got, c.challenge)
		}
	}
	a := call(t, s, "GET", "/api/v1/domains", map[string]string{"Authorization": "bearer  " + s.Dev.APIKey}, nil)
	status(t, "the scheme in lower case", a, 200)
	// The API checks the key before the request's content.
	refused(t, "a bad body without a key", s.APIWithKey("", "POST", "/domains", "{"), 401, "api_key_required")
}

func TestBodies(t *testing.T) {
	s := servertest.Start(t)
	const domains, send, keys = "/domains", "/outbound/send", "/api-keys"
	secret := "Tr0ub4dor&3"
	for what, c := range map[string]struct {
		path, body, code string
		status           int
		faults           []string
	}{
		"nothing":            {domains, "", "invalid_json", 400, nil},
		"no JSON":            {domains, `name=` + secret, "invalid_json", 400, nil},
		"cut off":            {domains, `{"name":"` + secret, "invalid_json", 400, nil},
		"two values":         {domains, `{"name":"a.test"} {}`, "invalid_json", 400, nil},
		"duplicate names":    {domains, `{"name":"a.test","name":"b.test"}`, "invalid_json", 400, nil},
		"escaped duplicates": {domains, `{"name":"a.test","n\u0061me":"b.test"}`, "invalid_json", 400, nil},
		"invalid UTF-8":      {domains, "{\"name\":\"a\xff.test\"}", "invalid_json", 400, nil},
		"half a surrogate":   {domains, `{"name":"\ud800"}`, "invalid_json", 400, nil},
		"too deep":           {domains, `{"name":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "invalid_json", 400, nil},
		"far too deep":       {domains, strings.Repeat("[", 500_000), "invalid_json", 400, nil},
		"too many values":    {domains, `{"x":[` + strings.Repeat("0,", 30_000) + `0]}`, "too_many_values", 413, nil},
		"too long":           {domains, `{"name":"` + strings.Repeat("x", 1<<20) + `"}`, "body_too_large", 413, nil},
		"a list":             {domains, `[]`, "validation_failed", 422, []string{"body wrong_type"}},
		"null":               {domains, `null`, "validation_failed", 422, []string{"body wrong_type"}},
		"a string":           {domains, `"x"`, "validation_failed", 422, []string{"body wrong_type"}},
		"nothing in it":      {domains, `{}`, "validation_failed", 422, []string{"name required"}},
		"a null name":        {domains, `{"name":null}`, "validation_failed", 422, []string{"name required"}},
		"a number as name":   {domains, `{"name":7}`, "validation_failed", 422, []string{"name wrong_type"}},
		"no domain":          {domains, `{"name":"` + secret + `"}`, "validation_failed", 422, []string{"name invalid_domain"}},
		"unknown fields":     {domains, `{"name":"a.test","password":"` + secret + `","Name":1}`, "validation_failed", 422, []string{"password unknown_field", "Name unknown_field"}},
		"all at once":        {keys, `{"scopes":"*","domain":1,"allowed_ips":[1],"expires_at":"` + secret + `","x":{"y":1}}`, "validation_failed", 422, []string{"scopes wrong_type", "domain wrong_type", "allowed_ips[0] wrong_type", "expires_at invalid_time", "x unknown_field", "name required"}},
		"a year of 5 digits": {keys, `{"name":"x","expires_at":"9999-12-31T23:59:59-12:00"}`, "validation_failed", 422, []string{"expires_at invalid_time"}},
		"send: nothing":      {send, "", "invalid_json", 400, nil},
		"send: cut off":      {send, `{"to":[`, "invalid_json", 400, nil},
		"send: two values":   {send, `{} {}`, "invalid_json", 400, nil},
		"send: duplicates":   {send, `{"to":[],"to":[]}`, "invalid_json", 400, nil},
		"send: UTF-8":        {send, "{\"subject\":\"\xff\"}", "invalid_json", 400, nil},
		"send: deep":         {send, `{"metadata":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100) + `}`, "invalid_json", 400, nil},
		"send: far too deep": {send, strings.Repeat("[", 1_000_000), "invalid_json", 400, nil},
		"send: many values":  {send, `{"to":[` + strings.Repeat("1,", 30_000) + `1]}`, "too_many_values", 413, nil},
		"send: a list":       {send, `[]`, "validation_failed", 422, []string{"body wrong_type"}},
		"send: types":        {send, `{"to":"x","subject":5,"metadata":[],"headers":{"X-A":1},"bogus":1,"attachments":[{"contents":"","filename":1}]}`, "validation_failed", 422, []string{"to wrong_type", "subject wrong_type", "metadata wrong_type", "headers.X-A wrong_type", "bogus unknown_field", "attachments[0].contents unknown_field", "attachments[0].filename wrong_type", "attachments[0].content required", "from_email invalid_address", "text text_or_html_required"}},
		"send: contents": {send, `{"attachments":[{"content":null},{"content":0},{"content":"@"},{"content":{}},{},{"content":"aGk"},{"content":"aGk="}]}`, "validation_failed", 422, []string{"attachments[0].content required", "attachments[1].content wrong_type", "attachments[2].content invalid_base64", "attachments[3].content wrong_type", "attachments[5].content invalid_base64", "attachments[4].content required", "from_email invalid_address", "to required", "subject required", "text text_or_html_required",
			"attachments[0].filename required", "attachments[1].filename required", "attachments[2].filename required", "attachments[3].filename required", "attachments[4].filename required", "attachments[5].filename required", "attachments[6].filename required"}},
		"send: empty":          {send, `{}`, "validation_failed", 422, []string{"from_email invalid_address", "to required", "subject required", "text text_or_html_required"}},
		"send: a null subject": {send, `{"from_email":"alice@demo.test","to":["bob@demo.test"],"subject":null,"text":"x"}`, "validation_failed", 422, []string{"subject required"}},
	} {
		a := s.API("POST", c.path, c.body)
		refused(t, what, a, c.status, c.code, c.faults...)
		if bytes.Contains(a.Body, []byte(secret)) {
			t.Errorf("%s: the answer repeats a value: %s", what, a.Body)
		}
	}
	if a := s.API("POST", domains, `{`+strings.Repeat(`"`+strings.Repeat("k", 200)+`":1,`, 1)+`"name":"b.test"}`); len(a.Body) > 1000 {
		t.Errorf("a long name is told in full: %s", a.Body)
	}
}

func TestContentTypes(t *testing.T) {
	s := servertest.Start(t)
	for _, path := range []string{"/api/v1/domains", "/api/v1/outbound/send"} {
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/cbor", "application/foo+json", "application/json; charset=latin1", "json", ";"} {
			refused(t, path+" "+kind, call(t, s, "POST", path, map[string]string{"Content-Type": kind}, newReader(`{"name":"a.test"}`)), 415, "unsupported_media_type")
		}
		refused(t, "compressed", call(t, s, "POST", path, map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, newReader("x")), 415, "unsupported_media_type")
	}
	a := call(t, s, "POST", "/api/v1/domains", map[string]string{"Content-Type": "Application/JSON; charset=UTF-8", "Accept": "text/html"}, newReader(`{"name":"a.test"}`))
	status(t, "JSON with its charset", a, 201)
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type: %s", got)
	}
}

func TestQueries(t *testing.T) {
	s := servertest.Start(t)
	for query, faults := range map[string][]string{
		"limit=0": {"limit out_of_range"}, "limit=101": {"limit out_of_range"}, "limit=99999999999999999999": {"limit out_of_range"}, "limit=-1": {"limit out_of_range"},
		"limit=ten": {"limit wrong_type"}, "limit=1.5": {"limit wrong_type"}, "limit=1&limit=2": {"limit given_twice"},
		"after=x": {"after invalid_cursor"}, "before=x&after=y": {"before conflicting_cursors", "after invalid_cursor"},
		"offset=5": {"offset unknown_parameter"}, "b=1&a=2&limit=x": {"limit wrong_type", "a unknown_parameter", "b unknown_parameter"}, "Limit=5": {"Limit unknown_parameter"},
	} {
		for _, path := range []string{"/domains", "/mailboxes", "/api-keys", "/outbound/messages"} {
			refused(t, path+"?"+query, s.API("GET", path+"?"+query, nil), 422, "validation_failed", faults...)
		}
	}
	refused(t, "%zz", s.API("GET", "/domains?a=%zz", nil), 400, "invalid_query")
	refused(t, "deleted", s.API("GET", "/mailboxes?deleted=maybe", nil), 422, "validation_failed", "deleted wrong_type")
	refused(t, "domain_id", s.API("GET", "/mailboxes?domain_id=x&after=y", nil), 422, "validation_failed", "domain_id not_found", "after invalid_cursor")
	for _, path := range []string{"/domains/x", "/domains/x/zone", "/mailboxes/x", "/outbound/messages/x"} {
		refused(t, path, s.API("GET", path+"?x=1", nil), 422, "validation_failed", "x unknown_parameter")
	}
	refused(t, "send", s.API("POST", "/outbound/send?dry=1", mail(nil)), 422, "validation_failed", "dry unknown_parameter")
}

// A query parameter without a value is a fault in every operation: a filter whose value got lost must
// not list everything.
func TestEmptyParameters(t *testing.T) {
	s := servertest.Start(t)
	_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, item := range document(t, s).Paths.Map() {
		for method, o := range item.Operations() {
			to, key := strings.TrimPrefix(path, "/api/v1"), s.Dev.APIKey
			if strings.HasPrefix(to, "/operator") {
				key = operator
			}
			for _, p := range o.Parameters {
				if p.Value.In != "query" || p.Value.Schema.Value.Type.Is("object") {
					continue
				}
				query := "?" + p.Value.Name + "="
				a := s.APIWithKey(key, method, to+query, nil)
				if strings.Contains(to, "{") && a.Status == 404 {
					continue
				}
				seen++
				refusedAmong(t, o.OperationID+query, a, p.Value.Name+" empty_value")
				if p.Value.Schema.Value.Type.Is("array") {
					refusedAmong(t, o.OperationID+query, s.APIWithKey(key, method, to+query+"a,,b", nil), p.Value.Name+" empty_value")
				} else {
					refusedAmong(t, o.OperationID+query, s.APIWithKey(key, method, to+query+"1&"+query[1:]+"1", nil), p.Value.Name+" given_twice")
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d parameters were seen", seen)
	}
}

// refusedAmong checks that a problem has a fault, among others that it may have.
func refusedAmong(t *testing.T, what string, a servertest.Response, fault string) {
	t.Helper()
	var p problem
	if a.Status != 422 || json.Unmarshal(a.Body, &p) != nil {
		t.Errorf("%s: %d %s", what, a.Status, a.Body)
		return
	}
	for _, e := range p.Errors {
		if e.Field+" "+e.Code == fault {
			return
		}
	}
	t.Errorf("%s: no %s: %s", what, fault, a.Body)
}
