// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/listener"
)

// requireTLS prevents the use of secrets over HTTP without TLS. It rejects API calls, whose keys
// are recorded as exposed, and redirects pages to HTTPS. It only passes on requests that
// standards expect in cleartext: MTA-STS policies and settings for mail clients; ACME challenges
// are answered before. The sandbox of `mailstead dev`, only reachable over loopback, passes all.
func (s *Server) requireTLS(calls *api.API, next http.Handler) http.Handler {
	if s.Config.Dev {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, policy := stsPolicyDomain(r)
		switch {
		case listener.IsEncrypted(r) || policy || api.AllowsCleartext(r):
			next.ServeHTTP(w, r)
		case r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/"):
			calls.RejectCleartext(w, r)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			http.Redirect(w, r, s.baseURL()+"/"+strings.TrimLeft(r.URL.RequestURI(), "/"), http.StatusFound)
		default:
			http.Error(w, "This address needs HTTPS: "+s.baseURL()+". Nothing was changed.", http.StatusForbidden)
		}
	})
}
