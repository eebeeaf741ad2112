// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// delete handles DELETE. A session that deletes its selected folder leaves it, even if the folder
// was renamed.
func (s *session) delete(cmd *wire.Delete) (wire.Code, error) {
	id, err := s.Folders.Delete(s.ctx(), s.mailboxID, cmd.Mailbox)
	var f *fault.Error
	if errors.As(err, &f) && f.Code == folder.CodeHasChildren { // RFC 9051 §6.3.5
		return "", no(wire.CodeHasChildren, f.Message)
	}
	if err != nil {
		return "", err
	}
	if s.view != nil && s.view.Folder().ID == id {
		s.closeView()
		s.w.Untagged(wire.OK, wire.CodeClosed, "The mailbox that was open is deleted.")
	}
	return "", nil
}
