// SPDX-License-Identifier: Apache-2.0

// Package snapshot is the in-memory form of a folder: the UIDs, flags, keywords, sizes and
// mod-sequences of all its messages at one point in time, in a few bytes for each message.
package snapshot

import (
	"iter"
	"sort"
)

// Entry is a message in a snapshot.
type Entry struct {
	UID      uint32
	Size     uint32
	Keywords uint32 // number of its keyword set in the folder's table
	Flags    Flags
	ModSeq   uint64
}

// Snapshot is all messages of a folder at a point in time, in the order of their UIDs. It never
// changes: a new snapshot shares most chunks with the old one. A chunk holds the messages in a
// fixed range of UIDs, so that two snapshots can be compared chunk by chunk, mostly by pointer.
type Snapshot struct {
	slots []Slot
	count int
}

// Slot is a chunk and its position; no slot is empty.
type Slot struct {
	key        uint32 // UID >> chunkBits
	firstIndex int    // number of messages before it
	*chunk
}

// UID returns the UID of the message with index i in the slot.
func (s Slot) UID(i int) uint32 { return s.key<<chunkBits | uint32(s.lowUIDs.at(i)) }

// Flags returns the flags of the message with index i in the slot.
func (s Slot) Flags(i int) Flags { return Flags(s.flags.at(i)) }

// Entry returns the message with index i in the slot.
func (s Slot) Entry(i int) Entry {
	return Entry{
		UID: s.UID(i), Size: uint32(s.size.at(i)), Keywords: uint32(s.keywords.at(i)), Flags: Flags(s.flags.at(i)), ModSeq: s.modseq.at(i),
	}
}

// addChunk appends a chunk to a snapshot under construction, unless the chunk is empty.
func (s *Snapshot) addChunk(key uint32, c *chunk) {
	if c != nil {
		s.slots = append(s.slots, Slot{key, s.count, c})
		s.count += c.Len()
	}
}

// slotIndex returns the index of the first slot with this key or a higher one.
func (s *Snapshot) slotIndex(key uint32) int {
	return sort.Search(len(s.slots), func(i int) bool { return s.slots[i].key >= key })
}

// IndexOfUID returns how many messages have a lower UID, and whether uid exists.
func (s *Snapshot) IndexOfUID(uid uint32) (int, bool) {
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

// At returns the message with index i.
func (s *Snapshot) At(i int) Entry {
	at := sort.Search(len(s.slots), func(k int) bool { return s.slots[k].firstIndex > i }) - 1
	return s.slots[at].Entry(i - s.slots[at].firstIndex)
}

// ByUID returns the message with a UID, and whether it exists.
func (s *Snapshot) ByUID(uid uint32) (Entry, bool) {
	at := s.slotIndex(uid >> chunkBits)
	if at == len(s.slots) || s.slots[at].key != uid>>chunkBits {
		return Entry{}, false
	}
	i, found := s.slots[at].searchUID(0, uid&chunkMask)
	if !found {
		return Entry{}, false
	}
	return s.slots[at].Entry(i), true
}

// LastUID returns the highest UID; 0 if there are no messages.
func (s *Snapshot) LastUID() uint32 {
	if s.count == 0 {
		return 0
	}
	slot := s.slots[len(s.slots)-1]
	return slot.UID(slot.Len() - 1)
}

// IndexRange returns the indexes of the messages with UIDs in a range: from lo up to, but
// excluding, hi.
func (s *Snapshot) IndexRange(r Range) (lo, hi int) {
	lo, _ = s.IndexOfUID(r.Lo)
	hi, there := s.IndexOfUID(r.Hi)
	if there {
		hi++
	}
	return lo, hi
}

// Len returns the number of messages.
func (s *Snapshot) Len() int { return s.count }

// Slots returns the slots in the order of their UIDs.
func (s *Snapshot) Slots() []Slot { return s.slots }

// MemoryBytes returns approximately how many bytes of memory the snapshot takes.
func (s *Snapshot) MemoryBytes() (sum int) {
	for _, slot := range s.slots {
		sum += slot.memoryBytes()
	}
	return sum
}

// FirstWithout returns the index of the first message without a flag, and whether there is one.
func (s *Snapshot) FirstWithout(flag Flags) (int, bool) {
	for _, slot := range s.slots {
		if slot.AllFlags&flag != 0 {
			continue
		}
		for i := range slot.Len() {
			if slot.Flags(i)&flag == 0 {
				return slot.firstIndex + i, true
			}
		}
	}
	return 0, false
}

// EachWith returns the messages with a flag, with their indexes.
func (s *Snapshot) EachWith(flag Flags) iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
		for _, slot := range s.slots {
			if slot.AnyFlags&flag == 0 {
				continue
			}
			for i := range slot.Len() {
				if slot.Flags(i)&flag != 0 && !yield(slot.firstIndex+i, slot.Entry(i)) {
					return
				}
			}
		}
	}
}

// ChangedAfter calls f with the UIDs of the messages whose mod-sequence is higher than modseq. The
// cost depends on their number, not on the number of messages.
func (s *Snapshot) ChangedAfter(modseq uint64, f func(uid uint32)) {
	for _, slot := range s.slots {
		if slot.MaxModSeq > modseq {
			slot.modseq.eachAbove(modseq, slot.count, func(i int) { f(slot.UID(i)) })
		}
	}
}

// Between returns the messages from index lo up to, but excluding, hi.
func (s *Snapshot) Between(lo, hi int) iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
		at := sort.Search(len(s.slots), func(k int) bool { return s.slots[k].firstIndex > lo }) - 1
		for ; at < len(s.slots) && lo < hi; at++ {
			slot := s.slots[at]
			for ; lo < min(hi, slot.firstIndex+slot.Len()); lo++ {
				if !yield(lo, slot.Entry(lo-slot.firstIndex)) {
					return
				}
			}
		}
	}
}

// EachOf returns the existing messages among uids, which ascend, with their indexes.
func (s *Snapshot) EachOf(uids []uint32) iter.Seq2[int, Entry] {
	return func(yield func(int, Entry) bool) {
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
			found := i < slot.Len() && uint32(slot.lowUIDs.at(i)) == low
			if !found {
				i, found = slot.searchUID(i, low)
			}
			if found {
				if !yield(slot.firstIndex+i, slot.Entry(i)) {
					return
				}
				i++
			}
		}
	}
}

// HasAll reports whether all of uids, which ascend, exist.
func (s *Snapshot) HasAll(uids []uint32) bool {
	n := 0
	for range s.EachOf(uids) {
		n++
	}
	return n == len(uids)
}

// UIDs returns the UIDs of all messages.
func (s *Snapshot) UIDs() []uint32 {
	all := make([]uint32, 0, s.count)
	for _, slot := range s.slots {
		for i := range slot.Len() {
			all = append(all, slot.UID(i))
		}
	}
	return all
}

// Apply returns the snapshot with the messages of put added or replaced and those of drop removed.
// Both ascend and have no UID in common.
func (s *Snapshot) Apply(put []Entry, drop []uint32) *Snapshot {
	if len(put) == 0 && len(drop) == 0 {
		return s
	}
	made := &Snapshot{slots: make([]Slot, 0, len(s.slots)+1)}
	at := 0
	for len(put) > 0 || len(drop) > 0 {
		key := uint32(1<<(32-chunkBits) - 1)
		if len(put) > 0 {
			key = min(key, put[0].UID>>chunkBits)
		}
		if len(drop) > 0 {
			key = min(key, drop[0]>>chunkBits)
		}
		for ; at < len(s.slots) && s.slots[at].key < key; at++ {
			made.addChunk(s.slots[at].key, s.slots[at].chunk)
		}
		var old Slot
		if at < len(s.slots) && s.slots[at].key == key {
			old = s.slots[at]
			at++
		}
		puts := sort.Search(len(put), func(i int) bool { return put[i].UID>>chunkBits > key })
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
func mergeChunk(old Slot, put []Entry, drop []uint32) *chunk {
	if old.chunk != nil && len(drop) == 0 {
		if c := old.withReplaced(put); c != nil {
			return c
		}
	}
	n := len(put)
	if old.chunk != nil {
		n += old.Len()
	}
	list := make([]Entry, 0, min(n, chunkMask+1))
	if old.chunk != nil {
		for i := range old.Len() {
			e := old.Entry(i)
			for len(put) > 0 && put[0].UID < e.UID {
				list = append(list, put[0])
				put = put[1:]
			}
			for len(drop) > 0 && drop[0] < e.UID {
				drop = drop[1:]
			}
			switch {
			case len(put) > 0 && put[0].UID == e.UID:
				list = append(list, put[0])
				put = put[1:]
			case len(drop) == 0 || drop[0] != e.UID:
				list = append(list, e)
			}
		}
	}
	if list = append(list, put...); len(list) == 0 {
		return nil
	}
	return newChunk(list)
}

// Diff is the difference between a snapshot and a later one.
type Diff struct {
	Removed []Entry // of the earlier one
	Changed []Entry // of the later one
	Added   int     // number of messages
}

// Compare returns the difference between two snapshots.
func Compare(before, after *Snapshot) (d Diff) {
	if before == after {
		return d
	}
	for a, b := before.slots, after.slots; len(a) > 0 || len(b) > 0; {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].key < b[0].key:
			for i := range a[0].Len() {
				d.Removed = append(d.Removed, a[0].Entry(i))
			}
			a = a[1:]
		case len(a) == 0 || b[0].key < a[0].key:
			d.Added += b[0].Len()
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

func (d *Diff) compare(a, b Slot) {
	i, k := 0, 0
	for i < a.Len() || k < b.Len() {
		switch {
		case k == b.Len() || i < a.Len() && a.lowUIDs.at(i) < b.lowUIDs.at(k):
			d.Removed = append(d.Removed, a.Entry(i))
			i++
		case i == a.Len() || b.lowUIDs.at(k) < a.lowUIDs.at(i):
			d.Added++
			k++
		default:
			if a.modseq.at(i) != b.modseq.at(k) {
				d.Changed = append(d.Changed, b.Entry(k))
			}
			i, k = i+1, k+1
		}
	}
}
