// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// resync reports the changes to the selected folder since the state that the client remembers (RFC
// 7162 §3.2.5). The cost depends on the number of changes, not on the number of messages, unless
// the change log does not go back far enough.
func (s *session) resync(q *wire.QResync) error {
	var known []folder.Range // nil for all
	if q.Known != nil {
		known = folderRanges(q.Known)
	}
	if err := s.writeVanished(known, q.ModSeq, s.view.MatchedThroughUID(folderRanges(q.MatchSeqs), folderRanges(q.MatchUIDs))); err != nil {
		return err
	}
	return s.view.Fetch(s.ctx(), s.view.ChangedIn(known, q.ModSeq), 0, func(r *folder.MessageRow) error {
		s.writeFlags(&r.FlagChange)
		return s.w.Err()
	})
}

// writeVanished writes VANISHED (EARLIER) for the known UIDs above above that are gone.
func (s *session) writeVanished(known []folder.Range, modseq uint64, above uint32) error {
	gone, err := s.view.VanishedSince(s.ctx(), modseq, known)
	if err != nil {
		return err
	}
	var set wire.Set
	for _, r := range gone {
		if r.Hi > above {
			set = append(set, wire.Range{Lo: max(r.Lo, above+1), Hi: r.Hi})
		}
	}
	s.w.Vanished(true, set)
	return nil
}

// writeVanishedModifier handles the modifier VANISHED of UID FETCH (RFC 7162 §3.2.6). "*" means the
// last UID ever given, since its message may be gone.
func (f *fetcher) writeVanishedModifier() error {
	n := f.cmd.Messages
	if n.Saved && len(f.session.savedUIDs) == 0 {
		return nil
	}
	if n.Saved {
		return f.session.writeVanished(f.session.savedUIDs, f.cmd.ChangedSince, 0)
	}
	last := f.session.view.Folder().UIDNext - 1
	return f.session.writeVanished(folderRanges(n.Set.Resolve(last)), f.cmd.ChangedSince, 0)
}

// expungeCode reports expunged messages, and returns the code with the folder's HIGHESTMODSEQ. It
// also reports the changes of others, so that the client knows all changes that the code covers
// (RFC 7162 §3.2.7).
func (s *session) expungeCode() (wire.Code, error) {
	if !s.condStore {
		return "", nil
	}
	if err := s.writeChanges(true); err != nil {
		return "", err
	}
	return wire.CodeHighestModSeq(s.view.Folder().ModSeq), nil
}
