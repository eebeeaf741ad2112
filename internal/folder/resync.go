// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

var vanishedAfterQuery = db.SQL(`SELECT modseq, uids FROM folder_change
	WHERE folder = $1 AND modseq > $2 AND vanished = $3 ORDER BY modseq LIMIT $4`)

// ChangedSince returns the UIDs, of those given, whose mod-sequence is higher
// than modseq (RFC 7162 §3.1.4.1).
func (v *View) ChangedSince(uids []uint32, modseq uint64) (changed []uint32) {
	for _, e := range v.snap.EachOf(uids) {
		if e.ModSeq > modseq {
			changed = append(changed, e.UID)
		}
	}
	return changed
}

// ChangedIn is ChangedSince for normalized ranges of UIDs; nil means all. The cost depends on the
// number of changes, not on the number of messages.
func (v *View) ChangedIn(known []Range, modseq uint64) (changed []uint32) {
	v.snap.ChangedAfter(modseq, func(uid uint32) {
		if known == nil || snapshot.ContainsUID(known, uid) {
			changed = append(changed, uid)
		}
	})
	return changed
}

// MatchedThroughUID returns the UID up to which none of the client's messages has vanished,
// according to some of its sequence numbers and their UIDs, both in order (RFC 7162 §3.2.5.2); 0
// for none.
func (v *View) MatchedThroughUID(seqs, uids []Range) (upTo uint32) {
	seqs, uids = slices.Clone(seqs), slices.Clone(uids)
	for len(seqs) > 0 && len(uids) > 0 {
		seq, uid := &seqs[0], &uids[0]
		// A client's messages are at most those that exist, so the first message with another
		// number ends the search.
		if v.UID(seq.Lo) != uid.Lo {
			return upTo
		}
		upTo = uid.Lo
		if seq.Lo == seq.Hi {
			seqs = seqs[1:]
		} else {
			seq.Lo++
		}
		if uid.Lo == uid.Hi {
			uids = uids[1:]
		} else {
			uid.Lo++
		}
	}
	return upTo
}

// VanishedSince returns the UIDs of known that are no longer in the folder and may have vanished
// after modseq (RFC 7162 §3.2.10). A nil known means all. The cost depends on the number of
// vanished messages. If the log no longer goes back to modseq, it compares with the view: it
// returns all of known that no longer exists.
func (v *View) VanishedSince(ctx context.Context, modseq uint64, known []Range) ([]Range, error) {
	given := []Range{{Lo: 1, Hi: max(v.snap.LastUID(), v.row.UIDNext-1)}} // all UIDs that ever existed
	if known != nil {
		given = snapshot.IntersectRanges(snapshot.NormalizeRanges(slices.Clone(known)), given)
	}
	if modseq < v.row.logLayer {
		return v.withoutPresent(given), nil
	}
	var gone []Range
	for from := modseq; ; {
		n := 0
		err := v.store.DB.Each(ctx, vanishedAfterQuery.With(v.shared.id, int64(from), true, logPageChanges), func(r db.Row) error {
			n++
			var uids string
			if err := r.Scan(&from, &uids); err != nil {
				return err
			}
			var err error
			gone, err = snapshot.ParseRanges(gone, uids)
			return err
		})
		if err != nil {
			return nil, err
		}
		if n < logPageChanges {
			break
		}
	}
	// The session's row may be old, and the log may have been pruned before it was read completely.
	row, err := readFolder(ctx, v.store.DB, folderByIDQuery.With(v.shared.id))
	if err != nil {
		return nil, err
	}
	if modseq < row.logLayer {
		return v.withoutPresent(given), nil
	}
	// Messages that the session still numbers are reported as expunged later.
	return v.withoutPresent(snapshot.IntersectRanges(given, snapshot.NormalizeRanges(gone))), nil
}

// withoutPresent returns ranges without the session's messages.
func (v *View) withoutPresent(ranges []Range) []Range {
	var there []Range
	for _, r := range ranges {
		for _, e := range v.snap.Between(v.snap.IndexRange(r)) {
			there = snapshot.AppendUID(there, e.UID)
		}
	}
	return snapshot.SubtractRanges(ranges, there)
}
