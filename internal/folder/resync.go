// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

var vanishedAfterQuery = db.SQL(`SELECT modseq, uids FROM folder_change
	WHERE folder = $1 AND modseq > $2 AND vanished = $3 ORDER BY modseq LIMIT $4`)

// ChangedSince returns the UIDs, of those given, whose mod-sequence is higher
// than modseq (RFC 7162 §3.1.4.1).
func (v *View) ChangedSince(uids []uint32, modseq uint64) (changed []uint32) {
	for _, e := range v.snap.eachOf(uids) {
		if e.modseq > modseq {
			changed = append(changed, e.uid)
		}
	}
	return changed
}

// ChangedIn is ChangedSince for ranges of UIDs, which are normal; nil stands for
// all. It takes time for what has changed, not for what is there.
func (v *View) ChangedIn(known []Range, modseq uint64) (changed []uint32) {
	for _, slot := range v.snap.slots {
		if slot.maxModSeq <= modseq {
			continue
		}
		slot.modseq.eachAbove(modseq, slot.len(), func(i int) {
			if uid := slot.uid(i); known == nil || contains(known, uid) {
				changed = append(changed, uid)
			}
		})
	}
	return changed
}

// MatchedThroughUID returns up to which UID nothing has vanished of what a client knows,
// by some of its sequence numbers and the UIDs that it has for them, in order
// (RFC 7162 §3.2.5.2); 0 for nothing.
func (v *View) MatchedThroughUID(seqs, uids []Range) (upTo uint32) {
	seqs, uids = slices.Clone(seqs), slices.Clone(uids)
	for len(seqs) > 0 && len(uids) > 0 {
		seq, uid := &seqs[0], &uids[0]
		// What one client knows is no more than what is there: the first
		// message that has another number ends it.
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

// VanishedSince returns the UIDs of known that are not in the folder any more,
// as far as they may have vanished after modseq (RFC 7162 §3.2.10). known nil
// means all. It takes time for what has vanished; only what the log no longer
// tells, the view does: then all of known that is not there is returned.
func (v *View) VanishedSince(ctx context.Context, modseq uint64, known []Range) ([]Range, error) {
	given := []Range{{1, max(v.snap.lastUID(), v.row.UIDNext-1)}} // all UIDs that there ever were
	if known != nil {
		given = intersect(normalize(slices.Clone(known)), given)
	}
	if modseq < v.row.logFloor {
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
			gone, err = parseRanges(gone, uids)
			return err
		})
		if err != nil {
			return nil, err
		}
		if n < logPageChanges {
			break
		}
	}
	// The session's row may be old, and the log was perhaps pruned before it was
	// read to its end.
	row, err := readFolder(ctx, v.store.DB, folderByIDQuery.With(v.shared.id))
	if err != nil {
		return nil, err
	}
	if modseq < row.logFloor {
		return v.withoutPresent(given), nil
	}
	// What the session still numbers it is told of as expunged, later.
	return v.withoutPresent(intersect(given, normalize(gone))), nil
}

// withoutPresent returns what is in ranges but not among the session's messages.
func (v *View) withoutPresent(ranges []Range) []Range {
	var there []Range
	for _, r := range ranges {
		for _, e := range v.snap.between(v.snap.indexRange(r)) {
			there = appendUID(there, e.uid)
		}
	}
	return subtract(ranges, there)
}
