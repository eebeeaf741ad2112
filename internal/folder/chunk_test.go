// SPDX-License-Identifier: Apache-2.0

package folder

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
