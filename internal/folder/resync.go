// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

var goneAfter = db.SQL(`SELECT modseq, uids FROM folder_change
	WHERE folder = $1 AND modseq > $2 AND vanished = $3 ORDER BY modseq LIMIT $4`)

// ChangedSince returns the UIDs, of those given, whose mod-sequence is higher
// than modseq (RFC 7162 §3.1.4.1).
func (v *View) ChangedSince(uids []uint32, modseq uint64) (changed []uint32) {
	for _, e := range v.snap.pick(uids) {
		if e.modseq > modseq {
			changed = append(changed, e.uid)
		}
	}
	return changed
}

// VanishedSince returns the UIDs of known that are not in the folder any more,
// as far as they may have vanished after modseq (RFC 7162 §3.2.10). known nil
// means all. What the log no longer tells, the view does: then all of known
// that is not there is returned.
func (v *View) VanishedSince(ctx context.Context, modseq uint64, known []Range) ([]Range, error) {
	if known == nil {
		known = []Range{{1, max(v.snap.last(), v.row.UIDNext-1)}}
	}
	known = normal(append([]Range{}, known...))
	if modseq < v.row.logFloor || v.row.ModSeq-min(modseq, v.row.ModSeq) > logKeep-logMargin {
		return without(known, v.present()), nil
	}
	var gone []Range
	for from := modseq; ; {
		n := 0
		err := v.store.DB.Each(ctx, goneAfter.With(v.shared.id, int64(from), true, logPage), func(r db.Row) error {
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
		if n < logPage {
			break
		}
	}
	// What the session still numbers it is told of as expunged, later.
	return without(common(known, normal(gone)), v.present()), nil
}

// present returns the UIDs of the session's messages.
func (v *View) present() (ranges []Range) {
	for _, slot := range v.snap.slots {
		for i := range slot.low {
			ranges = appendUID(ranges, slot.uid(i))
		}
	}
	return ranges
}
