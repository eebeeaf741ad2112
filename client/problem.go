// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem is the response to a rejected request (RFC 9457).
type Problem struct {
	Status    int          `json:"status"`     // HTTP status
	Code      string       `json:"code"`       // stable error code, such as validation_failed; "" if the response doesn't come from the service
	Title     string       `json:"title"`      // text of the status
	Detail    string       `json:"detail"`     // what is wrong and how to fix it, for people
	Errors    []FieldError `json:"errors"`     // with status 422: all invalid fields
	RequestID string       `json:"request_id"` // quote it in support requests

	Import *MailImportResult `json:"import"` // for mail imports: what was imported

	// RetryAfter is how long to wait before the next attempt, if the service says so.
	RetryAfter time.Duration `json:"-"`
}

// FieldError is the error of a field in a request.
type FieldError struct {
	Field   string `json:"field"`   // path, such as to[2]
	Code    string `json:"code"`    // stable code of the rule, such as invalid_address
	Message string `json:"message"` // what is wrong, for people
}

// Kinds of problem, for errors.Is. Each stands for a status; the problem's Code is more specific.
var (
	ErrMalformed   = errors.New("mailstead: the request could not be read (400)")
	ErrUnknownKey  = errors.New("mailstead: the API key is not valid (401)")
	ErrDenied      = errors.New("mailstead: not allowed (403)")
	ErrNotFound    = errors.New("mailstead: not found (404)")
	ErrConflict    = errors.New("mailstead: in conflict with what is there (409)")
	ErrTooLarge    = errors.New("mailstead: too large (413)")
	ErrInvalid     = errors.New("mailstead: some fields need correcting (422)")
	ErrRateLimited = errors.New("mailstead: too many requests (429)")
	ErrUnavailable = errors.New("mailstead: the service has trouble (5xx)")
)

// Error describes the problem in one line.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "mailstead: %d", p.Status)
	if p.Code != "" {
		b.WriteString(" " + p.Code)
	}
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for i, f := range p.Errors {
		sep := "; "
		if i == 0 {
			sep = " ("
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, f.Field, f.Message)
	}
	if len(p.Errors) > 0 {
		b.WriteByte(')')
	}
	if p.RequestID != "" {
		b.WriteString(" [request " + p.RequestID + "]")
	}
	return b.String()
}

// Is reports whether the problem is of a kind, for errors.Is.
func (p *Problem) Is(kind error) bool {
	switch p.Status {
	case http.StatusBadRequest:
		return kind == ErrMalformed
	case http.StatusUnauthorized:
		return kind == ErrUnknownKey
	case http.StatusForbidden:
		return kind == ErrDenied
	case http.StatusNotFound:
		return kind == ErrNotFound
	case http.StatusConflict:
		return kind == ErrConflict
	case http.StatusRequestEntityTooLarge:
		return kind == ErrTooLarge
	case http.StatusUnprocessableEntity:
		return kind == ErrInvalid
	case http.StatusTooManyRequests:
		return kind == ErrRateLimited
	}
	return p.Status >= 500 && kind == ErrUnavailable
}

// Field returns the error of a field, such as to[2]; false if it has none.
func (p *Problem) Field(name string) (FieldError, bool) {
	for _, f := range p.Errors {
		if f.Field == name {
			return f, true
		}
	}
	return FieldError{}, false
}

// HasCode reports whether err is a [Problem] with one of the codes.
func HasCode(err error, codes ...string) bool {
	var p *Problem
	if !errors.As(err, &p) {
		return false
	}
	for _, code := range codes {
		if p.Code == code {
			return true
		}
	}
	return false
}

// problem parses an unsuccessful response. If it is not a problem document, it comes from
// elsewhere: a proxy, or a wrong address.
func problem(a *answer) *Problem {
	p := &Problem{}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")) // an invalid type is not the service's
	if kind != "application/problem+json" || json.Unmarshal(a.body, p) != nil {
		*p = Problem{Detail: "The answer is not one of the service's own; is the base URL right, and is there a proxy on the way?"}
		if to := a.header.Get("Location"); to != "" && a.status < 400 {
			p.Detail = "The service is elsewhere, it seems: the answer is a redirect to " + strconv.Quote(to) + "."
		}
	}
	p.Status = a.status
	if p.Title == "" {
		p.Title = http.StatusText(a.status)
	}
	if p.RequestID == "" {
		p.RequestID = a.header.Get("X-Request-Id")
	}
	p.RetryAfter = retryAfter(a.header)
	return p
}

// retryAfter parses the Retry-After header (RFC 9110 section 10.2.3); 0 if there is none.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now := time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // by the same clock
	}
	return max(0, at.Sub(now))
}
