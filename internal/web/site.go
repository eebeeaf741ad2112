// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/internal/listener"
)

// Site handles all requests to the HTTP servers. It answers those for MTA-STS policies, and passes
// the others on to the API or the dashboard.
type Site struct {
	Services
	API        API
	APIHandler http.Handler
	Dashboard  http.Handler
	Host       string // the service's own name; the dashboard has no other
	// Sandbox accepts all requests without TLS, and serves the dashboard under every name: it is
	// only reachable over loopback.
	Sandbox bool
}

// API is what a Site needs to know about the API.
type API interface {
	// Matches reports whether the API handles a request, rather than the dashboard.
	Matches(*http.Request) bool
	// AllowsCleartext reports whether the API may answer a request without TLS.
	AllowsCleartext(*http.Request) bool
	// RejectCleartext rejects a request without TLS.
	RejectCleartext(http.ResponseWriter, *http.Request)
}

// ServeHTTP implements http.Handler. It prevents the use of secrets over HTTP without TLS: it
// rejects API calls, whose keys are recorded as exposed, and redirects pages to HTTPS. Standards
// expect only MTA-STS policies and settings for mail clients in cleartext, and ACME challenges,
// which are answered before.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	domain, isPolicy := stsPolicyDomain(r)
	switch {
	case s.Sandbox || listener.IsEncrypted(r) || isPolicy || s.API.AllowsCleartext(r):
	case r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/"):
		s.API.RejectCleartext(w, r)
		return
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		http.Redirect(w, r, s.BaseURL+"/"+strings.TrimLeft(r.URL.RequestURI(), "/"), http.StatusFound)
		return
	default:
		http.Error(w, "This address needs HTTPS: "+s.BaseURL+". Nothing was changed.", http.StatusForbidden)
		return
	}
	name, _, _ := strings.Cut(r.Host, ":")
	switch {
	case isPolicy:
		s.serveSTSPolicy(domain, w, r)
	case s.API.Matches(r) || !s.Sandbox && !strings.EqualFold(name, s.Host):
		s.APIHandler.ServeHTTP(w, r)
	default:
		s.Dashboard.ServeHTTP(w, r)
	}
}

// stsPolicyDomain returns the domain whose MTA-STS policy is requested, from the request's Host
// (RFC 8461 §3.3).
func stsPolicyDomain(r *http.Request) (domain string, ok bool) {
	name, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	domain, ok = strings.CutPrefix(name, "mta-sts.")
	return strings.TrimSuffix(domain, "."), ok && domain != ""
}

// serveSTSPolicy answers requests to mta-sts.<domain>: with the domain's policy, and nothing else.
func (s *Site) serveSTSPolicy(domain string, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/.well-known/mta-sts.txt" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	text, ok, err := s.Domains.STSPolicy(r.Context(), domain)
	switch {
	case err != nil:
		s.Log.Error("an MTA-STS policy could not be read", "domain", domain, "error", err)
		http.Error(w, "This did not work; try again later.", http.StatusServiceUnavailable)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = w.Write([]byte(text))
}
