// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/web"
)

// problem is an error response (RFC 9457). It never repeats the request's content, which may have
// been a password.
type problem struct {
	Type      string               `json:"type" doc:"Always about:blank: code tells the kind." example:"about:blank"`
	Title     string               `json:"title" doc:"The status in words." example:"Unprocessable Entity"`
	Status    int                  `json:"status" doc:"The HTTP status." example:"422"`
	Detail    string               `json:"detail" doc:"What is wrong and what to do, in words." example:"Some fields need correcting."`
	Code      string               `json:"code" doc:"Stable name of the error." example:"validation_failed"`
	Errors    []fieldErrorResponse `json:"errors" doc:"With status 422: every field at fault, at most 100; else empty."`
	Import    *mailImportResponse  `json:"import,omitempty" doc:"Of an import of mail: how far it came."`
	RequestID string               `json:"request_id" doc:"Quote it when you ask for help; it is in the header X-Request-Id too." example:"ofvd5mpqfkhd2tmxjsyhzqvzr4"`

	retry int // in seconds, for Retry-After
}

// fieldErrorResponse describes a field that breaks a rule.
type fieldErrorResponse struct {
	Path    string `json:"field" doc:"Where it stands in the request." example:"to[2]"`
	Code    string `json:"code" doc:"Stable name of the rule." example:"invalid_address"`
	Message string `json:"message" doc:"What is wrong, in words." example:"This must be an address such as you@example.com."`
}

func (p *problem) Error() string { return p.Code + ": " + p.Detail }

// toProblem converts an error. An error that is not a fault is logged as an internal error, and its
// details are hidden from the client.
func (a *API) toProblem(ctx context.Context, err error) *problem {
	var made *problem
	if errors.As(err, &made) {
		p := *made
		p.RequestID = web.RequestIDFromContext(ctx)
		return &p
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = fault.New(fault.TooLarge, "body_too_large", "The request's body may have %d bytes.", large.Limit)
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		if ctx.Err() == nil {
			a.Log.ErrorContext(ctx, "request failed", "request", web.RequestIDFromContext(ctx), "error", err)
		}
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Please try again.")
	}
	status := web.Status(f.Kind)
	if f.Code == "invalid_json" {
		status = http.StatusBadRequest
	}
	p := newProblem(status, f.Code, f.Message)
	p.RequestID, p.retry = web.RequestIDFromContext(ctx), int(math.Ceil(f.RetryAfter.Seconds()))
	for _, field := range f.Fields[:min(len(f.Fields), maxFaults)] {
		p.Errors = append(p.Errors, fieldErrorResponse(field))
	}
	return p
}

func newProblem(status int, code, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// writeProblem responds with a problem.
func (a *API) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := a.toProblem(r.Context(), err)
	if p.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="mailstead"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"` // RFC 6750 section 3.1
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	a.writeJSON(w, r, p.Status, "application/problem+json", p)
}

// asFieldFault turns a fault about a single value into a fault of the given field.
func asFieldFault(err error, field string) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid || len(f.Fields) > 0 {
		return err
	}
	var bad fault.FieldErrors
	bad.Add(field, f.Code, "%s", f.Message)
	return bad.Err()
}

// mergeFaults adds the field errors of err to bad. It returns err if that has none.
func mergeFaults(bad *fault.FieldErrors, err error) error {
	var f *fault.Error
	if errors.As(err, &f) && len(f.Fields) == 0 {
		return err
	}
	return bad.Merge(err)
}

var errNotFound = fault.New(fault.NotFound, "not_found", "There is nothing with this id.")

// notFoundAsNil returns nil for a fault.NotFound, else err.
func notFoundAsNil(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
