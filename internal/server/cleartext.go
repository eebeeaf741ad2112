// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strings"

	"github.com/mailstead/mailstead/internal/api"
)

// requireTLS lets no secret be used over HTTP without TLS. API calls are
// refused there, and their keys noted; pages redirect to HTTPS. Only what other
// standards want in clear is answered: challenges of ACME, which come before
// this, MTA-STS policies, and settings for mail programs. The sandbox of
// `mailstead dev` is reached over loopback alone and answers everything.
func (s *Server) requireTLS(door *api.API, next http.Handler) http.Handler {
	if s.Config.Dev {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, policy := stsPolicyDomain(r)
		switch {
		case isEncrypted(r) || policy || api.AllowsCleartext(r):
			next.ServeHTTP(w, r)
		case r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/"):
			door.RejectCleartext(w, r)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			http.Redirect(w, r, s.baseURL()+"/"+strings.TrimLeft(r.URL.RequestURI(), "/"), http.StatusFound)
		default:
			http.Error(w, "This address needs HTTPS: "+s.baseURL()+". Nothing was changed.", http.StatusForbidden)
		}
	})
}
