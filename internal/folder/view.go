// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/notify"
)

// View is a session's view of an open folder: the messages that its client knows, by sequence
// number. Only Sync changes them; the session's own commands change only the flags. A View is for
// one goroutine, except for Updates.
type View struct {
	store         *Folders
	shared        *sharedView
	sub           *notify.Subscription
	readOnly      bool
	row           Folder
	snap          *snapshot.Snapshot // what the client knows; may include messages that are gone
	recent        []Range            // which of them are recent to this session; normalized
	missedExpunge bool               // whether Fetch has missed expunged messages since the last Sync
}

// Open opens a folder for a session. readOnly is for EXAMINE: messages stay recent for others. It
// returns a fault.NotFound if the folder does not exist.
func (s *Folders) Open(ctx context.Context, mailbox db.ID, name string, readOnly bool) (*View, error) {
	row, err := s.folderByName(ctx, mailbox, name)
	if err != nil {
		return nil, err
	}
	v := &View{store: s, shared: s.acquireView(row.ID), readOnly: readOnly}
	v.sub = s.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: int64(row.ID)})
	err = v.shared.refresh(ctx, v.shared.isBehind(row))
	if err == nil {
		err = v.claimRecent(ctx)
	}
	if err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// isBehind reports whether a row shows that the view missed a change.
func (sh *sharedView) isBehind(row Folder) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return row.ModSeq > sh.row.ModSeq
}

// visibleRow returns the row consistent with the snapshot. Arrivals are published a moment before
// their row, and UIDNEXT must not be the UID of an existing message. mu must be held.
func (sh *sharedView) visibleRow() Folder {
	row := sh.row
	row.UIDNext = max(row.UIDNext, sh.nextUID)
	return row
}

// Close closes the view.
func (v *View) Close() {
	v.saveRecent()
	v.sub.Close()
	v.store.releaseView(v.shared)
}

// Folder returns the folder's row as of Open or the last Sync.
func (v *View) Folder() Folder { return v.row }

// Len returns the number of messages that the session knows: the highest sequence number.
func (v *View) Len() int { return v.snap.Len() }

// Snapshot returns the messages that the session knows. They may include messages that are gone.
func (v *View) Snapshot() *snapshot.Snapshot { return v.snap }

// KeywordTable returns the table of the keyword sets in the Snapshot.
func (v *View) KeywordTable() *snapshot.KeywordTable { return v.shared.keywords }

// FirstUnseen returns the sequence number of the first unseen message, or 0.
func (v *View) FirstUnseen() uint32 {
	if i, found := v.snap.FirstWithout(Seen); found {
		return uint32(i + 1)
	}
	return 0
}

// Keywords returns all keywords in the folder, sorted.
func (v *View) Keywords() []string { return v.shared.keywords.All() }

// KeywordCount returns the number of keywords in the folder. It never decreases.
func (v *View) KeywordCount() int { return v.shared.keywords.Count() }

// UID returns the UID of a sequence number, or 0 if there is no such message.
func (v *View) UID(seq uint32) uint32 {
	if seq == 0 || int64(seq) > int64(v.snap.Len()) {
		return 0
	}
	return v.snap.At(int(seq) - 1).UID
}

// Seq returns the sequence number of a UID, or 0 if there is no such message.
func (v *View) Seq(uid uint32) uint32 {
	if i, found := v.snap.IndexOfUID(uid); found {
		return uint32(i + 1)
	}
	return 0
}

// Star in a Range represents the last message: "*".
const Star = 0

// Range is a range of UIDs or sequence numbers.
type Range = snapshot.Range

// Resolve returns the ascending UIDs of the messages in a set of sequence numbers or UIDs, without
// duplicates. It ignores messages that don't exist.
func (v *View) Resolve(set []Range, byUID bool) []uint32 {
	if v.snap.Len() == 0 {
		return nil
	}
	last := uint32(v.snap.Len())
	if byUID {
		last = v.snap.LastUID()
	}
	ranges := slices.Clone(set)
	for i := range ranges {
		if ranges[i].Lo == Star {
			ranges[i].Lo = last
		}
		if ranges[i].Hi == Star {
			ranges[i].Hi = last
		}
	}
	var uids []uint32
	for _, r := range snapshot.NormalizeRanges(ranges) {
		lo, hi := int(r.Lo)-1, int(min(r.Hi, last))
		if byUID {
			lo, hi = v.snap.IndexRange(r)
		}
		if lo >= hi {
			continue
		}
		if uids == nil {
			uids = make([]uint32, 0, hi-lo)
		}
		for _, e := range v.snap.Between(lo, hi) {
			uids = append(uids, e.UID)
		}
	}
	return uids
}

// flagChange returns the flags of the message with this index.
func (v *View) flagChange(index int, e snapshot.Entry) FlagChange {
	c := FlagChange{Seq: uint32(index + 1), UID: e.UID, Flags: e.Flags, Keywords: v.shared.keywords.Keywords(e.Keywords), ModSeq: e.ModSeq}
	c.keywordsMissing = e.Keywords == snapshot.OverflowKeywords
	if v.IsRecent(e.UID) {
		c.Flags |= Recent
	}
	return c
}
