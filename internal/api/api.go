// SPDX-License-Identifier: Apache-2.0

// Package api is the HTTP door: everything under /api/v1. Routes stand in one
// list (routes.go), one resource to a file. Errors are told as RFC 9457
// problems, all faults of a request at once, and never repeat what the request
// said.
package api

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"runtime/debug"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/webhook"
)

// API is the door with what lies behind it.
type API struct {
	Accounts *account.Accounts
	Audit    *audit.Log
	// SuspendDomain suspends a domain for an operator, or ends that.
	SuspendDomain   func(ctx context.Context, name string, yes bool) error
	Domains         *domain.Domains
	Mailboxes       *mailbox.Mailboxes
	Outbox          *outbound.Outbox
	Folders         *folder.Store
	Suppressions    *suppression.List
	Templates       *template.Templates
	QueueAdmin      *queue.Admin
	Stats           *stat.Stats
	Events          *event.Log
	Webhooks        *webhook.Service
	Migrations      *migration.Service
	MailIO          *mailio.Service
	IdempotencyKeys *idempotency.Keys
	Inbound         *inbound.Service
	SandboxOutbox   *relay.Sandbox // the sandbox's outbox; nil outside of the sandbox
	Limits          *quota.Limiter
	ClientSetup     *clientsetup.Service
	SetupChecker    *clientsetup.Checker
	// ProfileSigner returns the certificate that profiles are signed with, nil for
	// none; may be nil.
	ProfileSigner func(context.Context) (*tls.Certificate, error)
	BaseURL       string // the URL up to /api/v1, for answers that point at others
	Version       string
	Log           *slog.Logger
	// SpoolDir is the folder for attachments that are on their way in: on a disk, as
	// they may be many, while a system's own for such files may be in memory. "" is that.
	SpoolDir string
	// Exempt reports whom limits per client network don't apply to; may be nil.
	Exempt func(netip.Addr) bool

	streams *streamRegistry

	memory *memoryBudget
	// cleartextLimiter limits how often a network has keys looked up that it sent without TLS.
	cleartextLimiter *networkLimiter
	readSlots        notify.KeyedSemaphore[db.ID] // the accounts, for their answers to be made
	mux              *http.ServeMux
	document         []byte
}

// Handler returns the handler of /api/v1. It answers whatever else it is asked
// with a problem, too.
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
	return a.withRequestID(a.withRecovery(a.requireCleanPath(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mux.ServeHTTP(w, lowerAutodiscoverPath(req))
	}))))
}

// Document is the OpenAPI document that Handler has made.
func (a *API) Document() []byte { return a.document }

// Matches reports whether a request is for this door, and not for the dashboard:
// all below /api, and what mail clients and links to unsubscribe ask for.
func (a *API) Matches(r *http.Request) bool {
	if r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/") {
		return true
	}
	return len(allowedMethods(a.mux, lowerAutodiscoverPath(r))) > 0
}

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID gives each request an id, which the answer, the log and every
// problem carry.
func (a *API) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.ToLower(rand.Text())
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// responseTracker notices whether an answer has begun.
type responseTracker struct {
	http.ResponseWriter
	started bool
}

func (s *responseTracker) WriteHeader(status int) {
	s.started = true
	s.ResponseWriter.WriteHeader(status)
}

func (s *responseTracker) Write(p []byte) (int, error) {
	s.started = true
	return s.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (s *responseTracker) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// withRecovery answers for a panic, which is a bug of ours, and keeps the
// process alive for everyone else. An answer that has begun is cut off.
func (a *API) withRecovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &responseTracker{ResponseWriter: w}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // a sentinel value
				panic(v)
			}
			a.Log.ErrorContext(r.Context(), "panic", "request", requestID(r.Context()), slog.Any("value", v), "stack", string(debug.Stack()))
			if s.started {
				panic(http.ErrAbortHandler)
			}
			a.writeProblem(w, r, fault.New(fault.Internal, "internal_error", "Something went wrong on our side."))
		}()
		next.ServeHTTP(s, r)
	})
}

// requireCleanPath answers 404 where the mux would redirect to a path without
// doubled slashes and dots: a client that follows would lose its method. Those
// that are percent-encoded are part of a name.
func (a *API) requireCleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != "" && path.Clean("/"+strings.TrimSuffix(p, "/")) != strings.TrimSuffix(p, "/") && p != "/" {
			a.writeProblem(w, r, errNoEndpoint)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate finds out who makes a request and whether the key has the
// scope that the operation needs.
func (a *API) authenticate(r *http.Request, scope string) (account.Principal, error) {
	p, err := a.identify(r)
	if err != nil {
		return p, err
	}
	return p, p.RequireScope(scope)
}

// bearerToken returns the token that a request brings.
func bearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// identify finds out who makes a request.
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
