// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// resync tells what has happened to the selected folder since the state that
// the client remembers (RFC 7162 §3.2.5). It takes time for what has happened,
// not for what is there, unless that is more than the change log goes back.
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

// writeVanished writes VANISHED (EARLIER) for what is gone of the known UIDs
// above one.
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

// writeVanishedModifier is the modifier VANISHED of UID FETCH (RFC 7162 §3.2.6). "*" stands
// for the last UID that was given, since its message may be what is gone.
func (f *fetcher) writeVanishedModifier() error {
	n := f.cmd.Messages
	if n.Saved && len(f.savedUIDs) == 0 {
		return nil
	}
	if n.Saved {
		return f.writeVanished(f.savedUIDs, f.cmd.ChangedSince, 0)
	}
	last := f.view.Folder().UIDNext - 1
	return f.writeVanished(folderRanges(n.Set.Resolve(last)), f.cmd.ChangedSince, 0)
}

// expungeCode tells what is gone, and returns the code that says where the folder
// then stands: with what others did as well, so that the client has heard of
// all that the code covers (RFC 7162 §3.2.7).
func (s *session) expungeCode() (wire.Code, error) {
	if !s.condStore {
		return "", nil
	}
	if err := s.writeChanges(true); err != nil {
		return "", err
	}
	return wire.HighestModSeq(s.view.Folder().ModSeq), nil
}
