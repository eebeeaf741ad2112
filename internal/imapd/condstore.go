// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// enableCondStore records that the client wants mod-sequences in every FETCH: it has used ENABLE
// CONDSTORE or another command that implies it (RFC 7162 §3.1). In the selected state it reports
// the folder's HIGHESTMODSEQ.
func (s *session) enableCondStore() {
	if s.condStore {
		return
	}
	s.condStore = true
	if s.view != nil {
		s.w.Untagged(wire.OK, wire.CodeHighestModSeq(s.view.Folder().ModSeq), "Mod-sequences are on.")
	}
}
