// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
)

// Star is "*" in a Range: the last message there is. No message has number 0.
const Star = 0

// Range is Lo:Hi, both included. As a client wrote it either end may be Star,
// always Hi if only one is; Lo ≤ Hi otherwise.
type Range struct{ Lo, Hi uint32 }

// Set is a set of message numbers or UIDs (RFC 9051 sequence-set). A set is
// normal if it has no Star and its ranges rise and do not touch; Resolve, Add
// and SetOf make normal ones. The other methods expect normal sets.
type Set []Range

// ErrInvalidSet says that a text is not a sequence set.
var ErrInvalidSet = errors.New("not a sequence set")

// parseSet reads the set at the start of b and returns how long it is.
func parseSet(b []byte) (set Set, n int, err error) {
	for {
		lo, size := parseSeqNumber(b[n:])
		if size == 0 {
			return nil, n, ErrInvalidSet
		}
		n += size
		hi := lo
		if n < len(b) && b[n] == ':' {
			if hi, size = parseSeqNumber(b[n+1:]); size == 0 {
				return nil, n, ErrInvalidSet
			}
			n += 1 + size
		}
		if lo == Star || (hi != Star && lo > hi) {
			lo, hi = hi, lo
		}
		if last := len(set) - 1; last >= 0 && lo != Star && hi != Star && lo-1 == set[last].Hi && set[last].Hi != Star {
			set[last].Hi = hi
		} else if len(set) == MaxRanges {
			return nil, n, overLimit("A sequence set has too many ranges.")
		} else {
			set = append(set, Range{lo, hi})
		}
		if n >= len(b) || b[n] != ',' {
			return set, n, nil
		}
		n++
	}
}

// parseSeqNumber reads a seq-number; size 0 means that there is none.
func parseSeqNumber(b []byte) (v uint32, size int) {
	if len(b) > 0 && b[0] == '*' {
		return Star, 1
	}
	var n uint64
	for size < len(b) && isDigit(b[size]) {
		if n = n*10 + uint64(b[size]-'0'); n > math.MaxUint32 {
			return 0, 0
		}
		size++
	}
	if n == 0 {
		return 0, 0
	}
	return uint32(n), size
}

// SetOf returns the normal set of the numbers, which may come in any order.
// It leaves out 0.
func SetOf(numbers ...uint32) Set {
	if !slices.IsSorted(numbers) {
		numbers = slices.Clone(numbers)
		slices.Sort(numbers)
	}
	var s Set
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

// HasStar reports whether the set refers to the last message.
func (s Set) HasStar() bool {
	return slices.ContainsFunc(s, func(r Range) bool { return r.Hi == Star })
}

// Resolve returns the set as a normal one, with last in place of Star. With
// last 0 (an empty folder) a range that refers to it is left out. It returns
// s itself if that is normal.
func (s Set) Resolve(last uint32) Set {
	if s.normal() {
		return s
	}
	out := make(Set, 0, len(s))
	for _, r := range s {
		if r.Hi == Star {
			if last == 0 {
				continue
			}
			r.Hi = last
			if r.Lo == Star {
				r.Lo = last
			}
			if r.Lo > r.Hi {
				r.Lo, r.Hi = r.Hi, r.Lo
			}
		}
		out = append(out, r)
	}
	return out.merge()
}

func (s Set) normal() bool {
	for i, r := range s {
		if r.Hi == Star || (i > 0 && uint64(r.Lo) <= uint64(s[i-1].Hi)+1) {
			return false
		}
	}
	return true
}

// merge sorts s in place and joins what overlaps or touches.
func (s Set) merge() Set {
	slices.SortFunc(s, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && uint64(r.Lo) <= uint64(out[n-1].Hi)+1 {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Add puts n into a normal set, which stays normal. It takes constant time
// when numbers come in rising order; 0 is ignored.
func (s *Set) Add(n uint32) {
	if n == 0 {
		return
	}
	set := *s
	if last := len(set) - 1; last < 0 || uint64(n) > uint64(set[last].Hi)+1 {
		*s = append(set, Range{n, n})
		return
	} else if n > set[last].Hi {
		set[last].Hi = n
		return
	}
	i := set.search(n) // exists, as n ≤ the last Hi
	if n >= set[i].Lo {
		return
	}
	after := i > 0 && set[i-1].Hi == n-1
	before := n+1 == set[i].Lo
	switch {
	case after && before:
		set[i-1].Hi = set[i].Hi
		*s = slices.Delete(set, i, i+1)
	case after:
		set[i-1].Hi = n
	case before:
		set[i].Lo = n
	default:
		*s = slices.Insert(set, i, Range{n, n})
	}
}

// search returns the index of the first range of a normal set that ends at n
// or later.
func (s Set) search(n uint32) int {
	i, _ := slices.BinarySearchFunc(s, n, func(r Range, n uint32) int {
		if r.Hi < n {
			return -1
		}
		return 1
	})
	return i
}

// Contains reports whether n is in a normal set.
func (s Set) Contains(n uint32) bool {
	i := s.search(n)
	return i < len(s) && s[i].Lo <= n
}

// Count returns how many numbers a normal set holds.
func (s Set) Count() uint64 {
	var n uint64
	for _, r := range s {
		n += uint64(r.Hi-r.Lo) + 1
	}
	return n
}

// All yields the numbers of a normal set in rising order.
func (s Set) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, r := range s {
			for n := uint64(r.Lo); n <= uint64(r.Hi); n++ {
				if !yield(uint32(n)) {
					return
				}
			}
		}
	}
}

// String returns the set in wire form, such as 1:5,9.
func (s Set) String() string { return string(appendSet(nil, s)) }

// appendSet appends the set in wire form.
func appendSet(b []byte, s Set) []byte {
	for i, r := range s {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSeqNumber(b, r.Lo)
		if r.Hi != r.Lo {
			b = append(b, ':')
			b = appendSeqNumber(b, r.Hi)
		}
	}
	return b
}

func appendSeqNumber(b []byte, n uint32) []byte {
	if n == Star {
		return append(b, '*')
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// NumSet names messages in a command: by UID or by sequence number, or as the
// result that the last SEARCH saved (RFC 9051 §6.4.4.1).
type NumSet struct {
	Set   Set  // as written: Resolve it first
	UID   bool // Set holds UIDs; the command is the UID form
	Saved bool // "$": Set is nil
}

// numSet takes a sequence set or "$".
func (r *Reader) numSet(uid bool) NumSet {
	if r.accept('$') {
		return NumSet{UID: uid, Saved: true}
	}
	return NumSet{Set: r.set(), UID: uid}
}

func (r *Reader) set() Set {
	set, n, err := parseSet(r.line[r.pos:])
	if err == ErrInvalidSet {
		err = bad("A sequence set is missing or wrong.")
	}
	check(err)
	r.pos += n
	return set
}
