// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// Changes are the changes to report to a client, in this order.
type Changes struct {
	// Expunged are sequence numbers. Each one counts after the removal of those before it.
	Expunged       []uint32
	Vanished       []uint32 // the same messages as ascending UIDs
	ExpungePending bool     // whether others are gone too, or were missed by a Fetch, and keep their numbers for now
	HasNewMessages bool     // whether Exists has grown
	Exists         uint32
	Recent         uint32
	Flags          []FlagChange // with the sequence numbers after Expunged
}

// Sync brings the session up to date with the changes of others and returns the changes to report
// to its client. Messages vanish only if expunge is true (RFC 3501 §7.4.1). Until then they keep
// their sequence numbers. It returns a fault.NotFound if the folder was deleted.
func (v *View) Sync(ctx context.Context, expunge bool) (Changes, error) {
	select {
	case <-v.sub.C:
	default:
	}
	sh := v.shared
	if err := sh.refresh(ctx, false); err != nil {
		return Changes{}, err
	}
	before, told := v.snap, v.row.ModSeq
	sh.mu.Lock()
	now := sh.snap
	v.row = sh.visibleRow()
	if now.LastUID() > before.LastUID() {
		v.addRecent(max(sh.recentFrom, before.LastUID()+1), now.LastUID()+1)
	}
	sh.mu.Unlock()
	c := Changes{ExpungePending: v.missedExpunge && !expunge}
	v.missedExpunge = false
	if now != before {
		d := snapshot.Compare(before, now)
		if c.HasNewMessages = d.Added > 0; !expunge {
			// Removed messages stay in the session's numbering.
			now = now.Apply(d.Removed, nil)
			if len(d.Removed) > 0 { // a client that knows a later mod-sequence would never ask for these
				v.row.ModSeq, c.ExpungePending = told, true
			}
		} else if len(d.Removed) > 0 {
			c.Expunged, c.Vanished = expungedNumbers(before, d.Removed)
		}
		v.snap = now
		c.Flags = make([]FlagChange, 0, len(d.Changed))
		for _, e := range d.Changed {
			index, _ := now.IndexOfUID(e.UID)
			c.Flags = append(c.Flags, v.flagChange(index, e))
		}
	}
	c.Exists, c.Recent = uint32(v.snap.Len()), v.Recent()
	return c, nil
}

// expungedNumbers returns the sequence numbers of removed messages, in descending order, so that
// none changes because of those before it, and the UIDs.
func expungedNumbers(before *snapshot.Snapshot, entries []snapshot.Entry) (seqs, uids []uint32) {
	for _, e := range entries {
		index, _ := before.IndexOfUID(e.UID)
		seqs = append(seqs, uint32(index+1))
		uids = append(uids, e.UID)
	}
	slices.Reverse(seqs)
	return seqs, uids
}

// Changed returns a channel that receives when there may be something to Sync.
func (v *View) Changed() <-chan struct{} { return v.sub.C }
