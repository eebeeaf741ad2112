// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"

	"github.com/mailstead/mailstead/internal/folder"
)

// sorted tells where a person put messages. What they did is done, so trouble
// here is none of theirs.
func (s *session) sorted(c *folder.Copied) {
	if s.Sorted != nil {
		if err := s.Sorted(s.ctx(), s.box, c); err != nil {
			s.Log.Error("where messages were put could not be learned from", "mailbox", s.box, "error", err)
		}
	}
	s.junked(c)
}

// junked tells that a person calls messages junk by putting them into the
// folder for it.
func (s *session) junked(c *folder.Copied) {
	if s.Junked == nil || c.To.Special != folder.Junk || c.From.Special == folder.Junk || len(c.Dst) == 0 {
		return
	}
	sent, err := s.Folders.Delivered(s.ctx(), c.To.ID, c.Runs())
	if len(sent) > 0 {
		err = errors.Join(err, s.Junked(s.ctx(), s.box, sent))
	}
	if err != nil {
		s.Log.Error("junk could not be complained of", "mailbox", s.box, "error", err)
	}
}
