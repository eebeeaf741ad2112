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

// DuplicateFinder finds the messages that a folder already had when the finder was created. A
// duplicate has the same bytes. Only stored messages with the same envelope and size are read to
// compare them. The Message-ID is not enough: some programs give all their reports the same one,
// and drafts keep theirs. The envelope is not enough either: two alarms of one second may differ in
// a number. A finder takes 16 bytes for each message, and is for one goroutine.
type DuplicateFinder struct {
	store  *Folders
	seed   maphash.Seed
	stored []duplicateCandidate // ascending by key
	// unmatched counts the messages, by hash, whose bytes were read and that no duplicate has
	// matched.
	unmatched map[ContentHash]int
}

// ContentHash is the SHA-256 of a message.
type ContentHash = [sha256.Size]byte

// duplicateCandidate identifies a message by its envelope and size.
type duplicateCandidate struct {
	key  uint64
	blob db.ID // 0 once its bytes were read
}

// NewDuplicateFinder reads the messages of a folder. A missing folder has none.
func (s *Folders) NewDuplicateFinder(ctx context.Context, mailbox db.ID, name string) (*DuplicateFinder, error) {
	c := &DuplicateFinder{store: s, seed: maphash.MakeSeed(), unmatched: map[ContentHash]int{}}
	v, err := s.Open(ctx, mailbox, name, true)
	if fault.Is(err, fault.NotFound) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Close()
	c.stored = make([]duplicateCandidate, 0, v.Len())
	err = v.Fetch(ctx, v.Resolve([]Range{{Lo: 1, Hi: Star}}, false), FetchEnvelope, func(r *MessageRow) error {
		c.stored = append(c.stored, duplicateCandidate{c.key(r.Envelope, int64(r.Size)), r.BlobID})
		return nil
	})
	slices.SortFunc(c.stored, func(a, b duplicateCandidate) int { return cmp.Compare(a.key, b.key) })
	return c, err
}

func (c *DuplicateFinder) key(envelope []byte, size int64) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.Write(envelope) // never fails
	maphash.WriteComparable(&h, size)
	return h.Sum64()
}

// Empty reports whether there are no messages to match.
func (c *DuplicateFinder) Empty() bool { return len(c.stored) == 0 }

// TakeDuplicate reports whether the folder had an equal message that was not taken yet, and takes
// it, so that each of two equal messages counts once. A message whose bytes are lost matches
// nothing.
func (c *DuplicateFinder) TakeDuplicate(ctx context.Context, d Metadata, size int64, sum ContentHash) (bool, error) {
	key := c.key(d.Envelope, size)
	at, _ := slices.BinarySearchFunc(c.stored, key, func(h duplicateCandidate, key uint64) int { return cmp.Compare(h.key, key) })
	for ; at < len(c.stored) && c.stored[at].key == key && c.stored[at].blob != 0; at++ {
		stored, err := c.hashBlob(ctx, c.stored[at].blob)
		if err != nil && !blob.IsLost(err) {
			return false, err
		}
		if err == nil {
			c.unmatched[stored]++
		}
		c.stored[at].blob = 0
	}
	n := c.unmatched[sum]
	if n > 1 {
		c.unmatched[sum]--
	} else {
		delete(c.unmatched, sum)
	}
	return n > 0, nil
}

// hashBlob reads a stored message and returns its hash.
func (c *DuplicateFinder) hashBlob(ctx context.Context, id db.ID) (sum ContentHash, err error) {
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
	return ContentHash(h.Sum(nil)), errors.Join(err, r.Close())
}
