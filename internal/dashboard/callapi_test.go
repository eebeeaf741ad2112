// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// object is a JSON object for the API.
type object = map[string]any

// callAPI calls the API, which must succeed, and returns the response.
func callAPI(t *testing.T, s *servertest.Server, method, path string, body any) object {
	t.Helper()
	a := s.API(method, path, body)
	if a.Status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
	out := object{}
	if len(a.Body) > 0 {
		a.Decode(t, &out)
	}
	return out
}

// stranger is a user who is signed in to their own account.
type stranger struct {
	t       *testing.T
	base    string
	session string
}

func newStranger(t *testing.T, s *servertest.Server) *stranger {
	t.Helper()
	const email, password = "stranger@elsewhere.test", "A password of 1 stranger"
	acc, err := s.Accounts.Create(t.Context(), email, "Elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Users.Create(t.Context(), user.CreateParams{Email: email, Name: "Stranger", Password: password}, acc.ID); err != nil {
		t.Fatal(err)
	}
	return signedIn(t, s, email, password)
}

func signedIn(t *testing.T, s *servertest.Server, email, password string) *stranger {
	t.Helper()
	_, token, err := s.Users.SignIn(t.Context(), email, password, netip.MustParseAddr("127.0.0.1"), "test")
	if err != nil {
		t.Fatal(err)
	}
	return &stranger{t, strings.TrimSuffix(s.Dev.BaseURL, "/"), token}
}

// asks requests a page and returns the response's status and header.
func (x *stranger) asks(method, path string) (int, http.Header) {
	x.t.Helper()
	status, header, _ := x.gets(method, path)
	return status, header
}

func (x *stranger) gets(method, path string) (status int, header http.Header, text string) {
	x.t.Helper()
	status, header, body := x.begins(method, path, "", nil)
	all, err := io.ReadAll(body)
	if err != nil {
		x.t.Fatal(err)
	}
	return status, header, string(all)
}

// begins makes a request and returns the response with an unread body.
func (x *stranger) begins(method, path, media string, body io.Reader) (status int, header http.Header, text io.Reader) {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, x.base+path, body)
	if err != nil {
		x.t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "session", Value: x.session})
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := client.Do(r)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = a.Body.Close() })
	return a.StatusCode, a.Header, a.Body
}

// findsNothing fails the test unless each request, "GET /a" or "POST /a", gets a 404.
func (x *stranger) findsNothing(paths ...string) {
	x.t.Helper()
	for _, p := range paths {
		method, path, _ := strings.Cut(p, " ")
		if got, _ := x.asks(method, path); got != http.StatusNotFound {
			x.t.Errorf("a stranger's %s: %d, want 404", p, got)
		}
	}
}
