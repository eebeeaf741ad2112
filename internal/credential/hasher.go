// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"

	"golang.org/x/crypto/argon2"

	"github.com/mailstead/mailstead/internal/signal"
)

// Cost of new hashes: 19 MiB, two passes, one thread, about 50 ms.
const (
	newMemory  = 19 << 10 // KiB
	newTime    = 2
	newThreads = 1
	newSalt    = 16 // bytes
	newSum     = 32
)

// Hasher hashes and verifies passwords with argon2id (RFC 9106), at most as
// many at once as there are processors: each takes one, and 19 MiB. Others
// wait their turn.
type Hasher struct {
	slots chan struct{}
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher {
	return &Hasher{slots: make(chan struct{}, signal.Processors)}
}

// Hash returns the PHC string to store for a password that has passed Check.
// It fails only when ctx ends before its turn comes.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	release, err := h.slot(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	fresh := hash{memory: newMemory, time: newTime, threads: newThreads, salt: make([]byte, newSalt)}
	rand.Read(fresh.salt)
	fresh.sum = fresh.of(password, newSum)
	return fresh.String(), nil
}

// Verify reports whether the password is the one that phc was made from. An
// error means that it could not be told: ctx ended, or phc is damaged.
func (h *Hasher) Verify(ctx context.Context, phc, password string) (bool, error) {
	stored, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	release, err := h.slot(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	return stored.matches(password), nil
}

// Dummy takes as long as Verify does on a new hash. A door calls it for an
// unknown address, so that time does not tell which addresses exist.
func (h *Hasher) Dummy(ctx context.Context, password string) error {
	release, err := h.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	dummy := hash{memory: newMemory, time: newTime, threads: newThreads, salt: make([]byte, newSalt), sum: make([]byte, newSum)}
	dummy.matches(password)
	return nil
}

// slot waits for a turn to hash.
func (h *Hasher) slot(ctx context.Context) (release func(), err error) {
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to hash a password: %w", ctx.Err())
	}
}

func (s hash) matches(password string) bool {
	if len(password) > MaxLength {
		return false
	}
	return subtle.ConstantTimeCompare(s.of(password, uint32(len(s.sum))), s.sum) == 1
}

func (s hash) of(password string, size uint32) []byte {
	return argon2.IDKey([]byte(prepare(password)), s.salt, s.time, s.memory, s.threads, size)
}
