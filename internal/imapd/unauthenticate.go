// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// unauthenticate is UNAUTHENTICATE (RFC 8437): all is as before the log-in, but
// for TLS. Where a compressed stream ends nothing tells us, so such a
// connection ends with BYE, which §3 allows.
func (s *session) unauthenticate() (wire.Code, error) {
	if s.KeepLogin {
		return "", bad("This server does not offer that command.")
	}
	if s.compressed {
		return "", &wire.Error{Status: wire.Bye, Text: "A compressed connection cannot be used again."}
	}
	s.closeView()
	s.Mailboxes.Closed(s.listed)
	s.logger().Info("imap: logged out")
	s.user.Store(nil)
	s.doubted.Store(false)
	s.state = state{}
	s.mistakes = 0
	s.r.Limits = wire.LimitsBeforeLogin()
	s.r.UTF8, s.w.UTF8, s.r.NoCharset = false, false, false
	s.stream.until = time.Now().Add(s.Timeouts.Login)
	return wire.Capabilities(s.capabilities()...), nil
}
