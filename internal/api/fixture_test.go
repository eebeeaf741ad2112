// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Code      string `json:"code"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Field   string `json:"field"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"errors"`
}

// refused fails the test unless a is a complete problem with the status, the code and exactly these
// faults, each "field code".
func refused(t *testing.T, what string, a servertest.Response, status int, code string, faults ...string) {
	t.Helper()
	var p problem
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Errorf("%s: %d, no problem: %v in %s", what, a.Status, err, a.Body)
		return
	}
	var got []string
	for _, e := range p.Errors {
		got = append(got, e.Field+" "+e.Code)
		if e.Message == "" {
			t.Errorf("%s: %s lacks a message", what, e.Field)
		}
	}
	if a.Status != status || p.Code != code || !slices.Equal(got, faults) {
		t.Errorf("%s: got %d %s %q, want %d %s %q", what, a.Status, p.Code, got, status, code, faults)
	}
	if p.Status != a.Status || p.Type != "about:blank" || p.Title != http.StatusText(a.Status) || p.Detail == "" ||
		p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-Id") || a.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: half a problem: %v %s", what, a.Header, a.Body)
	}
}

// status fails the test unless a has the status.
func status(t *testing.T, what string, a servertest.Response, want int) {
	t.Helper()
	if a.Status != want {
		t.Fatalf("%s: %d %s, want %d", what, a.Status, a.Body, want)
	}
}

// call makes a request with additional headers.
func call(t *testing.T, s *servertest.Server, method, path string, header map[string]string, body io.Reader) servertest.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.Dev.BaseURL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Dev.APIKey)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Response{Status: resp.StatusCode, Header: resp.Header, Body: text}
}

type object = map[string]any

// into decodes a response as an object.
func into(t *testing.T, a servertest.Response) object {
	t.Helper()
	var o object
	a.Decode(t, &o)
	return o
}

// mail returns a valid send with the given changes.
func mail(change object) object {
	m := object{"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "Hi", "text": "Hello"}
	maps.Copy(m, change)
	return m
}

// newKey creates an API key of the demonstration account.
func newKey(t *testing.T, s *servertest.Server, spec object) (id, key string) {
	t.Helper()
	spec["name"] = "test"
	a := s.API("POST", "/api-keys", spec)
	status(t, "making a key", a, 201)
	o := into(t, a)
	return o["id"].(string), o["key"].(string)
}

// verified adds a domain and verifies it.
func verified(t *testing.T, s *servertest.Server, key, name string) string {
	t.Helper()
	a := s.APIWithKey(key, "POST", "/domains", object{"name": name})
	status(t, "adding "+name, a, 201)
	id := into(t, a)["id"].(string)
	a = s.APIWithKey(key, "POST", "/domains/"+id+"/verify-dns", nil)
	status(t, "verifying "+name, a, 200)
	if got := into(t, a)["status"]; got != "verified" {
		t.Fatalf("%s is %v: %s", name, got, a.Body)
	}
	return id
}

// stranger creates another account and returns its API key.
func stranger(t *testing.T, s *servertest.Server) string {
	t.Helper()
	acc, err := s.Accounts.Create(t.Context(), "rival@example.com", "Rival")
	if err != nil {
		t.Fatal(err)
	}
	_, token, err := s.Accounts.CreateKey(t.Context(), acc.ID, account.KeyParams{Name: "all"})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func newReader(s string) io.Reader { return strings.NewReader(s) }

// suspend suspends an account directly in the database.
func suspend(t *testing.T, s *servertest.Server, id db.ID) {
	t.Helper()
	dbtest.Exec(t, s.DB, suspension.With(id))
	s.Accounts.Invalidate(id)
}

var suspension = db.SQL(`UPDATE account SET status = 'suspended' WHERE id = $1`)

// gaveUp makes a send whose body fails on the client's side.
func gaveUp(t *testing.T, s *servertest.Server, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.Dev.BaseURL+"/api/v1/outbound/send", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Dev.APIKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("answered with %d", resp.StatusCode)
	}
}
