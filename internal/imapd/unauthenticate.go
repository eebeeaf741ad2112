// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// unauthenticate handles UNAUTHENTICATE (RFC 8437): it restores the state before the login, except
// for TLS. The server can't detect where a compressed stream ends, so a compressed connection ends
// with BYE, which §3 allows.
func (s *session) unauthenticate() (wire.Code, error) {
	if s.DisableUnauthenticate {
		return "", bad("This server does not offer that command.")
	}
	if s.compressed {
		return "", &wire.Error{Status: wire.Bye, Text: "A compressed connection cannot be used again."}
	}
	s.closeView()
	s.Mailboxes.CloseSession(s.sessionID)
	s.logger().Info("imap: logged out")
	s.user.Store(nil)
	s.needsLoginCheck.Store(false)
	s.sessionState = sessionState{}
	s.errorCount = 0
	s.r.Limits = wire.LimitsBeforeLogin()
	s.r.UTF8, s.w.UTF8, s.r.NoCharset = false, false, false
	s.stream.readDeadline = time.Now().Add(s.Timeouts.Login)
	return wire.CodeCapability(s.capabilities()...), nil
}
