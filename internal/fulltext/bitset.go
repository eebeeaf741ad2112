// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
)

// bitset has a bit for each message of a block or segment, or for each bucket of a message. As a
// restriction, nil means all.
type bitset []uint64

// newSets returns n empty sets with the given number of words.
func newSets(n, words int) []bitset {
	all, capacity := make([]bitset, n), make(bitset, n*words)
	for i := range all {
		all[i] = capacity[i*words:][:words:words]
	}
	return all
}

func (s bitset) add(n int)      { s[n/64] |= 1 << (n % 64) }
func (s bitset) has(n int) bool { return s[n/64]&(1<<(n%64)) != 0 }

// containsAll reports whether all of the wanted buckets are in s. In a smaller set, several buckets
// share a bit.
func (s bitset) containsAll(wanted []uint32) bool {
	for _, b := range wanted {
		if b %= uint32(64 * len(s)); s[b/64]&(1<<(b%64)) == 0 {
			return false
		}
	}
	return true
}

// setAll sets all bits.
func (s bitset) setAll() {
	for i := range s {
		s[i] = ^uint64(0)
	}
}

// and removes the members of s that are not in other.
func (s bitset) and(other bitset) {
	for i, w := range other[:len(s)] {
		s[i] &= w
	}
}

// or adds the members of other.
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

// The file stores sets in packed form, because most messages are in few buckets. The first number
// is one more than the length of the rest in bytes. Then follows, for each member, its distance
// from the smallest possible value. All are uvarints. If the plain bits are shorter, a 0 precedes
// them instead.

// appendSet appends a set in packed form.
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

// appendRaw appends a set as plain bits, which are faster to read.
func (s bitset) appendRaw(to []byte) []byte {
	to = append(to, 0)
	for _, w := range s {
		to = binary.LittleEndian.AppendUint64(to, w)
	}
	return to
}

// splitSet splits the first set off packed sets of the given number of words.
func splitSet(packed []byte, words int) (one, rest []byte, err error) {
	length, n := binary.Uvarint(packed)
	if n <= 0 {
		return nil, nil, damageError("a set is missing")
	}
	if length == 0 {
		length = uint64(8*words) + 1
	}
	length-- // the stored number is one more than the length
	if length > uint64(len(packed)-n) {
		return nil, nil, damageError("a set is cut off")
	}
	end := n + int(length)
	return packed[:end], packed[end:], nil
}

// decodeRow decodes a row with a single set.
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

// decode decodes a set that splitSet returned into s, which must be empty and of the same size.
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

// decodeGaps adds members by their distances.
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

// Stored values end with their CRC-32C: one flipped bit would hide messages, and nobody would
// notice.

func checksum(row []byte) uint32 { return crc32.Checksum(row, crc32.MakeTable(crc32.Castagnoli)) }

// appendChecksum appends the checksum of a row.
func appendChecksum(row []byte) []byte { return binary.LittleEndian.AppendUint32(row, checksum(row)) }

// verifyRow checks a row's checksum and returns the row without it.
func verifyRow(row []byte) ([]byte, error) {
	end := len(row) - crc32.Size
	if end < 0 || binary.LittleEndian.Uint32(row[end:]) != checksum(row[:end]) {
		return nil, damageError("a row is not what was stored")
	}
	return row[:end], nil
}

// encodeIDs returns the ids of messages or blocks in their stored form.
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
