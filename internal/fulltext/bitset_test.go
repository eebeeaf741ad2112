// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPacked checks that sets of any density are unchanged after packing and unpacking, and that
// none is longer than its bits and a byte. Truncated or extended data must be detected as damage.
func TestPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 2_000 {
		const many = 3
		words, of := 1+r.IntN(40), newSets(many, 40)
		var row []byte
		for i := range of {
			of[i] = of[i][:words]
			for range []int{0, 1, r.IntN(64 * words), 640 * words}[r.IntN(4)] {
				of[i].add(r.IntN(64 * words))
			}
			before := len(row)
			if row = appendSet(row, of[i]); len(row)-before > 8*words+2 {
				t.Fatalf("a set of %d words takes %d bytes", words, len(row)-before)
			}
		}
		if rest, got := unpacked(t, row, words, many); !slices.EqualFunc(got, of, slices.Equal) || len(rest) != 0 {
			t.Fatalf("%v became %v, and %d bytes more", of, got, len(rest))
		}
		for n := range row {
			if _, got := unpacked(t, row[:n], words, many); len(got) == many {
				t.Fatalf("%d of %d bytes of %v are three sets", n, len(row), of)
			}
		}
		if err := make(bitset, words).decodeRow(appendChecksum(append(appendSet(nil, of[0]), 1))); !isDamageError(err) {
			t.Fatalf("more than a set: %v", err)
		}
	}
}

// unpacked returns the sets that can be read.
func unpacked(t *testing.T, row []byte, words, most int) (rest []byte, got []bitset) {
	for range most {
		one, rest, err := splitSet(row, words)
		s := make(bitset, words)
		if err == nil {
			row, err = rest, s.decode(one)
		}
		if err != nil {
			if !isDamageError(err) {
				t.Fatal(err)
			}
			break
		}
		got = append(got, s)
	}
	return row, got
}

// TestUnpackDamage checks that no input causes a panic.
func TestUnpackDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 20_000 {
		row := make([]byte, r.IntN(30))
		for i := range row {
			row[i] = byte(r.IntN(256)) | []byte{0, 0x80, 0xff}[r.IntN(3)]
		}
		unpacked(t, row, 1+r.IntN(4), 9)
	}
}
