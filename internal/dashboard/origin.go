// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
)

// requireSameOrigin refuses requests that another site makes a browser send, save those
// that change nothing. Browsers say it in Sec-Fetch-Site, the older ones in Origin
// alone; what is no browser says neither.
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

// origin is the origin of the pages as the browser of a request sees it (RFC 6454
// §6.2), also where a proxy ends TLS.
func (d *Dashboard) origin(r *http.Request) string {
	scheme := "http"
	if d.isSecure(r) {
		scheme = "https"
	}
	return scheme + "://" + strings.ToLower(r.Host)
}
