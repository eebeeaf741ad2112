// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mailstead/mailstead/internal/fault"
)

// problem is an error as clients see it (RFC 9457). It never repeats what
// the request said: that may have been a password.
type problem struct {
	Type      string        `json:"type" doc:"Always about:blank: code tells the kind." example:"about:blank"`
	Title     string        `json:"title" example:"Unprocessable Entity"`
	Status    int           `json:"status" example:"422"`
	Detail    string        `json:"detail" doc:"What to do, in words." example:"Some fields need correcting."`
	Code      string        `json:"code" doc:"Stable name of the error." example:"validation_failed"`
	Errors    []fault.Field `json:"errors,omitempty" doc:"Every field at fault."`
	RequestID string        `json:"request_id,omitempty" doc:"Quote it when you ask for help."`

	retry int // seconds, for Retry-After
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus and ContentType are what huma asks of an error.
func (p *problem) GetStatus() int { return p.Status }

// ContentType is that of RFC 9457.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders gives Retry-After where it is known.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	return h
}

// statuses is the one translation of faults at this door.
var statuses = map[fault.Kind]int{
	fault.Invalid:     http.StatusUnprocessableEntity,
	fault.Denied:      http.StatusForbidden,
	fault.Unknown:     http.StatusUnauthorized,
	fault.NotFound:    http.StatusNotFound,
	fault.Conflict:    http.StatusConflict,
	fault.TooLarge:    http.StatusRequestEntityTooLarge,
	fault.Limited:     http.StatusTooManyRequests,
	fault.OverQuota:   http.StatusInsufficientStorage,
	fault.Unavailable: http.StatusServiceUnavailable,
}

// toProblem translates an error. What is not a fault is ours: it is logged,
// and the client learns only that something went wrong.
func (a *API) toProblem(ctx context.Context, err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = fault.New(fault.TooLarge, "body_too_large", "The request may have %d bytes.", large.Limit)
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		a.Log.ErrorContext(ctx, "request failed", "request", requestID(ctx), "error", err)
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Nothing was changed; please try again.")
	}
	status, ok := statuses[f.Kind]
	if !ok {
		status = http.StatusInternalServerError
	}
	if f.Code == "invalid_json" {
		status = http.StatusBadRequest
	}
	p = newProblem(status, f.Code, f.Message)
	p.Errors, p.RequestID = f.Fields, requestID(ctx)
	p.retry = int(math.Ceil(f.Retry.Seconds()))
	return p
}

func newProblem(status int, code, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// fail answers a request that huma does not handle.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := a.toProblem(r.Context(), err)
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mailstead"`)
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	if err := json.NewEncoder(w).Encode(p); err != nil {
		a.Log.DebugContext(r.Context(), "the client went away", "error", err)
	}
}

// validation turns what huma's validator found into our form: the field's
// path, a stable code, and a sentence without the value.
func validation(status int, message string, errs []error) huma.StatusError {
	code, detail := "validation_failed", "Some fields need correcting."
	switch status {
	case http.StatusBadRequest:
		code, detail = "invalid_json", "The request's body is not valid JSON."
	case http.StatusUnsupportedMediaType:
		code, detail = "unsupported_media_type", "Send the body as application/json."
	case http.StatusRequestEntityTooLarge:
		code, detail = "body_too_large", "The request's body is too large."
	case http.StatusUnprocessableEntity:
	default:
		code, detail = strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_"), message
	}
	p := newProblem(status, code, detail)
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			continue
		}
		p.Errors = append(p.Errors, fieldOf(d))
	}
	if status == http.StatusUnprocessableEntity && len(p.Errors) == 0 {
		p.Status, p.Title, p.Code, p.Detail = http.StatusBadRequest, http.StatusText(http.StatusBadRequest), "invalid_json", "The request's body is not valid JSON."
	}
	return p
}

var missing = regexp.MustCompile(`^expected required property (\S+) to be present$`)

func fieldOf(d *huma.ErrorDetail) fault.Field {
	path := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(d.Location, "body"), "."), "query."), "path.")
	f := fault.Field{Field: path, Code: "invalid", Message: sentence(d.Message)}
	switch m := missing.FindStringSubmatch(d.Message); {
	case m != nil:
		f.Field, f.Code, f.Message = strings.TrimPrefix(path+"."+m[1], "."), "required", "This field is required."
	case d.Message == "unexpected property":
		f.Code, f.Message = "unknown_field", "There is no such field."
	case strings.HasPrefix(d.Message, "expected string"), strings.HasPrefix(d.Message, "expected array"),
		strings.HasPrefix(d.Message, "expected object"), strings.HasPrefix(d.Message, "expected boolean"),
		strings.HasPrefix(d.Message, "expected integer"), strings.HasPrefix(d.Message, "expected number"):
		f.Code = "wrong_type"
	}
	return f
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// recovered answers for a panic, which is a bug of ours, and keeps the
// process alive for everyone else.
func (a *API) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // a sentinel value
				a.Log.ErrorContext(r.Context(), "panic", slog.Any("value", v), "path", r.URL.Path)
				a.fail(w, r, fault.New(fault.Internal, "internal_error", "Something went wrong on our side."))
			}
		}()
		next.ServeHTTP(w, r)
	})
}
