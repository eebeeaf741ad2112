// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// move handles MOVE (RFC 6851). The new UIDs are in an untagged OK before the EXPUNGEs, as the RFC
// recommends for clients that match the two (§4.3). Like COPY it moves all messages that sequence
// numbers name, or none. If it fails midway, it still reports what it has moved.
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
	s.reportCopy(&moved)
	code := copyUIDCode(&moved)
	if code != "" {
		s.w.Untagged(wire.OK, code, "Moved.")
	}
	if err != nil || code == "" {
		return "", tryCreateError(err)
	}
	return s.expungeCode()
}
