// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bufio"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// startTLSCommand handles STARTTLS (RFC 3501 §6.2.1). An attacker may have injected data that
// arrives together with the command, so it rejects a client that sends any (CVE-2011-0411).
func (s *session) startTLSCommand() (wire.Code, error) {
	if s.isTLS {
		return "", bad("This connection is encrypted already.")
	}
	if s.r.Buffered() > 0 {
		return "", &wire.Error{Status: wire.Bye, Text: "Nothing may follow STARTTLS before the handshake."}
	}
	s.w.Tagged(s.tag, wire.OK, "", "Begin TLS now.")
	if err := s.w.Flush(); err != nil {
		return "", err
	}
	s.wroteTagged = true
	// A session ticket would be the first data that the client reads. A client that reads and
	// writes concurrently (imaplib2) and now has to write, because no greeting follows, then hangs
	// occasionally.
	config := s.TLS.Clone()
	config.SessionTicketsDisabled = true
	if err := s.startTLS(config); err != nil {
		s.logger().Debug("imap: TLS failed", "err", err)
		s.closing = true
		return "", nil
	}
	s.r.Reset(bufio.NewReaderSize(&s.stream, readBufferSize))
	return "", nil
}
