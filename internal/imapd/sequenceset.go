// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// resolveNumbers normalizes a set of the selected folder. A sequence number without a message is an
// error of the client (RFC 9051 §9, seq-number); a UID without a message is not.
func (s *session) resolveNumbers(n wire.NumSet) (wire.Set, error) {
	count := uint32(s.view.Len())
	if n.UID {
		last := uint32(0)
		if count > 0 {
			last = s.view.UID(count)
		}
		return n.Set.Resolve(last), nil
	}
	set := n.Set.Resolve(count)
	if count == 0 || set[len(set)-1].Hi > count {
		return nil, bad("There is no message with that number.")
	}
	return set, nil
}

// resolve returns the UIDs of the messages that a command names, in order.
func (s *session) resolve(n wire.NumSet) ([]uint32, error) {
	if n.Saved {
		return s.view.Resolve(s.savedUIDs, true), nil
	}
	set, err := s.resolveNumbers(n)
	if err != nil {
		return nil, err
	}
	return s.view.Resolve(folderRanges(set), n.UID), nil
}

// folderRanges converts a set, which must not be nil, to ranges of package folder.
func folderRanges(set wire.Set) []folder.Range {
	ranges := make([]folder.Range, len(set))
	for i, r := range set {
		ranges[i] = folder.Range{Lo: r.Lo, Hi: r.Hi}
	}
	return ranges
}
