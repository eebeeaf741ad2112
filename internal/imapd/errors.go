// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// codes are the response codes (RFC 9051 §7.1, RFC 5530, RFC 7889) for the
// kinds of error that a client can act on.
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

// wireError turns an error of the house into a refusal. What is our own
// trouble is logged, and the client learns no more than that.
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
	case errors.Is(err, folder.ErrUnreadable):
		return unreadableError()
	case errors.Is(err, context.Canceled):
		return no(wire.CodeUnavailable, "The server is going down.")
	}
	s.logger().Error("imap: command failed", "command", cmd.Name(), "err", err)
	return no(wire.CodeServerBug, "Something went wrong on our side. It has been logged.")
}

// suspendedLoginError gives a suspended mailbox the code that a login has for it.
func suspendedLoginError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.Denied {
		return no(wire.CodeAuthorizationFailed, f.Message)
	}
	return err
}

// expungeIssuedError refuses what FETCH, STORE, COPY and MOVE cannot do for messages
// that another session has expunged but this one still numbers (RFC 2180
// §4.1.2, §4.2.2, §4.2.3 and §4.4.1). After a command by UID the client is told that they are
// gone, so it needs no more.
func expungeIssuedError() *wire.Error {
	return no(wire.CodeExpungeIssued, "Some of the messages no longer exist; they have been deleted.")
}

// unreadableError refuses what could not be done for some messages, after it was done
// for the others.
func unreadableError() *wire.Error {
	return no(wire.CodeServerBug, "Some messages could not be read. It has been logged.")
}

// tryCreateError is for the destination of APPEND, COPY and MOVE: one that does
// not exist could be created (RFC 3501 §7.1).
func tryCreateError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind == fault.NotFound {
		return no(wire.CodeTryCreate, f.Message)
	}
	return err
}

// connError says that the client is gone, so that there is nobody to answer.
type connError struct{ error }

func (e *connError) Unwrap() error { return e.error }

// wrapConnError marks an error of the Reader as one of the connection, unless it is an
// answer to the client.
func wrapConnError(err error) error {
	var refused *wire.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return &connError{err}
}
