// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/mailstead/mailstead/internal/folder"
)

// A signature is a set of buckets, by which a message shows which sequences of
// three and of four bytes its texts have: each sequence, with the kind of the
// text, falls into one bucket. What falls into a bucket that the message is not
// in, the message doesn't have. The fields of the envelope have buckets of
// their own, so that a long body does not fill them.
//
// Three bytes alone tell little: most messages have "nee", "eed", "edl" and
// "dle", few have "eedl". More than four would fill the buckets of a long text.
type signature [buckets / 64]uint64

// The buckets. A mail of 8 KiB is in a fifth of those of the texts, one of 75 KB
// in half of them; of those of the fields, in one of eighty.
const (
	fieldBuckets = 16_384
	textBuckets  = 30_720
	buckets      = fieldBuckets + textBuckets
)

// bucketOf returns where a sequence of bytes falls.
func bucketOf(kind folder.TextKind, seq []byte) uint32 {
	h := uint32(kind) + 1
	for _, c := range seq {
		h = (h ^ uint32(c)) * 0x01000193
	}
	h ^= h >> 16
	h *= 0x7feb352d
	h ^= h >> 15
	h *= 0x846ca68b
	h ^= h >> 16
	if kind < folder.HeaderText {
		return h % fieldBuckets
	}
	return fieldBuckets + h%textBuckets
}

func (s *signature) add(kind folder.TextKind, text []byte) {
	for i := range len(text) - 2 {
		s.addBucket(bucketOf(kind, text[i:i+3]))
		if i+4 <= len(text) {
			s.addBucket(bucketOf(kind, text[i:i+4]))
		}
	}
}

func (s *signature) addBucket(b uint32) { bitset(s[:]).add(int(b)) }

// maxTermBuckets bounds how many buckets are looked at for a text; so many leave
// nothing to chance.
const maxTermBuckets = 32

// termBuckets are buckets that a message must be in to have the text in that kind;
// of a long text, some from all over it. First come those that fewest messages
// are likely to be in, and as neighbours tell much the same, each second one.
func termBuckets(kind folder.TextKind, text []byte) []uint32 {
	var all [][]byte
	for _, n := range []int{4, 3} {
		count := max(0, len(text)-n+1)
		room := min(count, maxTermBuckets/2)
		for _, first := range []int{0, 1} {
			for i := first; i < room; i += 2 {
				at := i
				if count > room {
					at = i * (count - 1) / (room - 1)
				}
				all = append(all, text[at:at+n])
			}
		}
	}
	slices.SortStableFunc(all, func(a, b []byte) int { return rarity(b)*len(a) - rarity(a)*len(b) })
	var list []uint32
	for _, seq := range all {
		if b := bucketOf(kind, seq); !slices.Contains(list, b) {
			list = append(list, b)
		}
	}
	return list
}

// rarity returns how many bytes of a sequence are digits or seldom letters: what
// tells one Message-ID or order from another.
func rarity(seq []byte) (n int) {
	for _, c := range seq {
		if c >= '0' && c <= '9' || bytes.IndexByte([]byte("jqvwxyz"), c) >= 0 || c >= 0x80 {
			n++
		}
	}
	return n
}

// A block is blockDocs messages of a mailbox whose signatures are stored the
// other way round, by bucket: so a search reads of each bucket that it wants
// which messages are in it, and nothing else. Neighbouring buckets share a row.
const (
	blockDocs           = 512
	blockWords          = blockDocs / 64
	blockBucketsPerPage = 16
	pagesPerBlock       = buckets / blockBucketsPerPage
)

// transpose turns the signatures of a full block round: for each bucket the places
// of the messages that are in it.
func transpose(docs []doc) []bitset {
	all := newSets(buckets, blockWords)
	for n := range docs {
		for i, w := range docs[n].signature {
			for ; w != 0; w &= w - 1 {
				all[i*64+bits.TrailingZeros64(w)].add(n)
			}
		}
	}
	return all
}

// extractSignatures is the way back, for the messages in keep, a set of places.
func extractSignatures(all []bitset, keep map[int]bool) map[int]*signature {
	sigs := map[int]*signature{}
	for n := range keep {
		s := new(signature)
		for b := range all {
			if all[b].has(n) {
				s.addBucket(uint32(b))
			}
		}
		sigs[n] = s
	}
	return sigs
}
