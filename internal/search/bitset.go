// SPDX-License-Identifier: Apache-2.0

package search

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
)

// A set has a bit for each message of a block or shelf, or for each bucket of a
// message. Where it bounds others, nil are all.
type bitset []uint64

// newSets returns n empty sets of so many words.
func newSets(n, words int) []bitset {
	all, room := make([]bitset, n), make(bitset, n*words)
	for i := range all {
		all[i] = room[i*words:][:words:words]
	}
	return all
}

func (s bitset) add(n int)      { s[n/64] |= 1 << (n % 64) }
func (s bitset) has(n int) bool { return s[n/64]&(1<<(n%64)) != 0 }

// containsAll reports whether all of some buckets are there, or those that they are
// one with where the set has fewer.
func (s bitset) containsAll(wanted []uint32) bool {
	for _, b := range wanted {
		if b %= uint32(64 * len(s)); s[b/64]&(1<<(b%64)) == 0 {
			return false
		}
	}
	return true
}

// setAll adds all.
func (s bitset) setAll() {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// and leaves of s what is in other too.
func (s bitset) and(other bitset) {
	for i, w := range other[:len(s)] {
		s[i] &= w
	}
}

// or adds what is in other.
func (s bitset) or(other bitset) {
	for i, w := range other {
		s[i] |= w
	}
}

func (s bitset) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

func (s bitset) isEmpty() bool {
	return s != nil && !slices.ContainsFunc(s, func(w uint64) bool { return w != 0 })
}

// In the file a set is packed: most messages are in few buckets. First comes one
// more than the length of what follows, in bytes; then by how much each member
// is beyond the next one that there could be. These are uvarints. Where the bits
// themselves are shorter they follow a 0.

// appendSet packs a set.
func appendSet(to []byte, s bitset) []byte {
	begin := len(to)
	next := 0
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			n := i*64 + bits.TrailingZeros64(w)
			to = binary.AppendUvarint(to, uint64(n-next))
			next = n + 1
		}
		if len(to)-begin >= 8*len(s) {
			return s.appendRaw(to[:begin])
		}
	}
	var head [binary.MaxVarintLen64]byte
	return slices.Insert(to, begin, head[:binary.PutUvarint(head[:], uint64(len(to)-begin+1))]...)
}

// appendRaw packs a set as its bits: what is read often.
func (s bitset) appendRaw(to []byte) []byte {
	to = append(to, 0)
	for _, w := range s {
		to = binary.LittleEndian.AppendUint64(to, w)
	}
	return to
}

// splitSet cuts the first off packed sets of so many words.
func splitSet(packed []byte, words int) (one, rest []byte, err error) {
	length, n := binary.Uvarint(packed)
	if n <= 0 {
		return nil, nil, damageError("a set is missing")
	}
	if length == 0 {
		length = uint64(8*words) + 1
	}
	length-- // as the head says one more
	if length > uint64(len(packed)-n) {
		return nil, nil, damageError("a set is cut off")
	}
	end := n + int(length)
	return packed[:end], packed[end:], nil
}

// decodeRow is load of a row that has no other set.
func (s bitset) decodeRow(row []byte) error {
	row, err := verifyRow(row)
	if err != nil {
		return err
	}
	one, rest, err := splitSet(row, len(s))
	if err == nil && len(rest) > 0 {
		err = damageError("there is more than a set")
	}
	if err != nil {
		return err
	}
	return s.decode(one)
}

// decode makes an empty set what was cut for one of its size.
func (s bitset) decode(one []byte) error {
	length, n := binary.Uvarint(one)
	if length > 0 {
		return s.decodeGaps(one[n:])
	}
	for i := range s {
		s[i] = binary.LittleEndian.Uint64(one[n+8*i:])
	}
	return nil
}

// decodeGaps adds members by how far each is from the one before.
func (s bitset) decodeGaps(gaps []byte) error {
	next, end := 0, 64*len(s)
	for i := 0; i < len(gaps); {
		gap, n := uint64(gaps[i]), 1
		if gap >= 0x80 {
			gap, n = binary.Uvarint(gaps[i:])
		}
		if n <= 0 || gap >= uint64(end-next) {
			return damageError("a set has a member beyond its end")
		}
		next += int(gap)
		s[next/64] |= 1 << (next % 64)
		next++
		i += n
	}
	return nil
}

// What stands in the file ends with its CRC-32C: one bit that is another one would
// hide messages, and nobody would look for them.

func checksum(row []byte) uint32 { return crc32.Checksum(row, crc32.MakeTable(crc32.Castagnoli)) }

// appendChecksum appends the sum to what is stored.
func appendChecksum(row []byte) []byte { return binary.LittleEndian.AppendUint32(row, checksum(row)) }

// verifyRow returns what was sealed.
func verifyRow(row []byte) ([]byte, error) {
	end := len(row) - crc32.Size
	if end < 0 || binary.LittleEndian.Uint32(row[end:]) != checksum(row[:end]) {
		return nil, damageError("a row is not what was stored")
	}
	return row[:end], nil
}

// encodeIDs are the ids of messages or blocks as they are stored.
func encodeIDs[T ~int64](ids []T) []byte {
	row := make([]byte, 0, 8*len(ids)+crc32.Size)
	for _, id := range ids {
		row = binary.LittleEndian.AppendUint64(row, uint64(id))
	}
	return appendChecksum(row)
}

func decodeIDs[T ~int64](row []byte) ([]T, error) {
	row, err := verifyRow(row)
	if err != nil {
		return nil, err
	}
	ids := make([]T, len(row)/8)
	for i := range ids {
		ids[i] = T(binary.LittleEndian.Uint64(row[8*i:]))
	}
	return ids, nil
}
