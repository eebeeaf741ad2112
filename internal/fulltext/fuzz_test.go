// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// FuzzPacked checks that any bytes are either damage or sets within their bounds, which can be
// packed again.
func FuzzPacked(f *testing.F) {
	few, many := bitset{1 << 5, 1 << 63}, bitset{0x5555555555555555, ^uint64(0)}
	f.Add(appendSet(appendSet(nil, few), many), uint8(2))
	f.Add(appendSet(nil, make(bitset, 3)), uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7}, uint8(1))
	f.Add([]byte{3, 63, 0}, uint8(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"), uint8(1))
	f.Add([]byte("\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), uint8(40))
	f.Fuzz(func(t *testing.T, row []byte, size uint8) {
		words := 1 + int(size)%80
		_, got := unpacked(t, row, words, 1<<10)
		for _, s := range got {
			again := make(bitset, words)
			if err := again.decodeRow(appendChecksum(appendSet(nil, s))); err != nil || !slices.Equal(again, s) {
				t.Fatalf("%v became %v, %v", s, again, err)
			}
		}
		for _, blocks := range []int{1, 3, 4, 64} {
			from := segmentSource(segmentPagesQuery, 1, blocks)
			err := from.eachSet(appendChecksum(slices.Clone(row)), func(_ uint32, one []byte) error { return make(bitset, from.words).decode(one) })
			if err != nil && !isDamageError(err) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzFind checks that a message with a text, in one piece or in overlapping pieces, is found by it
// in each stored form of its signature, with any other contents.
func FuzzFind(f *testing.F) {
	f.Add([]byte("a long needle in hay"), []byte("hay"), uint8(2), uint8(7), uint8(search.BodyText))
	f.Add([]byte("stra\u00dfe"), []byte("\xc3\x9f"), uint8(4), uint8(5), uint8(1))
	f.Add([]byte("abc"), []byte{}, uint8(0), uint8(3), uint8(search.HeaderText))
	f.Add(bytes.Repeat([]byte("a very long needle; "), 50), []byte("x"), uint8(1), uint8(255), uint8(9))
	f.Fuzz(func(t *testing.T, text, other []byte, from, length, which uint8) {
		kind := search.TextKind(which) % (search.BodyText + 1)
		needle := text[min(int(from), len(text)):]
		if needle = needle[:min(int(length), len(needle))]; len(needle) < 3 {
			return
		}
		docs := make([]doc, blockDocs)
		for i := range docs {
			docs[i].signature = new(signature)
		}
		at := int(from) * 2
		cutAt := len(text) / 2
		docs[at].signature.add(kind, text[:cutAt])
		docs[at].signature.add(kind, text[max(0, cutAt-3):])
		docs[blockDocs-1-at].signature.add(kind, other)
		wanted := termBuckets(kind, needle)
		sig, bundled := make(bitset, buckets/64), false
		err := errors.Join(sig.decodeRow(appendChecksum(appendSet(nil, docs[at].signature[:]))),
			eachBufferEntry(appendChecksum(appendBufferEntry(nil, docs[at])), func(_ db.ID, fields bitset) { bundled = fields.containsAll(wanted) }))
		if err != nil {
			t.Fatal(err)
		}
		if len(wanted) == 0 || len(wanted) > maxTermBuckets || !sig.containsAll(wanted) || kind < search.HeaderText && !bundled {
			t.Fatalf("%q is not found in %q", needle, text)
		}
		places := transpose(docs)
		for _, b := range wanted {
			in := make(bitset, blockWords)
			if err := in.decodeRow(appendChecksum(appendSet(nil, places[b]))); err != nil || !in.has(at) {
				t.Fatalf("%q is not found in %q in a block: %v", needle, text, err)
			}
		}
	})
}
