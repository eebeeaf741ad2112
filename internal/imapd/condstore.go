// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// enableCondStore notes that the client wants mod-sequences in every FETCH from
// now on: it has used ENABLE CONDSTORE or another command that says so (RFC
// 7162 §3.1). In the selected state it is told where the folder stands.
func (s *session) enableCondStore() {
	if s.condStore {
		return
	}
	s.condStore = true
	if s.view != nil {
		s.w.Untagged(wire.OK, wire.HighestModSeq(s.view.Folder().ModSeq), "Mod-sequences are on.")
	}
}
