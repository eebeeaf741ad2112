// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// After ENABLE IMAP4rev2 (RFC 9051 App. A, E) names are in UTF-8, searches return ESEARCH, SELECT
// returns the folder's name, and nothing is recent. The revision's other features are always
// available.

// writeName writes the untagged LIST that tells an IMAP4rev2 client a folder's name; given is the
// name that the client used (§6.3.9.7).
func (s *session) writeName(f *folder.Folder, given string) {
	if !s.rev2 {
		return
	}
	row := wire.ListData{Separator: separator, Mailbox: f.Name}
	if f.SpecialUse != "" {
		row.Attributes = []string{f.SpecialUse}
	}
	if given != f.Name {
		row.OldName = given
	}
	s.w.List(&row)
}

// writeRecent writes RECENT, which IMAP4rev2 does not have.
func (s *session) writeRecent(n uint32) {
	if !s.rev2 {
		s.w.Recent(n)
	}
}

// searchOptions returns the result options to use for a search.
func (s *session) searchOptions(o wire.SearchOptions) wire.SearchOptions {
	if s.rev2 && !o.Extended {
		o.Extended, o.Return = true, wire.ReturnAll
	}
	return o
}
