// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bytes"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// authenticate handles AUTHENTICATE, with or without an initial response.
func (s *session) authenticate(cmd *wire.Authenticate) (wire.Code, error) {
	switch {
	case !s.isTLS:
		return "", no(wire.CodePrivacyRequired, "Encrypt the connection first, with STARTTLS.")
	case cmd.Mechanism == "PLAIN":
		return s.authPlain(cmd)
	case cmd.Mechanism == credential.MechanismSCRAM && s.Mailboxes.SCRAM.IsOffered():
		return s.authScram(cmd)
	}
	return "", no(wire.CodeCannot, "CAPABILITY tells which mechanisms there are.")
}

// authPlain handles AUTHENTICATE PLAIN (RFC 4616).
func (s *session) authPlain(cmd *wire.Authenticate) (wire.Code, error) {
	response, err := s.initialResponse(cmd)
	if err != nil {
		return "", err
	}
	// authzid NUL authcid NUL passwd
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 {
		return "", bad("This is no response of the mechanism PLAIN.")
	}
	as, user, password := string(parts[0]), string(parts[1]), string(parts[2])
	if as != "" && as != user {
		return "", authzidError()
	}
	return s.loginPassword(user, password)
}

// authScram handles AUTHENTICATE SCRAM-SHA-256 (RFC 7677).
func (s *session) authScram(cmd *wire.Authenticate) (wire.Code, error) {
	response, err := s.initialResponse(cmd)
	if err != nil {
		return "", err
	}
	e, err := s.Mailboxes.SCRAM.Begin(string(response))
	if err != nil {
		return "", scramError()
	}
	if e.AuthzID != "" && !strings.EqualFold(e.AuthzID, e.User) {
		return "", authzidError()
	}
	if response, err = s.challenge(e.Challenge); err != nil {
		return "", err
	}
	box, answer, err := s.Mailboxes.AuthenticateSCRAM(s.ctx(), mailbox.IMAP, e, string(response), s.remote)
	if errors.Is(err, credential.ErrSCRAMMessage) {
		return "", scramError()
	}
	if err != nil {
		return "", s.loginFailed(err)
	}
	// An OK can carry no data, so the server's proof precedes it (RFC 9051 §6.2.2).
	if response, err = s.challenge(answer); err != nil {
		return "", err
	}
	if len(response) > 0 {
		return "", scramError()
	}
	return s.loginSucceeded(box), nil
}

func scramError() error { return bad("This is no message of SCRAM-SHA-256 that is understood here.") }

func authzidError() error {
	return no(wire.CodeAuthorizationFailed, "Nobody can act for another here.")
}

// initialResponse returns the client's first response.
func (s *session) initialResponse(cmd *wire.Authenticate) ([]byte, error) {
	if cmd.HasInitial {
		return cmd.Initial, nil
	}
	return s.challenge("")
}

// challenge sends a challenge and returns the response.
func (s *session) challenge(challenge string) ([]byte, error) {
	if err := s.w.Challenge([]byte(challenge)); err != nil {
		return nil, err
	}
	response, err := s.r.ReadSASLResponse()
	if errors.Is(err, wire.ErrAuthCancelled) {
		return nil, bad("AUTHENTICATE was cancelled.")
	}
	return response, wrapConnError(err)
}
