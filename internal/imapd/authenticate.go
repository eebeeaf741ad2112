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

// authenticate is AUTHENTICATE, with or without an initial response.
func (s *session) authenticate(cmd *wire.Authenticate) (wire.Code, error) {
	switch {
	case !s.secure:
		return "", no(wire.CodePrivacyRequired, "Encrypt the connection first, with STARTTLS.")
	case cmd.Mechanism == "PLAIN":
		return s.plain(cmd)
	case cmd.Mechanism == credential.MechanismScram && s.Mailboxes.Scram.Offers():
		return s.scram(cmd)
	}
	return "", no(wire.CodeCannot, "CAPABILITY tells which mechanisms there are.")
}

// plain is AUTHENTICATE PLAIN (RFC 4616).
func (s *session) plain(cmd *wire.Authenticate) (wire.Code, error) {
	response, err := s.first(cmd)
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
		return "", forAnother()
	}
	return s.signIn(user, password)
}

// scram is AUTHENTICATE SCRAM-SHA-256 (RFC 7677).
func (s *session) scram(cmd *wire.Authenticate) (wire.Code, error) {
	response, err := s.first(cmd)
	if err != nil {
		return "", err
	}
	e, err := s.Mailboxes.Scram.Begin(string(response))
	if err != nil {
		return "", noScram()
	}
	if e.For != "" && !strings.EqualFold(e.For, e.User) {
		return "", forAnother()
	}
	if response, err = s.ask(e.Challenge); err != nil {
		return "", err
	}
	box, answer, err := s.Mailboxes.Prove(s.ctx(), mailbox.IMAP, e, string(response), s.remote)
	if errors.Is(err, credential.ErrScram) {
		return "", noScram()
	}
	if err != nil {
		return "", s.refused(err)
	}
	// An OK can carry no data, so our proof goes before it (RFC 9051 §6.2.2).
	if response, err = s.ask(answer); err != nil {
		return "", err
	}
	if len(response) > 0 {
		return "", noScram()
	}
	return s.signedIn(box), nil
}

func noScram() error { return bad("This is no message of SCRAM-SHA-256 that is understood here.") }

func forAnother() error {
	return no(wire.CodeAuthorizationFailed, "Nobody can act for another here.")
}

// first is the client's first response.
func (s *session) first(cmd *wire.Authenticate) ([]byte, error) {
	if cmd.HasInitial {
		return cmd.Initial, nil
	}
	return s.ask("")
}

// ask sends a challenge and returns the response.
func (s *session) ask(challenge string) ([]byte, error) {
	if err := s.w.Challenge([]byte(challenge)); err != nil {
		return nil, err
	}
	response, err := s.r.ReadResponse()
	if errors.Is(err, wire.ErrCancelled) {
		return nil, bad("AUTHENTICATE was cancelled.")
	}
	return response, lost(err)
}
