// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// closeCommand handles CLOSE: it expunges silently, but not after EXAMINE (RFC 3501 §6.4.2). It
// returns no HIGHESTMODSEQ, since the client would then never learn which messages are gone (RFC
// 7162 §3.2.8).
func (s *session) closeCommand() (wire.Code, error) {
	if !s.readOnly {
		if _, err := s.view.Expunge(s.ctx(), nil); err != nil {
			return "", err
		}
	}
	s.closeView()
	return "", nil
}

// unselect handles UNSELECT (RFC 3691).
func (s *session) unselect() (wire.Code, error) {
	s.closeView()
	return "", nil
}

// closeView leaves the selected state.
func (s *session) closeView() {
	if s.view != nil {
		s.view.Close()
	}
	s.view, s.readOnly, s.savedUIDs, s.keywordCount = nil, false, nil, 0
}
