// SPDX-License-Identifier: Apache-2.0

// Package fault defines the kinds of error that a caller can act on. Every layer returns them, and
// each server (HTTP, SMTP, IMAP) translates them once into its protocol. Any other error is
// internal: it is logged for the operator, and clients only learn that something went wrong.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Kind says what a caller can do about an error.
type Kind int

// The kinds, with their HTTP status and SMTP reply class.
const (
	Internal        Kind = iota // 500, 451: an error of the service
	Invalid                     // 422, 5xx: the request breaks a rule; the caller must correct it
	Denied                      // 403, 550 5.7.1: not allowed
	Unauthenticated             // 401, 535: missing or wrong credentials
	NotFound                    // 404, 550 5.1.1: does not exist, or belongs to another account
	Conflict                    // 409: the current state does not allow it
	TooLarge                    // 413, 552: over a size limit
	RateLimited                 // 429, 450 4.7.1: too many requests; try again later
	OverQuota                   // 507, 452 4.2.2: the mailbox is full
	Unavailable                 // 503, 451: temporary; the same call may succeed later
)

// Error is an error with a kind. Message is a sentence for the person who made the request. It says
// what to do, and never repeats a rejected value.
type Error struct {
	Kind       Kind
	Code       string // stable, snake_case; the API's `code`
	Message    string
	Fields     []FieldError  // with Invalid: all invalid fields
	RetryAfter time.Duration // with RateLimited and Unavailable: delay before a retry; 0 if unknown
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

// Wrap returns an error of a kind with a cause for the log.
func Wrap(cause error, kind Kind, code, format string, args ...any) *Error {
	e := New(kind, code, format, args...)
	e.Cause = cause
	return e
}

// KindOf returns the kind of the first Error in err's chain, else Internal.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// FieldErrors collects all errors of a request's fields, so that they are reported together.
type FieldErrors []FieldError

// Add adds an error of a field.
func (f *FieldErrors) Add(field, code, format string, args ...any) {
	*f = append(*f, FieldError{Path: field, Code: code, Message: fmt.Sprintf(format, args...)})
}

// Merge adds the field errors of another check, except for fields that already have one. It returns
// an error without fields.
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

// Err returns nil if there are no errors, else an Invalid error with all fields.
func (f FieldErrors) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Kind: Invalid, Code: "validation_failed", Message: "Some fields need correcting.", Fields: f}
}
