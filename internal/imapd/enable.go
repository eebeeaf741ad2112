// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// enabledExtensions are the extensions that a client has enabled, for the rest of its login.
type enabledExtensions struct {
	condStore bool // mod-sequences; other commands enable it too (RFC 7162 §3.1)
	qresync   bool // VANISHED in place of EXPUNGE (RFC 7162 §3.2.3)
	utf8      bool // names and strings in UTF-8, both ways (RFC 6855)
	rev2      bool // see imap4rev2.go
}

// enable handles ENABLE (RFC 5161). It lists what this command has enabled, so nothing the second
// time, and ignores unknown capabilities.
func (s *session) enable(cmd *wire.Enable) (wire.Code, error) {
	var names []string
	for _, name := range cmd.Capabilities {
		if s.enableExtension(name) {
			if name == "IMAP4REV2" {
				name = "IMAP4rev2" // the announced spelling
			}
			names = append(names, name)
		}
	}
	s.w.Enabled(names...)
	return "", nil
}

// enableExtension enables a capability and reports whether it was disabled before.
func (s *session) enableExtension(name string) bool {
	was := s.enabledExtensions
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
	return s.enabledExtensions != was
}
