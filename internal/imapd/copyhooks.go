// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"

	"github.com/mailstead/mailstead/internal/folder"
)

// reportCopy reports to OnCopy where a user put messages. The copy itself is done, so errors here
// don't fail the command.
func (s *session) reportCopy(c *folder.CopyResult) {
	if s.OnCopy != nil {
		if err := s.OnCopy(s.ctx(), s.mailboxID, c); err != nil {
			s.Log.Error("where messages were put could not be learned from", "mailbox", s.mailboxID, "error", err)
		}
	}
	s.reportJunk(c)
}

// reportJunk reports to OnJunk that a user put messages into the junk folder.
func (s *session) reportJunk(c *folder.CopyResult) {
	if s.OnJunk == nil || c.To.SpecialUse != folder.Junk || c.From.SpecialUse == folder.Junk || len(c.DstUIDs) == 0 {
		return
	}
	sent, err := s.Folders.OutboundIDs(s.ctx(), c.To.ID, c.DstRanges())
	if len(sent) > 0 {
		err = errors.Join(err, s.OnJunk(s.ctx(), s.mailboxID, sent))
	}
	if err != nil {
		s.Log.Error("junk could not be complained of", "mailbox", s.mailboxID, "error", err)
	}
}
