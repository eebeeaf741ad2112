// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAbove checks that numbers higher than a limit are found in columns of every width, for every
// limit.
func TestAbove(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, span := range []uint64{0, 200, 60_000, 1 << 20, 1 << 30, 1 << 50} {
		base := r.Uint64N(1 << 40)
		numbers := make([]uint64, 1024)
		for i := range numbers {
			numbers[i] = base + r.Uint64N(span+1)
		}
		c := pack(numbers)
		for _, limit := range []uint64{0, base - 1, base, numbers[7], base + span/2, base + span - 1, base + span, base + 300, base + 70_000, base + 1<<33} {
			var got, want []int
			c.eachAbove(limit, len(numbers), func(i int) { got = append(got, i) })
			for i, n := range numbers {
				if n > limit {
					want = append(want, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("width %d, above %d of %d: %d found, not %d", c.width, limit-base, span, len(got), len(want))
			}
		}
	}
}

func FuzzReadChunk(f *testing.F) {
	var list []Entry
	for i := range uint32(40) {
		list = append(list, Entry{UID: 3*i + 1, Size: i * 1000, Flags: Flags(i % 32), ModSeq: uint64(i) * uint64(i), Keywords: i / 30})
	}
	f.Add(newChunk(list).appendBinary(nil))
	f.Add(newChunk(list[:1]).appendBinary(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := decodeChunk(data)
		if err != nil {
			return
		}
		s := Slot{0, 0, c}
		for i := range c.Len() {
			if at, found := c.searchUID(0, s.UID(i)); !found || at != i {
				t.Fatalf("%d is at %d, %v", i, at, found)
			}
		}
	})
}

func TestChunk(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		var list []Entry
		for low := range uint32(chunkMask + 1) {
			if r.IntN(3) > 0 || r.IntN(50) == 0 && len(list) == 0 {
				list = append(list, Entry{
					UID: 7<<chunkBits | low, Size: r.Uint32() >> r.IntN(33), Flags: Flags(r.IntN(int(Recent-1)+1) >> r.IntN(6)),
					ModSeq: r.Uint64() >> (1 + r.IntN(63)), Keywords: r.Uint32() >> (16 + r.IntN(17)),
				})
			}
			if r.IntN(300) == 0 {
				break
			}
		}
		if len(list) == 0 {
			continue
		}
		c, rest, err := decodeChunk(append(newChunk(list).appendBinary(nil), 9))
		if err != nil || len(rest) != 1 {
			t.Fatal(err, rest)
		}
		s := Slot{7, 0, c}
		for i := range list {
			if s.Entry(i) != list[i] {
				t.Fatalf("%d: %+v instead of %+v", i, s.Entry(i), list[i])
			}
			if at, found := c.searchUID(min(i, 5), list[i].UID&chunkMask); !found || at != i {
				t.Fatalf("%d is found at %d, %v", i, at, found)
			}
		}
		replaced(t, r, s, list)
	}
}

// replaced changes some messages of a chunk repeatedly.
func replaced(t *testing.T, r *rand.Rand, s Slot, list []Entry) {
	t.Helper()
	for range 5 {
		want := slices.Clone(list)
		var put []Entry
		for i := range want {
			if e := &want[i]; r.IntN(10) == 0 {
				e.Flags = Flags(r.IntN(int(Recent-1) + 1))
				e.ModSeq += r.Uint64() >> (1 + r.IntN(63)) / 2
				if r.IntN(2) == 0 {
					e.Keywords = r.Uint32() >> r.IntN(33)
				}
				put = append(put, *e)
			}
		}
		c := s.withReplaced(put)
		packed := newChunk(want)
		if c.MaxModSeq < packed.MaxModSeq || c.AnyFlags != packed.AnyFlags || c.AllFlags != packed.AllFlags || c.Len() != packed.Len() {
			t.Fatalf("newest %d, some %b, every %b, %d messages instead of %d, %b, %b, %d",
				c.MaxModSeq, c.AnyFlags, c.AllFlags, c.Len(), packed.MaxModSeq, packed.AnyFlags, packed.AllFlags, packed.Len())
		}
		now := Slot{s.key, 0, c}
		for i := range want {
			if now.Entry(i) != want[i] || s.Entry(i) != list[i] {
				t.Fatalf("%d: %+v instead of %+v, and %+v that was %+v", i, now.Entry(i), want[i], s.Entry(i), list[i])
			}
		}
		s, list = now, want
	}
	if len(list) <= chunkMask {
		missing := list[0].UID
		for i := 0; i < len(list) && list[i].UID == missing; i++ {
			missing++
		}
		if missing>>chunkBits == s.key && s.withReplaced([]Entry{list[0], {UID: missing}}) != nil {
			t.Fatal("a message that is not there was replaced")
		}
	}
}
