// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bufio"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// startTLSCommand is STARTTLS (RFC 3501 §6.2.1). What a client sends in the
// same breath may have been put there by somebody in between, so such a
// client is refused rather than half believed (CVE-2011-0411).
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
	// A session ticket would be the first that the client finds to read. One that
	// reads and writes side by side (imaplib2) and now has to write, having seen
	// no greeting that comes with it, then hangs now and then.
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
