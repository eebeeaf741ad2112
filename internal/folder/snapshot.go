// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"iter"
	"sort"
)

// entry is a message in a snapshot.
type entry struct {
	uid      uint32
	size     uint32
	keywords uint32 // number of its keyword set in the folder's table
	flags    Flags
	modseq   uint64
}

// snapshot is all messages of a folder at a point in time, in the order of their UIDs. It never
// changes: a new snapshot shares most chunks with the old one. A chunk holds the messages in a
// fixed range of UIDs, so that two snapshots can be compared chunk by chunk, mostly by pointer.
type snapshot struct {
	slots []slot
	count int
}

// slot is a chunk and its position; no slot is empty.
type slot struct {
	key        uint32 // UID >> chunkBits
	firstIndex int    // number of messages before it
	*chunk
}

func (s slot) uid(i int) uint32 { return s.key<<chunkBits | uint32(s.lowUIDs.at(i)) }

func (s slot) entry(i int) entry {
	return entry{
		uid: s.uid(i), size: uint32(s.size.at(i)), keywords: uint32(s.keywords.at(i)), flags: Flags(s.flags.at(i)), modseq: s.modseq.at(i),
	}
}

// addChunk appends a chunk to a snapshot under construction, unless the chunk is empty.
func (s *snapshot) addChunk(key uint32, c *chunk) {
	if c != nil {
		s.slots = append(s.slots, slot{key, s.count, c})
		s.count += c.len()
	}
}

// slotIndex returns the index of the first slot with this key or a higher one.
func (s *snapshot) slotIndex(key uint32) int {
	return sort.Search(len(s.slots), func(i int) bool { return s.slots[i].key >= key })
}

// index returns how many messages have a lower UID, and whether uid exists.
func (s *snapshot) index(uid uint32) (int, bool) {
	at := s.slotIndex(uid >> chunkBits)
	if at == len(s.slots) {
		return s.count, false
	}
	slot := s.slots[at]
	if slot.key != uid>>chunkBits {
		return slot.firstIndex, false
	}
	i, found := slot.searchUID(0, uid&chunkMask)
	return slot.firstIndex + i, found
}

// at returns the message with index i.
func (s *snapshot) at(i int) entry {
	at := sort.Search(len(s.slots), func(k int) bool { return s.slots[k].firstIndex > i }) - 1
	return s.slots[at].entry(i - s.slots[at].firstIndex)
}

// find returns the message with a UID.
func (s *snapshot) find(uid uint32) (entry, bool) {
	at := s.slotIndex(uid >> chunkBits)
	if at == len(s.slots) || s.slots[at].key != uid>>chunkBits {
		return entry{}, false
	}
	i, found := s.slots[at].searchUID(0, uid&chunkMask)
	if !found {
		return entry{}, false
	}
	return s.slots[at].entry(i), true
}

// lastUID returns the highest UID; 0 if there are no messages.
func (s *snapshot) lastUID() uint32 {
	if s.count == 0 {
		return 0
	}
	slot := s.slots[len(s.slots)-1]
	return slot.uid(slot.len() - 1)
}

// indexRange returns the indexes of the messages with UIDs in a range: from lo up to, but
// excluding, hi.
func (s *snapshot) indexRange(r Range) (lo, hi int) {
	lo, _ = s.index(r.Lo)
	hi, there := s.index(r.Hi)
	if there {
		hi++
	}
	return lo, hi
}

// between returns the messages from index lo up to, but excluding, hi.
func (s *snapshot) between(lo, hi int) iter.Seq2[int, entry] {
	return func(yield func(int, entry) bool) {
		at := sort.Search(len(s.slots), func(k int) bool { return s.slots[k].firstIndex > lo }) - 1
		for ; at < len(s.slots) && lo < hi; at++ {
			slot := s.slots[at]
			for ; lo < min(hi, slot.firstIndex+slot.len()); lo++ {
				if !yield(lo, slot.entry(lo-slot.firstIndex)) {
					return
				}
			}
		}
	}
}

// eachOf returns the existing messages among uids, which ascend, with their indexes.
func (s *snapshot) eachOf(uids []uint32) iter.Seq2[int, entry] {
	return func(yield func(int, entry) bool) {
		at, i := 0, 0
		for _, uid := range uids {
			if key := uid >> chunkBits; at == len(s.slots) || s.slots[at].key != key {
				if at, i = s.slotIndex(key), 0; at == len(s.slots) {
					return
				} else if s.slots[at].key != key {
					continue
				}
			}
			slot, low := s.slots[at], uid&chunkMask
			// Usually this is the next one.
			found := i < slot.len() && uint32(slot.lowUIDs.at(i)) == low
			if !found {
				i, found = slot.searchUID(i, low)
			}
			if found {
				if !yield(slot.firstIndex+i, slot.entry(i)) {
					return
				}
				i++
			}
		}
	}
}

// hasAll reports whether all of uids, which ascend, exist.
func (s *snapshot) hasAll(uids []uint32) bool {
	n := 0
	for range s.eachOf(uids) {
		n++
	}
	return n == len(uids)
}

// uids returns the UIDs of all messages.
func (s *snapshot) uids() []uint32 {
	all := make([]uint32, 0, s.count)
	for _, slot := range s.slots {
		for i := range slot.len() {
			all = append(all, slot.uid(i))
		}
	}
	return all
}

// apply returns the snapshot with the messages of put added or replaced and those of drop removed.
// Both ascend and have no UID in common.
func (s *snapshot) apply(put []entry, drop []uint32) *snapshot {
	if len(put) == 0 && len(drop) == 0 {
		return s
	}
	made := &snapshot{slots: make([]slot, 0, len(s.slots)+1)}
	at := 0
	for len(put) > 0 || len(drop) > 0 {
		key := uint32(1<<(32-chunkBits) - 1)
		if len(put) > 0 {
			key = min(key, put[0].uid>>chunkBits)
		}
		if len(drop) > 0 {
			key = min(key, drop[0]>>chunkBits)
		}
		for ; at < len(s.slots) && s.slots[at].key < key; at++ {
			made.addChunk(s.slots[at].key, s.slots[at].chunk)
		}
		var old slot
		if at < len(s.slots) && s.slots[at].key == key {
			old = s.slots[at]
			at++
		}
		puts := sort.Search(len(put), func(i int) bool { return put[i].uid>>chunkBits > key })
		drops := sort.Search(len(drop), func(i int) bool { return drop[i]>>chunkBits > key })
		made.addChunk(key, mergeChunk(old, put[:puts], drop[:drops]))
		put, drop = put[puts:], drop[drops:]
	}
	for ; at < len(s.slots); at++ {
		made.addChunk(s.slots[at].key, s.slots[at].chunk)
	}
	return made
}

// mergeChunk returns nil if no message is left.
func mergeChunk(old slot, put []entry, drop []uint32) *chunk {
	if old.chunk != nil && len(drop) == 0 {
		if c := old.withReplaced(put); c != nil {
			return c
		}
	}
	n := len(put)
	if old.chunk != nil {
		n += old.len()
	}
	list := make([]entry, 0, min(n, chunkMask+1))
	if old.chunk != nil {
		for i := range old.len() {
			e := old.entry(i)
			for len(put) > 0 && put[0].uid < e.uid {
				list = append(list, put[0])
				put = put[1:]
			}
			for len(drop) > 0 && drop[0] < e.uid {
				drop = drop[1:]
			}
			switch {
			case len(put) > 0 && put[0].uid == e.uid:
				list = append(list, put[0])
				put = put[1:]
			case len(drop) == 0 || drop[0] != e.uid:
				list = append(list, e)
			}
		}
	}
	if list = append(list, put...); len(list) == 0 {
		return nil
	}
	return newChunk(list)
}

// snapshotDiff is the difference between a snapshot and a later one.
type snapshotDiff struct {
	removed []entry // of the earlier one
	changed []entry // of the later one
	added   int
}

func diff(before, after *snapshot) (d snapshotDiff) {
	if before == after {
		return d
	}
	for a, b := before.slots, after.slots; len(a) > 0 || len(b) > 0; {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].key < b[0].key:
			for i := range a[0].len() {
				d.removed = append(d.removed, a[0].entry(i))
			}
			a = a[1:]
		case len(a) == 0 || b[0].key < a[0].key:
			d.added += b[0].len()
			b = b[1:]
		default:
			if a[0].chunk != b[0].chunk {
				d.compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return d
}

func (d *snapshotDiff) compare(a, b slot) {
	i, k := 0, 0
	for i < a.len() || k < b.len() {
		switch {
		case k == b.len() || i < a.len() && a.lowUIDs.at(i) < b.lowUIDs.at(k):
			d.removed = append(d.removed, a.entry(i))
			i++
		case i == a.len() || b.lowUIDs.at(k) < a.lowUIDs.at(i):
			d.added++
			k++
		default:
			if a.modseq.at(i) != b.modseq.at(k) {
				d.changed = append(d.changed, b.entry(k))
			}
			i, k = i+1, k+1
		}
	}
}

// spanBuilder groups messages, given by index and UID in ascending order, into spans.
type spanBuilder struct {
	list []span
	next int
}

func (s *spanBuilder) add(index int, uid uint32) {
	if last := len(s.list) - 1; last >= 0 && s.next == index {
		s.list[last].Hi = uid
		s.list[last].n++
	} else {
		s.list = append(s.list, span{Range{uid, uid}, 1})
	}
	s.next = index + 1
}

func (s *spanBuilder) text() string { return formatRanges(s.ranges()) }

func (s *spanBuilder) ranges() []Range {
	ranges := make([]Range, len(s.list))
	for i, r := range s.list {
		ranges[i] = r.Range
	}
	return ranges
}
