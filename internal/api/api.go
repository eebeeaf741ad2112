// SPDX-License-Identifier: Apache-2.0

// Package api is the HTTP door: everything under /api/v1. Routes stand in one
// list (routes.go), one resource to a file. Errors are told as RFC 9457
// problems, all faults of a request at once.
package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
)

// API is the door with what lies behind it.
type API struct {
	Accounts  *account.Accounts
	Domains   *domain.Domains
	Mailboxes *mailbox.Mailboxes
	Outbox    *outbound.Outbox
	Events    *event.Log
	Blobs     *blob.Store
	Version   string
	Log       *slog.Logger
	Now       func() time.Time
}

// maxBody bounds ordinary requests; sends have their own bound.
const maxBody = 1 << 20

// Handler returns the handler of /api/v1.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return validation(status, message, errs)
	}
	config := huma.DefaultConfig("Mailstead", a.Version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/v1/openapi", "", ""
	config.CreateHooks = nil // no $schema links in answers
	config.RejectUnknownQueryParameters = true
	config.Info.Description = "Mailboxes and sending for your own domains."
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer"}}
	config.Security = []map[string][]string{{"key": {}}}
	h := humago.New(mux, config)
	a.routes(&router{api: a, huma: h, mux: mux})
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, fault.New(fault.NotFound, "no_such_endpoint", "There is no such endpoint; /api/v1/openapi.json lists them all."))
	})
	return a.identified(a.recovered(mux))
}

type contextKey int

const (
	requestKey contextKey = iota
	principalKey
)

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey).(string)
	return id
}

func principal(ctx context.Context) account.Principal {
	p, _ := ctx.Value(principalKey).(account.Principal)
	return p
}

// identified gives each request an id, which the answer, the log and every
// problem carry.
func (a *API) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.ToLower(rand.Text())
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey, id)))
	})
}

// authenticate finds out who makes a request and whether the key has the
// scope that the operation needs.
func (a *API) authenticate(r *http.Request, scope string) (account.Principal, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return account.Principal{}, fault.New(fault.Unknown, "api_key_required", "Send the header Authorization: Bearer YOUR_API_KEY.")
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return account.Principal{}, err
	}
	p, err := a.Accounts.Authenticate(r.Context(), strings.TrimSpace(token), from.Addr())
	if err != nil {
		return p, err
	}
	return p, p.Require(scope)
}
