// SPDX-License-Identifier: Apache-2.0

// Package dashboard is the door for people with a browser: pages made on the
// server, which call the same rooms as the API. Routes stand in one list
// (routes.go), one page to a file; a page is a view, what a form does an act.
// All of it works without JavaScript, which only adds to it.
package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Dashboard is the door with what lies behind it.
type Dashboard struct {
	Users         *user.Users
	Audit         *audit.Log
	Accounts      *account.Accounts
	Domains       *domain.Domains
	Mailboxes     *mailbox.Mailboxes
	Outbox        *outbound.Outbox
	Folders       *folder.Store
	Suppressions  *suppression.List
	Templates     *template.Templates
	QueueAdmin    *queue.Admin
	Stats         *stat.Stats
	Events        *event.Log
	Webhooks      *webhook.Service
	MailIO        *mailio.Service
	Migrations    *migration.Service
	Inbound       *inbound.Service
	SandboxOutbox *relay.Sandbox // the sandbox's outbox; nil outside of the sandbox
	Limits        *quota.Limiter
	ClientSetup   *clientsetup.Service
	SetupChecker  *clientsetup.Checker
	ProfileSigner func(context.Context) (*tls.Certificate, error) // signs profiles; nil, or nil from it: they are not signed
	SigningKey    *secret.Key                                     // signs what browsers and phones bring back
	Health        func() Health
	Host          string // the service's own name
	Postmaster    string // the operator's address
	// SuspendDomain suspends a domain for an operator, or ends that.
	SuspendDomain   func(ctx context.Context, name string, yes bool) error
	BaseURL         string // the URL that the pages are below, without a slash at its end
	Dev             bool
	Version         string
	OpenAPIDocument []byte // the OpenAPI document, of which the reference is made
	Log             *slog.Logger
	Now             func() time.Time
	CommandTimeout  time.Duration // how long one press of a button works on an order of the queue; 0: 5 s

	authLimiter   ratelimit.ConnLimiter // passwords and codes that are looked at
	publicLimiter ratelimit.ConnLimiter // requests in hand for pages that are anybody's
	renderer      *renderer
	manual        *manual
	routeList     []Route
}

const (
	// maxForm bounds a form, in bytes: the largest is a template's html and text,
	// where each byte may take six, as a line end is %0D%0A. maxPublicForm bounds
	// that of a page that is anybody's, which has publicReadTimeout to arrive, and
	// maxOwnerForm that of a mailbox's owner: the largest is a vacation reply, and one
	// that is too long is to come back.
	maxForm           = 12*template.MaxSource + 1<<20
	maxPublicForm     = 64 << 10
	maxOwnerForm      = 12*mailbox.MaxVacationText + maxPublicForm
	publicReadTimeout = 30 * time.Second
	// maxPublicRequests is how many requests for such pages are in hand at once, and
	// maxPublicPerNetwork how many of them from one network: each holds a form, then a
	// page, and one connection may bring hundreds.
	maxPublicRequests   = 2000
	maxPublicPerNetwork = 100
)

// csp lets a page load nothing from elsewhere and run no script or style that
// stands in it.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Handler returns the handler of the pages.
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
	return d.withSecurityHeaders(d.requireSameOrigin(r.mux)), nil
}

// withSecurityHeaders sets the headers that every page has.
func (d *Dashboard) withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		if isSecretPath(r) {
			h.Set("Referrer-Policy", "no-referrer")
		}
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Request-Id", strings.ToLower(rand.Text()))
		if d.isSecure(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// isSecure reports whether a request was encrypted on its way here. Outside
// the sandbox all are: the server answers no page without TLS, and a proxy in
// front may have ended it.
func (d *Dashboard) isSecure(r *http.Request) bool { return !d.Dev || r.TLS != nil }

// clientAddr returns the address that a request comes from.
func clientAddr(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap()
}
