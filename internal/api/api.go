// SPDX-License-Identifier: Apache-2.0

// Package api serves the HTTP API: everything under /api/v1. All routes are registered in
// routes.go; each resource has its own file. Errors are RFC 9457 problems that list all faults of a
// request at once. They never repeat the content of the request.
package api

import (
	"net/http"
	"net/netip"
	"path"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/web"
)

// API serves the HTTP API on top of the domain packages.
type API struct {
	web.Services
	IdempotencyKeys *idempotency.Keys
	Inbound         *inbound.Service
	// SpoolDir is the directory for attachments of requests in progress. It should be on disk:
	// there may be many, and the system's temporary directory may be in memory. "" means the
	// system's temporary directory.
	SpoolDir string
	// Exempt reports whether an address is exempt from the limits per client network. It may be
	// nil.
	Exempt func(netip.Addr) bool

	streams *streamRegistry

	memory *memoryBudget
	// cleartextLimiter limits the lookups of keys that a network sends without TLS.
	cleartextLimiter *networkLimiter
	readSlots        notify.KeyedSemaphore[db.ID] // limits concurrent reads per account
	mux              *http.ServeMux
	document         []byte
}

// Handler returns the handler of /api/v1. It responds to unknown paths with a problem.
func (a *API) Handler() http.Handler {
	a.streams, a.memory, a.cleartextLimiter = newStreamRegistry(), newMemoryBudget(), a.newNetworkLimiter()
	r := &router{api: a, mux: http.NewServeMux(), doc: newDocument(a.Version)}
	a.routes(r)
	a.unsubscribeRoutes(r)
	a.autoconfigRoutes(r)
	r.doc.addWebhooks()
	a.document = r.doc.marshal()
	r.mux.HandleFunc("GET /api/v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a.document)
	})
	r.mux.HandleFunc(catchAllPattern, r.serveUnknown)
	a.mux = r.mux
	return web.WithRequestID(a.withRecovery(a.requireCleanPath(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mux.ServeHTTP(w, lowerAutodiscoverPath(req))
	}))))
}

// Document returns the OpenAPI document that Handler has built.
func (a *API) Document() []byte { return a.document }

// Matches reports whether the API handles a request, rather than the dashboard: everything below
// /api, the requests of mail clients for their settings, and unsubscribe links.
func (a *API) Matches(r *http.Request) bool {
	if r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/") {
		return true
	}
	return len(allowedMethods(a.mux, lowerAutodiscoverPath(r))) > 0
}

// withRecovery responds to a panic with an internal error.
func (a *API) withRecovery(next http.Handler) http.Handler {
	return web.Recover(a.Log, next, func(w http.ResponseWriter, r *http.Request) {
		a.writeProblem(w, r, fault.New(fault.Internal, "internal_error", "Something went wrong on our side."))
	})
}

// requireCleanPath responds with 404 where the mux would redirect to a path without doubled slashes
// and dots: a client that follows the redirect would lose its method. Percent-encoded slashes and
// dots are part of a name.
func (a *API) requireCleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != "" && path.Clean("/"+strings.TrimSuffix(p, "/")) != strings.TrimSuffix(p, "/") && p != "/" {
			a.writeProblem(w, r, errNoEndpoint)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate returns the principal of a request and requires that its key has the scope.
func (a *API) authenticate(r *http.Request, scope string) (account.Principal, error) {
	p, err := a.identify(r)
	if err != nil {
		return p, err
	}
	return p, p.RequireScope(scope)
}

// bearerToken returns the request's bearer token.
func bearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// identify returns the principal of a request.
func (a *API) identify(r *http.Request) (account.Principal, error) {
	token, ok := bearerToken(r)
	if !ok {
		return account.Principal{}, fault.New(fault.Unauthenticated, "api_key_required", "Send the header Authorization: Bearer YOUR_API_KEY.")
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return account.Principal{}, err
	}
	return a.Accounts.Authenticate(r.Context(), token, from.Addr())
}
