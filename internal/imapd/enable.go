// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// extensions is what a client has switched on, for the rest of its log-in.
type extensions struct {
	condStore bool // mod-sequences, also by other commands (RFC 7162 §3.1)
	qresync   bool // VANISHED in place of EXPUNGE (RFC 7162 §3.2.3)
	utf8      bool // names and strings in UTF-8, both ways (RFC 6855)
	rev2      bool // see rev2.go
}

// enable is ENABLE (RFC 5161). It names what this command has switched on, so
// nothing the second time; what there is not is passed over.
func (s *session) enable(cmd *wire.Enable) (wire.Code, error) {
	var names []string
	for _, name := range cmd.Capabilities {
		if s.enableExtension(name) {
			if name == "IMAP4REV2" {
				name = "IMAP4rev2" // as it is announced
			}
			names = append(names, name)
		}
	}
	s.w.Enabled(names...)
	return "", nil
}

// enableExtension reports whether a capability is on that was off before.
func (s *session) enableExtension(name string) bool {
	was := s.extensions
	switch name {
	case "CONDSTORE":
		s.enableCondStore()
	case "QRESYNC":
		s.enableCondStore()
		s.qresync = true
	case "IMAP4REV2":
		s.rev2 = true
		s.r.UTF8, s.w.UTF8 = true, true
	case "UTF8=ACCEPT":
		s.utf8 = true
		s.r.UTF8, s.w.UTF8, s.r.NoCharset = true, true, true
	}
	return s.extensions != was
}
