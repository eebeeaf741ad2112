// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bytes"
	"errors"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// authenticate is AUTHENTICATE PLAIN (RFC 4616), with or without an initial
// response.
func (s *session) authenticate(cmd *wire.Authenticate) (wire.Code, error) {
	if !s.secure {
		return "", no(wire.CodePrivacyRequired, "Encrypt the connection first, with STARTTLS.")
	}
	if cmd.Mechanism != "PLAIN" {
		return "", no(wire.CodeCannot, "The mechanism is PLAIN here.")
	}
	response := cmd.Initial
	if !cmd.HasInitial {
		if err := s.w.Challenge(nil); err != nil {
			return "", err
		}
		var err error
		if response, err = s.r.ReadResponse(); errors.Is(err, wire.ErrCancelled) {
			return "", bad("AUTHENTICATE was cancelled.")
		} else if err != nil {
			return "", lost(err)
		}
	}
	// authzid NUL authcid NUL passwd
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 {
		return "", bad("This is no response of the mechanism PLAIN.")
	}
	as, user, password := string(parts[0]), string(parts[1]), string(parts[2])
	if as != "" && as != user {
		return "", no(wire.CodeAuthorizationFailed, "Nobody can act for another here.")
	}
	return s.signIn(user, password)
}
