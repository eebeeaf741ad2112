// SPDX-License-Identifier: Apache-2.0

package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/web"
)

// The requests of one network for links are limited. Other networks, and exempt ones, are not
// affected.
func TestUnsubscribeIsLimited(t *testing.T) {
	friend := netip.MustParseAddr("192.0.2.9")
	a := &API{Services: web.Services{Suppressions: &suppression.List{Key: testkit.Key(t)}, Log: slog.New(slog.DiscardHandler)}, Exempt: func(from netip.Addr) bool { return from == friend }}
	h := a.Handler()
	ask := func(from string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/u/x", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	limited := 0
	for range networkRequestsPerMinute + 200 { // the limit partly refills while it runs
		w := ask("192.0.2.7:4000")
		switch w.Code {
		case http.StatusNotFound:
		case http.StatusTooManyRequests:
			limited++
			if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too many requests") {
				t.Fatalf("%v %s", w.Header(), w.Body)
			}
		default:
			t.Fatal(w.Code)
		}
		if w := ask("192.0.2.9:4000"); w.Code != http.StatusNotFound {
			t.Fatal("a friend is limited", w.Code)
		}
		if limited == 1 {
			break
		}
	}
	if limited == 0 {
		t.Error("there is no limit")
	}
	if w := ask("192.0.2.8:4000"); w.Code != http.StatusNotFound {
		t.Error("another network is limited", w.Code)
	}
}
