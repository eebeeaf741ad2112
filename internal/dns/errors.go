// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"net"
)

// The reasons why a lookup returns no records. Every error of Resolver is exactly one of them under
// errors.Is. The first two are answers. The third means that there is no answer, and says nothing
// about what exists.
var (
	// ErrNotFound: the name does not exist (NXDOMAIN), or can't exist.
	ErrNotFound = errors.New("no such name")
	// ErrNoData: the name exists without records of this type (RFC 2308 §2.2).
	ErrNoData = errors.New("no such record")
	// ErrTemporary: there is no usable answer because of a failure, a refusal, a timeout, the
	// network, or malformed data. Try again later.
	ErrTemporary = errors.New("temporary DNS failure")
)

// Error says why a lookup returned no records. It is also a net.Error and, through errors.As, a
// *net.DNSError, which libraries look for.
type Error struct {
	Reason error // ErrNotFound, ErrNoData or ErrTemporary
	Name   string
	Type   string // such as "MX"
	Cause  error  // details for the operator; may be nil
}

// Error returns the text for logs.
func (e *Error) Error() string {
	s := "dns: " + e.Type + " of " + e.Name + ": " + e.Reason.Error()
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Is reports whether target is the reason.
func (e *Error) Is(target error) bool { return target == e.Reason }

// Unwrap returns the cause, such as context.Canceled.
func (e *Error) Unwrap() error { return e.Cause }

// Temporary reports whether a later retry may succeed.
func (e *Error) Temporary() bool { return e.Reason == ErrTemporary }

// Timeout reports whether the lookup timed out.
func (e *Error) Timeout() bool {
	var n net.Error
	return errors.As(e.Cause, &n) && n.Timeout()
}

// As makes errors.As work for *net.DNSError. Its IsNotFound stands for both ErrNotFound and
// ErrNoData, as in package net.
func (e *Error) As(target any) bool {
	t, ok := target.(**net.DNSError)
	if !ok {
		return false
	}
	*t = &net.DNSError{
		Err:         e.Reason.Error(),
		Name:        e.Name,
		IsTimeout:   e.Timeout(),
		IsTemporary: e.Temporary(),
		IsNotFound:  !e.Temporary(),
	}
	return true
}
