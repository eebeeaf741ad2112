// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
)

// requireSameOrigin rejects cross-site requests, except for those that change nothing. Browsers
// send Sec-Fetch-Site, older ones only Origin; clients that are not browsers send neither.
func (d *Dashboard) requireSameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		switch {
		case r.Method == http.MethodGet, r.Method == http.MethodHead, r.Method == http.MethodOptions,
			site == "same-origin", site == "none",
			site == "" && (origin == "" || origin == d.origin(r)):
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "Another site sent this form. Nothing was done.", http.StatusForbidden)
		}
	})
}

// origin returns the origin of the pages as the request's browser sees it (RFC 6454 §6.2), even if
// a proxy terminates TLS.
func (d *Dashboard) origin(r *http.Request) string {
	scheme := "http"
	if d.isSecure(r) {
		scheme = "https"
	}
	return scheme + "://" + strings.ToLower(r.Host)
}
