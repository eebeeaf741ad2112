// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// After ENABLE IMAP4rev2 (RFC 9051 App. A, E) names are in UTF-8, searches are
// answered by ESEARCH, SELECT tells the folder's name, and nothing is recent.
// All else that the revision has is there for everybody.

// writeName is the untagged LIST that tells a client of rev2 what a folder is
// called; given is what the client had for it (§6.3.9.7).
func (s *session) writeName(f *folder.Folder, given string) {
	if !s.rev2 {
		return
	}
	row := wire.ListRow{Separator: separator, Mailbox: f.Name}
	if f.SpecialUse != "" {
		row.Attributes = []string{f.SpecialUse}
	}
	if given != f.Name {
		row.OldName = given
	}
	s.w.List(&row)
}

// writeRecent is RECENT, which rev2 has not.
func (s *session) writeRecent(n uint32) {
	if !s.rev2 {
		s.w.Recent(n)
	}
}

// searchOptions are those that a search is answered with.
func (s *session) searchOptions(o wire.SearchOptions) wire.SearchOptions {
	if s.rev2 && !o.Extended {
		o.Extended, o.Return = true, wire.ReturnAll
	}
	return o
}
