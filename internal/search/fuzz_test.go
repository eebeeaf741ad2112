// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
)

// FuzzPacked: whatever bytes there are, they are sets within their bounds, which
// can be packed again, or damage.
func FuzzPacked(f *testing.F) {
	few, many := set{1 << 5, 1 << 63}, set{0x5555555555555555, ^uint64(0)}
	f.Add(appendPacked(appendPacked(nil, few), many), uint8(2))
	f.Add(appendPacked(nil, make(set, 3)), uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7}, uint8(1))
	f.Add([]byte{3, 63, 0}, uint8(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"), uint8(1))
	f.Add([]byte("\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), uint8(40))
	f.Fuzz(func(t *testing.T, row []byte, size uint8) {
		words := 1 + int(size)%80
		_, got := unpacked(t, row, words, 1<<10)
		for _, s := range got {
			again := make(set, words)
			if err := again.loadRow(sealed(appendPacked(nil, s))); err != nil || !slices.Equal(again, s) {
				t.Fatalf("%v became %v, %v", s, again, err)
			}
		}
		for _, blocks := range []int{1, 3, 4, 64} {
			from := fieldsOf(readFields, 1, blocks)
			err := from.each(sealed(slices.Clone(row)), func(_ uint32, one []byte) error { return make(set, from.words).load(one) })
			if err != nil && !isDamage(err) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzFind: a message that has a text, in one piece or in pieces that overlap, is
// found by it in each form in which its signature is stored, whatever else there is.
func FuzzFind(f *testing.F) {
	f.Add([]byte("a long needle in hay"), []byte("hay"), uint8(2), uint8(7), uint8(folder.InBodies))
	f.Add([]byte("stra\u00dfe"), []byte("\xc3\x9f"), uint8(4), uint8(5), uint8(1))
	f.Add([]byte("abc"), []byte{}, uint8(0), uint8(3), uint8(folder.InHeaders))
	f.Add(bytes.Repeat([]byte("a very long needle; "), 50), []byte("x"), uint8(1), uint8(255), uint8(9))
	f.Fuzz(func(t *testing.T, text, other []byte, from, length, which uint8) {
		kind := folder.TextKind(which) % (folder.InBodies + 1)
		needle := text[min(int(from), len(text)):]
		if needle = needle[:min(int(length), len(needle))]; len(needle) < 3 {
			return
		}
		docs := make([]doc, blockDocs)
		for i := range docs {
			docs[i].sig = new(signature)
		}
		at := int(from) * 2
		cutAt := len(text) / 2
		docs[at].sig.add(kind, text[:cutAt])
		docs[at].sig.add(kind, text[max(0, cutAt-3):])
		docs[blockDocs-1-at].sig.add(kind, other)
		wanted := wanted(kind, needle)
		sig, bundled := make(set, buckets/64), false
		err := errors.Join(sig.loadRow(sealed(appendPacked(nil, docs[at].sig[:]))),
			eachBundled(sealed(appendBundled(nil, docs[at])), func(_ db.ID, fields set) { bundled = fields.hasAll(wanted) }))
		if err != nil {
			t.Fatal(err)
		}
		if len(wanted) == 0 || len(wanted) > maxWanted || !sig.hasAll(wanted) || kind < folder.InHeaders && !bundled {
			t.Fatalf("%q is not found in %q", needle, text)
		}
		places := sliced(docs)
		for _, b := range wanted {
			in := make(set, blockWords)
			if err := in.loadRow(sealed(appendPacked(nil, places[b]))); err != nil || !in.has(at) {
				t.Fatalf("%q is not found in %q in a block: %v", needle, text, err)
			}
		}
	})
}
