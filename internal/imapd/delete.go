// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// delete is DELETE. A session that deletes the folder it has open leaves it,
// whatever name that has by now.
func (s *session) delete(cmd *wire.Delete) (wire.Code, error) {
	id, err := s.Folders.Delete(s.ctx(), s.box, cmd.Mailbox)
	if err != nil {
		return "", err
	}
	if s.view != nil && s.view.Folder().ID == id {
		s.closeView()
		s.w.Untagged(wire.OK, wire.CodeClosed, "The mailbox that was open is deleted.")
	}
	return "", nil
}
