// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// replace handles REPLACE (RFC 8508). The new UID is in an untagged OK, before the client is told
// that the old message is gone (§4.3).
func (s *session) replace(cmd *wire.Replace) (wire.Code, error) {
	in := appendReader{session: s, target: cmd.Mailbox}
	uid, err := in.findReplaced(cmd)
	if err != nil {
		return "", err
	}
	if err := in.readAll(&cmd.Message, 1); err != nil {
		return "", err
	}
	filed, err := s.view.Replace(s.ctx(), uid, cmd.Mailbox, in.uploads[0])
	if err != nil {
		in.discard(err)
		var f *fault.Error
		if errors.As(err, &f) && f.Code == folder.CodeMessageGone {
			return "", replaceTargetError(cmd)
		}
		return "", tryCreateError(err)
	}
	s.w.Untagged(wire.OK, wire.CodeAppendUID(filed.UIDValidity, wire.SetOf(filed.UID)), "The replacement is there.")
	return s.expungeCode()
}

// findReplaced finds the message that a REPLACE removes, and the bytes that this frees.
func (in *appendReader) findReplaced(cmd *wire.Replace) (uid uint32, err error) {
	switch {
	case cmd.Number == wire.Star:
		uid = in.session.view.UID(uint32(in.session.view.Len()))
	case cmd.UID:
		uid = cmd.Number
	default:
		uid = in.session.view.UID(cmd.Number)
	}
	if uid == 0 && !cmd.UID {
		return 0, bad("There is no message with that number.")
	}
	there := false
	err = in.session.view.Fetch(in.session.ctx(), []uint32{uid}, 0, func(r *folder.MessageRow) error {
		there, in.freedBytes = true, mailbox.CountedSize(int64(r.Size))
		return nil
	})
	if err == nil && !there {
		err = replaceTargetError(cmd)
	}
	return uid, err
}

// replaceTargetError is returned for a message to replace that another session has expunged or that
// never existed.
func replaceTargetError(cmd *wire.Replace) error {
	if cmd.UID {
		return no(wire.CodeNonExistent, "There is no message with that UID.")
	}
	return expungeIssuedError()
}
