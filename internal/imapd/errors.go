// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// responseCode returns the response code (RFC 9051 §7.1, RFC 5530, RFC 7889) for the kinds of error
// that a client can act on.
func responseCode(kind fault.Kind) wire.Code {
	switch kind {
	case fault.Invalid:
		return wire.CodeCannot
	case fault.Denied:
		return wire.CodeNoPerm
	case fault.Unauthenticated:
		return wire.CodeAuthenticationFailed
	case fault.NotFound:
		return wire.CodeNonExistent
	case fault.Conflict:
		return wire.CodeAlreadyExists
	case fault.TooLarge:
		return wire.CodeTooBig
	case fault.RateLimited:
		return wire.CodeLimit
	case fault.OverQuota:
		return wire.CodeOverQuota
	case fault.Unavailable:
		return wire.CodeUnavailable
	}
	return wire.CodeServerBug
}

// wireError converts an error into a NO or BAD response. It logs internal errors, and does not
// reveal their details to the client.
func (s *session) wireError(cmd wire.Command, err error) *wire.Error {
	var f *fault.Error
	switch {
	case errors.As(err, &f) && f.Kind != fault.Internal:
		if f.Cause != nil {
			s.logger().Warn("imap: command failed", "command", cmd.Name(), "err", err)
		}
		return no(responseCode(f.Kind), f.Message)
	case errors.Is(err, folder.ErrExpunged):
		return expungeIssuedError()
	case errors.Is(err, search.ErrIncomplete):
		return unreadableError()
	case errors.Is(err, context.Canceled):
		return no(wire.CodeUnavailable, "The server is going down.")
	}
	s.logger().Error("imap: command failed", "command", cmd.Name(), "err", err)
	return no(wire.CodeServerBug, "Something went wrong on our side. It has been logged.")
}

// suspendedLoginError gives the error for a suspended mailbox the response code for logins.
func suspendedLoginError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Denied {
		return no(wire.CodeAuthorizationFailed, f.Message)
	}
	return err
}

// expungeIssuedError is returned when FETCH, STORE, COPY and MOVE can't handle messages that
// another session has expunged but this one still numbers (RFC 2180 §4.1.2, §4.2.2, §4.2.3 and
// §4.4.1). It is not needed after a command by UID, since the client is told then that they are
// gone.
func expungeIssuedError() *wire.Error {
	return no(wire.CodeExpungeIssued, "Some of the messages no longer exist; they have been deleted.")
}

// unreadableError is returned when a command has failed for some messages and succeeded for the
// others.
func unreadableError() *wire.Error {
	return no(wire.CodeServerBug, "Some messages could not be read. It has been logged.")
}

// tryCreateError adds TRYCREATE for a missing destination of APPEND, COPY and MOVE (RFC 3501 §7.1).
func tryCreateError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.NotFound {
		return no(wire.CodeTryCreate, f.Message)
	}
	return err
}

// connError is an error of the connection: the client is gone, so no response can be sent.
type connError struct{ error }

func (e *connError) Unwrap() error { return e.error }

// wrapConnError marks an error of the Reader as a connection error, unless it is a response to the
// client.
func wrapConnError(err error) error {
	var refused *wire.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return &connError{err}
}
