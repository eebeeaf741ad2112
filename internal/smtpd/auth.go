// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

// offersAuth reports whether AUTH is possible now: only on submission, and never in clear.
func (c *conn) offersAuth() bool { return c.srv.Mode != MX && c.tls != nil }

// mechanisms returns the AUTH mechanisms, as EHLO announces them.
func (c *conn) mechanisms() string {
	if c.srv.Mailboxes.SCRAM.IsOffered() {
		return credential.MechanismSCRAM + " PLAIN LOGIN"
	}
	return "PLAIN LOGIN"
}

// auth handles AUTH (RFC 4954) with PLAIN (RFC 4616) and LOGIN, and with SCRAM-SHA-256 (RFC 7677)
// if it is offered.
func (c *conn) auth(ctx context.Context, arg string) reply {
	switch {
	case c.srv.Mode == MX:
		return reply{503, "5.5.1", "Sign in on the submission ports, 587 or 465"}
	case c.tls == nil:
		return reply{538, "5.7.11", "Say STARTTLS first"}
	case !c.esmtp:
		return reply{503, "5.5.1", "Say EHLO first"}
	case c.user != nil:
		return reply{503, "5.5.1", "You are signed in already"}
	case c.tx != nil:
		return reply{503, "5.5.1", "Not within a transaction"}
	}
	mechanism, initial, given := strings.Cut(arg, " ")
	var user, password string
	var err error
	switch mechanism = strings.ToUpper(mechanism); {
	case mechanism == "PLAIN":
		user, password, err = c.authPlain(initial, given)
	case mechanism == "LOGIN":
		user, password, err = c.authLogin(initial, given)
	case mechanism == credential.MechanismSCRAM && c.srv.Mailboxes.SCRAM.IsOffered():
		return c.authSCRAM(ctx, initial, given)
	default:
		return reply{504, "5.5.4", "The mechanisms are " + c.mechanisms()}
	}
	if err != nil {
		return c.authExchangeError(err)
	}
	who, err := c.authenticate(ctx, user, password)
	if err != nil {
		return c.authFailureReply(ctx, err)
	}
	return c.setLogin(who)
}

// authFailureReply returns the reply for a failed login, and counts it.
func (c *conn) authFailureReply(ctx context.Context, err error) reply {
	c.authFailures++
	r := reply{454, "4.7.0", "Signing in is not possible at the moment; try again later"}
	var f *fault.Error
	switch {
	case !errors.As(err, &f) || f.Kind == fault.Internal:
		c.log.Error("signing in failed", "error", err)
	case f.Kind == fault.Unauthenticated:
		r = reply{535, "5.7.8", f.Message}
	case f.Kind == fault.Denied:
		r = reply{535, "5.7.13", f.Message}
	case f.Kind == fault.RateLimited:
		_ = notify.Sleep(ctx, mailbox.TooManyLoginsDelay) // at shutdown reject at once
		r = reply{454, "4.7.0", f.Message}
	}
	c.log.Info("log-in refused", "code", r.code, "enhanced", r.enhanced)
	if c.authFailures >= maxAuthFailures {
		c.closing = true
		r.code, r.enhanced, r.text = 421, "4.7.0", "Too many failed log-ins; goodbye"
	}
	return r
}

// Errors of the AUTH exchange.
var (
	errCancelled     = errors.New("AUTH was cancelled")
	errInvalidBase64 = errors.New("not base64")
	errInvalidPlain  = errors.New("not a PLAIN message")
)

func (c *conn) authExchangeError(err error) reply {
	switch {
	case errors.Is(err, errCancelled):
		return reply{501, "5.7.0", "AUTH was cancelled"}
	case errors.Is(err, errInvalidBase64):
		return reply{501, "5.5.2", "This is not base64"}
	case errors.Is(err, errInvalidPlain):
		return reply{501, "5.5.2", "This is not what PLAIN asks for"}
	case errors.Is(err, credential.ErrSCRAMMessage):
		return reply{501, "5.5.2", "This is no message of SCRAM-SHA-256 that is understood here"}
	case errors.Is(err, errBadLine):
		return reply{500, "5.5.2", err.Error()}
	}
	c.handleReadError(err)
	c.closing = true
	return reply{}
}

func (c *conn) authPlain(initial string, given bool) (user, password string, err error) {
	raw, err := c.readResponse("", initial, given)
	if err != nil {
		return "", "", err
	}
	parts := strings.Split(raw, "\x00")
	// Acting for another user (the authorization identity) is not supported.
	if len(parts) != 3 || parts[0] != "" && !strings.EqualFold(parts[0], parts[1]) {
		return "", "", errInvalidPlain
	}
	return parts[1], parts[2], nil
}

// authSCRAM handles SCRAM-SHA-256. It needs an additional empty line from the client, since 235 can
// carry no data (RFC 4954 §4).
func (c *conn) authSCRAM(ctx context.Context, initial string, given bool) reply {
	first, err := c.readResponse("", initial, given)
	if err != nil {
		return c.authExchangeError(err)
	}
	e, err := c.srv.Mailboxes.SCRAM.Begin(first)
	if err != nil || e.AuthzID != "" && !strings.EqualFold(e.AuthzID, e.User) {
		return c.authExchangeError(credential.ErrSCRAMMessage)
	}
	if strings.EqualFold(e.User, apiUser) && c.srv.Accounts != nil {
		// A key is looked up by its text, which SCRAM does not transmit.
		return reply{504, "5.5.4", "The mechanisms for the user api are PLAIN and LOGIN"}
	}
	final, err := c.readResponse(encodeBase64(e.Challenge), "", false)
	if err != nil {
		return c.authExchangeError(err)
	}
	box, proof, err := c.srv.Mailboxes.AuthenticateSCRAM(ctx, mailbox.SMTP, e, final, c.ip)
	if errors.Is(err, credential.ErrSCRAMMessage) {
		return c.authExchangeError(err)
	}
	if err != nil {
		return c.authFailureReply(ctx, err)
	}
	switch last, err := c.readResponse(encodeBase64(proof), "", false); {
	case err != nil:
		return c.authExchangeError(err)
	case last != "":
		return c.authExchangeError(credential.ErrSCRAMMessage)
	}
	return c.setLogin(&login{mailbox: box})
}

func encodeBase64(message string) string { return base64.StdEncoding.EncodeToString([]byte(message)) }

func (c *conn) authLogin(initial string, given bool) (user, password string, err error) {
	if user, err = c.readResponse("VXNlcm5hbWU6", initial, given); err != nil { // Username:
		return "", "", err
	}
	password, err = c.readResponse("UGFzc3dvcmQ6", "", false) // Password:
	return user, password, err
}

// readResponse returns the decoded response: the initial one if given, else the reply to the
// challenge.
func (c *conn) readResponse(challenge, initial string, given bool) (string, error) {
	line := initial
	if !given {
		c.writeReply(reply{334, "", challenge})
		var err error
		if line, err = c.readLine(); err != nil {
			return "", err
		}
	}
	switch {
	case line == "*":
		return "", errCancelled
	case given && line == "=": // an empty response (RFC 4954 §4)
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return "", errInvalidBase64
	}
	return string(raw), nil
}
