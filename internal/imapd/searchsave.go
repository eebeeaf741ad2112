// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// maxSavedRanges is how many ranges of UIDs of a search a session saves: 2 MiB.
const maxSavedRanges = 1 << 18

// saveResult saves the messages that "$" names from now on (RFC 5182). It saves UIDs, so expunged
// messages drop out automatically. A search that ends with err saves nothing: a NO clears the saved
// result, a BAD leaves it.
func (s *session) saveResult(uids []uint32, err error) error {
	var refused *wire.Error
	if errors.As(err, &refused) && refused.Status == wire.Bad {
		return err
	}
	s.savedUIDs = nil
	if err != nil {
		return err
	}
	if !slices.IsSorted(uids) {
		uids = slices.Sorted(slices.Values(uids))
	}
	var saved []folder.Range
	for _, uid := range uids {
		if last := len(saved) - 1; last >= 0 && saved[last].Hi+1 >= uid {
			saved[last].Hi = uid
			continue
		}
		if len(saved) == maxSavedRanges {
			return no(wire.CodeNotSaved, "The result is too scattered to be saved.")
		}
		saved = append(saved, folder.Range{Lo: uid, Hi: uid})
	}
	s.savedUIDs = saved
	return nil
}
