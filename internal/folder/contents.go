// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Contents tells whether a folder had a message at the time when it was asked: one
// with the same bytes, which are read of those with the same envelope and size.
// The Message-ID is not enough: programs that send reports give each the same, and
// drafts keep theirs; nor is the envelope: two alarms of one second may differ in a
// figure. It takes 16 bytes for each message, and is for one goroutine.
type Contents struct {
	store *Store
	seed  maphash.Seed
	held  []held // by rising key
	// left are those whose bytes were read, and which were not taken.
	left map[Digest]int
}

// Digest is the SHA-256 of a message.
type Digest = [sha256.Size]byte

// held is a message by its envelope and size.
type held struct {
	key  uint64
	blob db.ID // 0 once its bytes were read
}

// Contents reads what a folder holds. One that is not there holds nothing.
func (s *Store) Contents(ctx context.Context, mailbox db.ID, name string) (*Contents, error) {
	c := &Contents{store: s, seed: maphash.MakeSeed(), left: map[Digest]int{}}
	v, err := s.Open(ctx, mailbox, name, true)
	if fault.Is(err, fault.NotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	c.held = make([]held, 0, v.Len())
	err = v.Fetch(ctx, v.Resolve([]Range{{1, Star}}, false), WantEnvelope, func(r *Row) error {
		c.held = append(c.held, held{c.key(r.Envelope, int64(r.Size)), r.Blob})
		return nil
	})
	slices.SortFunc(c.held, func(a, b held) int { return cmp.Compare(a.key, b.key) })
	return c, err
}

func (c *Contents) key(envelope []byte, size int64) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.Write(envelope) // never fails
	maphash.WriteComparable(&h, size)
	return h.Sum64()
}

// Empty reports whether nothing can be taken.
func (c *Contents) Empty() bool { return len(c.held) == 0 }

// Take reports whether the folder had a message that was not taken yet, and
// takes it: of two alike, each counts once. One that is no longer stored counts
// as another.
func (c *Contents) Take(ctx context.Context, d Description, size int64, sum Digest) (bool, error) {
	key := c.key(d.Envelope, size)
	at, _ := slices.BinarySearchFunc(c.held, key, func(h held, key uint64) int { return cmp.Compare(h.key, key) })
	for ; at < len(c.held) && c.held[at].key == key && c.held[at].blob != 0; at++ {
		stored, err := c.digest(ctx, c.held[at].blob)
		if err != nil && !blob.Lost(err) {
			return false, err
		}
		if err == nil {
			c.left[stored]++
		}
		c.held[at].blob = 0
	}
	n := c.left[sum]
	if n > 1 {
		c.left[sum]--
	} else {
		delete(c.left, sum)
	}
	return n > 0, nil
}

// digest reads a stored message.
func (c *Contents) digest(ctx context.Context, id db.ID) (sum Digest, err error) {
	b, err := c.store.Blobs.Load(ctx, id)
	if err != nil {
		return sum, err
	}
	r, err := b.Open(ctx)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	_, err = r.WriteTo(h)
	return Digest(h.Sum(nil)), errors.Join(err, r.Close())
}
