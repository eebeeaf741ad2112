// SPDX-License-Identifier: Apache-2.0

// Package web has what the API and the dashboard share: the services behind them, request ids,
// recovery from panics, statuses of faults, downloads, and pages of threads.
package web

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/suppression"
	"github.com/mailstead/mailstead/internal/template"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Services are the domain packages that the API and the dashboard serve.
type Services struct {
	Accounts      *account.Accounts
	Audit         *audit.Log
	Domains       *domain.Domains
	Mailboxes     *mailbox.Mailboxes
	Outbox        *outbound.Outbox
	Folders       *folder.Folders
	Searcher      *search.Searcher
	Suppressions  *suppression.List
	Templates     *template.Templates
	QueueAdmin    *admin.Queue
	Stats         *stat.Stats
	Events        *event.Log
	Webhooks      *webhook.Service
	Migrations    *migration.Service
	MailIO        *mailio.Service
	Limits        *quota.Limiter
	SandboxOutbox *relay.Sandbox // the sandbox's outbox; nil outside the sandbox
	ClientSetup   *clientsetup.Service
	SetupChecker  *clientsetup.EndpointChecker
	BaseURL       string // URL of the service, without a trailing slash, for links
	Version       string
	Log           *slog.Logger
}

type requestIDKey struct{}

// RequestIDFromContext returns the id of a request that went through WithRequestID.
func RequestIDFromContext(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithRequestID gives each request an id, which the response, the log and every error carry. It
// also sets the headers of all responses.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := strings.ToLower(rand.Text())
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

// responseTracker records whether a response has started.
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

// Unwrap returns the underlying writer, for http.ResponseController.
func (s *responseTracker) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Recover logs a panic of next and keeps the process running. It calls failed to respond, or cuts
// the connection if the response has already started.
func Recover(log *slog.Logger, next http.Handler, failed http.HandlerFunc) http.Handler {
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
			log.ErrorContext(r.Context(), "panic", "request", RequestIDFromContext(r.Context()), slog.Any("value", v), "stack", string(debug.Stack()))
			if s.started {
				panic(http.ErrAbortHandler)
			}
			failed(w, r)
		}()
		next.ServeHTTP(s, r)
	})
}

// ClientAddr returns the remote address of a request.
func ClientAddr(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap()
}

// Status returns the HTTP status of a kind of fault.
func Status(k fault.Kind) int {
	switch k {
	case fault.Invalid:
		return http.StatusUnprocessableEntity
	case fault.Denied:
		return http.StatusForbidden
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.RateLimited:
		return http.StatusTooManyRequests
	case fault.OverQuota:
		return http.StatusInsufficientStorage
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// SetRetryAfter sets the Retry-After header if an error says when to try again.
func SetRetryAfter(w http.ResponseWriter, err error) {
	var f *fault.Error
	if errors.As(err, &f) && f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
}

// IsAuthError reports whether an error means that the client may not go on, for example because its
// key or session has ended.
func IsAuthError(err error) bool {
	return fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Denied)
}

// AbortResponse cuts the connection of a response that failed halfway, so that it doesn't look
// complete. It logs errors of the service.
func AbortResponse(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	if r.Context().Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, os.ErrDeadlineExceeded) && fault.KindOf(err) == fault.Internal {
		log.ErrorContext(r.Context(), "a response broke off", "request", RequestIDFromContext(r.Context()), "pattern", r.Pattern, "error", err)
	}
	_ = http.NewResponseController(w).Flush() // send all data that was read
	panic(http.ErrAbortHandler)
}
