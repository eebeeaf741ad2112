// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// move is MOVE (RFC 6851). The new UIDs stand in an untagged OK before the
// EXPUNGEs, as the RFC has it for a client that has to match the two (§4.3).
// Like COPY it moves all messages that numbers mean or none.
func (s *session) move(cmd *wire.Move) (wire.Code, error) {
	uids, err := s.resolve(cmd.Messages)
	if err != nil || len(uids) == 0 {
		return "", err
	}
	transfer := s.view.MoveAll
	if cmd.Messages.UID {
		transfer = s.view.Move
	}
	moved, err := transfer(s.ctx(), uids, cmd.Mailbox)
	if err != nil {
		return "", orTryCreate(err)
	}
	s.sorted(&moved)
	if code := copyUID(&moved); code != "" {
		s.w.Untagged(wire.OK, code, "Moved.")
		return s.expunged()
	}
	return "", nil
}
