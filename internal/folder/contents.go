// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"hash/maphash"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Contents tells whether a folder had a message at the time when it was asked:
// one with the same envelope and size. The Message-ID in it is not enough: programs
// that send reports give each the same, and drafts keep theirs. It takes 12 bytes
// for each of them, and is for one goroutine.
type Contents struct {
	seed   maphash.Seed
	keys   []uint64 // rising
	counts []uint32
}

// Contents reads what a folder holds. One that is not there holds nothing.
func (s *Store) Contents(ctx context.Context, mailbox db.ID, name string) (*Contents, error) {
	c := &Contents{seed: maphash.MakeSeed()}
	v, err := s.Open(ctx, mailbox, name, true)
	if fault.Is(err, fault.NotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	c.keys = make([]uint64, 0, v.Len())
	err = v.Fetch(ctx, v.Resolve([]Range{{1, Star}}, false), WantEnvelope, func(r *Row) error {
		c.keys = append(c.keys, c.key(r.Envelope, int64(r.Size)))
		return nil
	})
	slices.Sort(c.keys)
	rest := c.keys
	c.keys = c.keys[:0]
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n] == rest[0] {
			n++
		}
		c.keys, c.counts = append(c.keys, rest[0]), append(c.counts, uint32(n))
		rest = rest[n:]
	}
	return c, err
}

func (c *Contents) key(envelope []byte, size int64) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.Write(envelope) // never fails
	maphash.WriteComparable(&h, size)
	return h.Sum64()
}

// Take reports whether the folder had a message that was not taken yet, and
// takes it: of two alike, each counts once.
func (c *Contents) Take(d Description, size int64) bool {
	at, found := slices.BinarySearch(c.keys, c.key(d.Envelope, size))
	if !found || c.counts[at] == 0 {
		return false
	}
	c.counts[at]--
	return true
}
