// SPDX-License-Identifier: Apache-2.0

// Package dashboard serves the web interface: pages rendered on the server, which use the same
// packages as the API. All routes are registered in routes.go; each page has its own file. A view
// renders a page, and an action handles a form. All pages work without JavaScript, which only
// enhances them.
package dashboard

import (
	"net/http"
	"time"

	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/web"
)

// Dashboard serves the web interface on top of the domain packages.
type Dashboard struct {
	web.Services
	Users      *user.Users
	Inbound    *inbound.Service
	SigningKey *secret.Key // signs the tokens of browsers and phones
	Health     func() Health
	Host       string // host name of the service
	Postmaster string // address of the operator
	Dev        bool
	// OpenAPIDocument is the OpenAPI document, from which the reference is built.
	OpenAPIDocument []byte
	Now             func() time.Time
	CommandTimeout  time.Duration // how long one click works on a queue command; 5 s if 0

	authLimiter   ratelimit.ConnLimiter // concurrent password and code checks
	publicLimiter ratelimit.ConnLimiter // concurrent requests for public pages
	renderer      *renderer
	manual        *manual
	routeList     []Route
}

const (
	// maxForm limits a form, in bytes. The largest has a template's html and text, where each byte
	// may take six: a line end is %0D%0A. maxPublicForm limits forms of public pages, which must
	// arrive within publicReadTimeout. maxOwnerForm limits forms of a mailbox owner. The largest is
	// a vacation reply; one that is too long must still reach the server, to be shown again.
	maxForm           = 12*template.MaxSource + 1<<20
	maxPublicForm     = 64 << 10
	maxOwnerForm      = 12*mailbox.MaxVacationText + maxPublicForm
	publicReadTimeout = 30 * time.Second
	// maxPublicRequests is the maximum number of concurrent requests for public pages, and
	// maxPublicPerNetwork that from one network. Each request holds a form, then a page, in memory,
	// and one connection may have hundreds.
	maxPublicRequests   = 2000
	maxPublicPerNetwork = 100
)

// csp forbids external resources and inline scripts and styles.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Handler returns the handler of the web interface.
func (d *Dashboard) Handler() (http.Handler, error) {
	looks, err := newRenderer()
	if err != nil {
		return nil, err
	}
	d.renderer = looks
	if d.manual, err = newManual(d.OpenAPIDocument, d.BaseURL, d.Dev); err != nil {
		return nil, err
	}
	d.authLimiter.PerNetwork, d.authLimiter.Exempt = maxAuthPerNetwork, d.Users.Logins.Exempt
	d.publicLimiter.Total, d.publicLimiter.PerNetwork, d.publicLimiter.Exempt = maxPublicRequests, maxPublicPerNetwork, d.Users.Logins.Exempt
	r := &router{d: d, mux: http.NewServeMux()}
	d.routes(r)
	r.redirectForms()
	d.routeList = r.routes
	r.mux.Handle("GET /static/", looks.serveStatic())
	r.mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, looks.assetURL("favicon.svg"), http.StatusFound)
	})
	r.mux.HandleFunc("/", r.serveNotFound)
	return web.WithRequestID(d.withSecurityHeaders(d.requireSameOrigin(r.mux))), nil
}

// withSecurityHeaders sets the security headers of every page.
func (d *Dashboard) withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("Referrer-Policy", "same-origin")
		if isSecretPath(r) {
			h.Set("Referrer-Policy", "no-referrer")
		}
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if d.isSecure(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// isSecure reports whether the browser's connection is encrypted. Outside the sandbox it always is:
// the server serves no page without TLS, although a proxy in front may terminate it.
func (d *Dashboard) isSecure(r *http.Request) bool { return !d.Dev || r.TLS != nil }
