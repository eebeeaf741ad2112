// SPDX-License-Identifier: Apache-2.0

// Package fault names the kinds of error that a caller can act on. Every
// layer returns them; each door (HTTP, SMTP, IMAP) translates them once into
// its own words. Any other error is ours: it is logged for the operator, and
// the outside only learns that something went wrong.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Kind says what a caller can do about an error.
type Kind int

// The kinds, with the HTTP status and the SMTP reply class a door gives them.
const (
	Internal        Kind = iota // 500, 451: our own trouble
	Invalid                     // 422, 5xx: the request breaks a rule; correct it
	Denied                      // 403, 550 5.7.1: not allowed to
	Unauthenticated             // 401, 535: who are you?
	NotFound                    // 404, 550 5.1.1: no such thing, or not yours
	Conflict                    // 409: the state of things does not allow it
	TooLarge                    // 413, 552: over a size limit
	RateLimited                 // 429, 450 4.7.1: too many; later
	OverQuota                   // 507, 452 4.2.2: no room in the mailbox
	Unavailable                 // 503, 451: temporary; the same call may go through later
)

// Error is an error with a kind. Message is a sentence for the person who
// made the request: it says what to do and never repeats a rejected value.
type Error struct {
	Kind       Kind
	Code       string // stable, snake_case; the API's `code`
	Message    string
	Fields     []FieldError  // with Invalid: every field at fault at once
	RetryAfter time.Duration // with RateLimited and Unavailable: when to try again; 0 if unknown
	Cause      error         // for the operator's log only
}

// FieldError is one part of a request that breaks a rule.
type FieldError struct {
	Path    string `json:"field"` // path such as "to[2]" or "attachments[0].content"
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error returns the message, and the cause for the log.
func (e *Error) Error() string {
	s := e.Code + ": " + e.Message
	for _, f := range e.Fields {
		s += "; " + f.Path + ": " + f.Code
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New returns an error of a kind.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an error of a kind with the cause that the log shall show.
func Wrap(cause error, kind Kind, code, format string, args ...any) *Error {
	e := New(kind, code, format, args...)
	e.Cause = cause
	return e
}

// KindOf returns the kind of the first Error in err's chain, else Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// FieldErrors collects everything that is wrong with a request, so that it is
// told at once.
type FieldErrors []FieldError

// Add notes a fault of one field.
func (f *FieldErrors) Add(field, code, format string, args ...any) {
	*f = append(*f, FieldError{Path: field, Code: code, Message: fmt.Sprintf(format, args...)})
}

// Merge adds what another check found, but for fields that have a fault
// already. An error that names no fields is returned.
func (f *FieldErrors) Merge(err error) error {
	var e *Error
	if err == nil || !errors.As(err, &e) || e.Kind != Invalid || len(e.Fields) == 0 {
		return err
	}
	known := len(*f)
	for _, field := range e.Fields {
		if !slices.ContainsFunc((*f)[:known], func(k FieldError) bool { return k.Path == field.Path }) {
			*f = append(*f, field)
		}
	}
	return nil
}

// Err returns nil when nothing was noted, else an Invalid error with all fields.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Kind: Invalid, Code: "validation_failed", Message: "Some fields need correcting.", Fields: f}
}
