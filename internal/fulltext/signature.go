// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/mailstead/mailstead/internal/folder/search"
)

// signature is a set of buckets that shows which sequences of three and four bytes a message's
// texts contain: each sequence, with the kind of the text, maps to one bucket. A message that is
// not in a bucket has none of the sequences that map to it. ENVELOPE fields have separate buckets,
// so that a long body does not fill them.
//
// Three bytes alone are not selective: most messages have "nee", "eed", "edl" and "dle", few have
// "eedl". More than four would fill the buckets of a long text.
type signature [buckets / 64]uint64

// The numbers of buckets. A mail of 8 KiB is in a fifth of the text buckets, one of 75 KB in half
// of them. A mail is in one of eighty field buckets.
const (
	fieldBuckets = 16_384
	textBuckets  = 30_720
	buckets      = fieldBuckets + textBuckets
)

// bucketOf returns the bucket of a sequence of bytes.
func bucketOf(kind search.TextKind, seq []byte) uint32 {
	h := uint32(kind) + 1
	for _, c := range seq {
		h = (h ^ uint32(c)) * 0x01000193
	}
	h ^= h >> 16
	h *= 0x7feb352d
	h ^= h >> 15
	h *= 0x846ca68b
	h ^= h >> 16
	if kind < search.HeaderText {
		return h % fieldBuckets
	}
	return fieldBuckets + h%textBuckets
}

func (s *signature) add(kind search.TextKind, text []byte) {
	for i := range len(text) - 2 {
		s.addBucket(bucketOf(kind, text[i:i+3]))
		if i+4 <= len(text) {
			s.addBucket(bucketOf(kind, text[i:i+4]))
		}
	}
}

func (s *signature) addBucket(b uint32) { bitset(s[:]).add(int(b)) }

// maxTermBuckets limits the buckets checked for a text. With so many, false positives are unlikely.
const maxTermBuckets = 32

// termBuckets returns buckets that a message must be in to have the text in that kind. For a long
// text they are a sample from all over it. The most selective buckets come first, and every second
// sequence before those in between, since neighbors are correlated.
func termBuckets(kind search.TextKind, text []byte) []uint32 {
	var all [][]byte
	for _, n := range []int{4, 3} {
		count := max(0, len(text)-n+1)
		capacity := min(count, maxTermBuckets/2)
		for _, first := range []int{0, 1} {
			for i := first; i < capacity; i += 2 {
				at := i
				if count > capacity {
					at = i * (count - 1) / (capacity - 1)
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

// rarity returns how many bytes of a sequence are digits or rare letters, which distinguish one
// Message-ID or order number from another.
func rarity(seq []byte) (n int) {
	for _, c := range seq {
		if c >= '0' && c <= '9' || bytes.IndexByte([]byte("jqvwxyz"), c) >= 0 || c >= 0x80 {
			n++
		}
	}
	return n
}

// A block is blockDocs messages of a mailbox whose signatures are stored transposed, by bucket. So
// a search reads only which messages are in the buckets that it needs. Neighboring buckets share a
// row.
const (
	blockDocs           = 512
	blockWords          = blockDocs / 64
	blockBucketsPerPage = 16
	pagesPerBlock       = buckets / blockBucketsPerPage
)

// transpose transposes the signatures of a full block: it returns, for each bucket, the positions
// of the messages in it.
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

// extractSignatures reverses transpose for the messages at the positions in keep.
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
