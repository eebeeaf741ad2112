// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// store handles STORE, also conditionally: only if nobody has changed the message (RFC 7162
// §3.1.3).
func (s *session) store(cmd *wire.Store) (wire.Code, error) {
	uids, err := s.resolve(cmd.Messages)
	if err != nil {
		return "", err
	}
	if cmd.HasUnchangedSince {
		s.enableCondStore()
	}
	if len(uids) == 0 {
		return "", nil
	}
	changed, failed, err := s.view.UpdateFlags(s.ctx(), uids, folder.FlagUpdate{
		Op: storeOp(cmd.Op), Flags: folder.Flags(cmd.Flags.System), Keywords: cmd.Flags.Keywords,
		HasUnchangedSince: cmd.HasUnchangedSince, UnchangedSince: cmd.UnchangedSince,
	})
	s.writeNewKeywords()
	if err := s.eachChange(changed, func(c *folder.FlagChange) { s.writeStoreResult(c, cmd) }); err != nil {
		return "", err
	}
	if err != nil { // earlier changes were reported above
		return "", err
	}
	if len(failed) > 0 {
		return s.modifiedCode(cmd, failed), nil
	}
	if len(changed) < len(uids) && !cmd.Messages.UID && !cmd.Silent {
		return "", expungeIssuedError()
	}
	return "", nil
}

func storeOp(op wire.StoreOp) folder.FlagOp {
	switch op {
	case wire.StoreAdd:
		return folder.AddFlags
	case wire.StoreRemove:
		return folder.RemoveFlags
	}
	return folder.ReplaceFlags
}

// writeStoreResult writes the untagged FETCH of one message after STORE. A silent STORE still
// reports changes by others (RFC 3501 §6.4.6), and the new mod-sequence if the client wants it.
func (s *session) writeStoreResult(c *folder.FlagChange, cmd *wire.Store) {
	switch {
	case !cmd.Silent || c.ChangedByOthers:
		s.writeFlags(c)
	case s.condStore:
		row := s.w.Fetch(c.Seq)
		row.UID(c.UID)
		row.ModSeq(c.ModSeq)
		row.End()
	}
}

// modifiedCode returns the code with the messages that STORE did not change, by UID or by sequence
// number like the command.
func (s *session) modifiedCode(cmd *wire.Store, uids []uint32) wire.Code {
	if cmd.Messages.UID {
		return wire.CodeModified(wire.SetOf(uids...))
	}
	var seqs wire.Set
	for _, uid := range uids {
		seqs.Add(s.view.Seq(uid))
	}
	return wire.CodeModified(seqs)
}
