// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/binary"
	"slices"
	"strings"
)

// partBits is the number of bits of a chunk's key within its part.
const partBits = 14 - chunkBits

// Part is the chunks of a snapshot that are stored together.
type Part []Slot

// AddPart appends the chunks of a part, which follow the existing ones. The snapshot retains data.
func (s *Snapshot) AddPart(part uint64, data []byte) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		last := len(s.slots) - 1
		if n <= 0 || key>>partBits != part || last >= 0 && key <= uint64(s.slots[last].key) || key > 1<<(32-chunkBits)-1 {
			return errBadChunk
		}
		c, rest, err := decodeChunk(data[n:])
		if err != nil {
			return err
		}
		s.addChunk(uint32(key), c)
		data = rest
	}
	return nil
}

// Parts returns the parts of a snapshot by their numbers.
func (s *Snapshot) Parts() map[uint32]Part {
	parts := map[uint32]Part{}
	for i := 0; i < len(s.slots); {
		part, from := s.slots[i].key>>partBits, i
		for i < len(s.slots) && s.slots[i].key>>partBits == part {
			i++
		}
		parts[part] = s.slots[from:i]
	}
	return parts
}

// Same reports whether two parts share all their chunks.
func (p Part) Same(other Part) bool {
	return slices.EqualFunc(p, other, func(a, b Slot) bool { return a.chunk == b.chunk })
}

// Encode returns a part in the form that AddPart reads.
func (p Part) Encode() []byte {
	var data []byte
	for _, s := range p {
		data = s.appendBinary(binary.AppendUvarint(data, uint64(s.key)))
	}
	return data
}

// Encode returns the keyword sets that a snapshot uses, in the order of their numbers.
func (t *KeywordTable) Encode(snap *Snapshot) string {
	used := map[uint32]bool{}
	for _, s := range snap.slots {
		if set, all := s.KeywordSet(); all {
			used[set] = true
			continue
		}
		for i := range s.Len() {
			used[uint32(s.keywords.at(i))] = true
		}
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	lines := make([]string, 0, len(used))
	for id, text := range t.texts {
		if !used[uint32(id)] {
			text = ""
		}
		lines = append(lines, text)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Decode restores the keyword sets with the numbers that Encode used, and reports whether it could:
// a table in use has its own numbers.
func (t *KeywordTable) Decode(lines string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sets) > 1 || len(lines) > maxKeywordTableBytes+maxNewKeywordBytes {
		return false
	}
	for i, text := range strings.Split(lines, "\n") {
		switch {
		case i == 0: // the empty set
		case text == "": // a set that is no longer used
			t.sets, t.texts = append(t.sets, nil), append(t.texts, "")
		default:
			t.idLocked(text)
		}
	}
	return true
}
