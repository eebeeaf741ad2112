// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

// What is remembered of verifications, and for how long. Of right passwords a
// few of each credential suffice; of wrong ones, as many as the login limiter
// lets through.
const (
	maxSubjects = 10_000
	rightTTL    = 5 * time.Minute
	rightEach   = 4
	wrongTTL    = time.Minute
	wrongEach   = 32
	// repeatPause is how long the answer to a repeated wrong password waits: many
	// connections that repeat one as fast as they can would take all processors.
	repeatPause = time.Second
)

// Hasher hashes and verifies passwords with argon2id (RFC 9106), at most as
// many at once as there are processors: each takes one, and 19 MiB. Others wait
// in a fair queue. It remembers results for a short time, so that a client that
// repeats a password, right or wrong, costs microseconds.
type Hasher struct {
	// The clock; change both before the first use.
	Now   func() time.Time
	Pause func(context.Context, time.Duration) error

	slots  *slots
	hashes atomic.Int64
	key    [sha256.Size]byte // of this process alone
	dummy  string            // a hash that no password has

	mu           sync.Mutex
	right, wrong memory
	running      map[claim]*verification
}

// verification is one that is done or under way. Others of the same network with
// the same password wait for its result.
type verification struct {
	done     chan struct{} // closed when ok and err are set
	ok       bool
	err      error
	repeated bool // a wrong password again
}

// claim is a password that a client gives. A right one is remembered for all
// networks. A wrong one, which may open something elsewhere, is for its own
// network only: else time would tell which ones others have tried.
type claim struct {
	subject
	anywhere, here fingerprint
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher {
	h := &Hasher{
		Now: time.Now, Pause: signal.Sleep, slots: newSlots(signal.Processors), running: map[claim]*verification{},
		right: memory{ttl: rightTTL, each: rightEach, max: maxSubjects},
		wrong: memory{ttl: wrongTTL, each: wrongEach, max: maxSubjects},
	}
	rand.Read(h.key[:])
	dummy := newHash()
	dummy.sum = make([]byte, newSum)
	rand.Read(dummy.sum)
	h.dummy = dummy.String()
	return h
}

// Hash returns the PHC string to store for a password that has passed Check.
// It fails when ctx ends before its turn comes, and is fault.Limited when too
// many wait.
func (h *Hasher) Hash(ctx context.Context, by Requester, password string) (string, error) {
	release, err := h.Acquire(ctx, by)
	if err != nil {
		return "", err
	}
	defer release()
	fresh := newHash()
	fresh.sum = fresh.of(password, newSum)
	h.hashes.Add(1)
	return fresh.String(), nil
}

// Verify reports whether the password is the one that phc was made from. id is
// the credential that phc is stored with. An error means that it could not be
// told: ctx ended, too many wait (fault.Limited), or phc is damaged.
func (h *Hasher) Verify(ctx context.Context, by Requester, id int64, phc, password string) (bool, error) {
	return h.verify(ctx, by, subject{id: id}, phc, password)
}

// Refuse takes as long as Verify does with a wrong password, and costs as much.
// A listener calls it for an address that does not exist, which is by's target,
// so that time does not tell which addresses exist.
func (h *Hasher) Refuse(ctx context.Context, by Requester, password string) error {
	_, err := h.verify(ctx, by, subject{address: by.Target}, h.dummy, password)
	return err
}

func (h *Hasher) verify(ctx context.Context, by Requester, s subject, phc, password string) (bool, error) {
	stored, err := parsePHC(phc)
	if err != nil || len(password) > MaxLength {
		return false, err
	}
	c := h.claim(s, by, phc, password)
	for {
		v, first := h.begin(c)
		if first {
			v.ok, v.err = h.compute(ctx, by, stored, password)
			h.finish(c, v)
			return v.ok, v.err
		}
		select {
		case <-v.done:
		case <-ctx.Done():
			return false, fmt.Errorf("waiting to hash a password: %w", ctx.Err())
		}
		if v.repeated && len(by.Networks) > 0 {
			if err := h.Pause(ctx, repeatPause); err != nil {
				return false, err
			}
		}
		if v.err == nil { // else it is of the one who went ahead, whose client left
			return v.ok, nil
		}
	}
}

// begin returns the verification of a password: one that is done or under way,
// or a new one that the caller carries out.
func (h *Hasher) begin(c claim) (v *verification, first bool) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	right := h.right.has(c.subject, c.anywhere, now)
	if right || h.wrong.has(c.subject, c.here, now) {
		v = &verification{done: make(chan struct{}), ok: right, repeated: !right}
		close(v.done)
		return v, false
	}
	if v = h.running[c]; v != nil {
		return v, false
	}
	v = &verification{done: make(chan struct{})}
	h.running[c] = v
	return v, true
}

// finish tells the result of a verification to those who wait, and remembers it.
func (h *Hasher) finish(c claim, v *verification) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, c)
	switch {
	case v.err != nil:
	case v.ok:
		h.right.add(c.subject, c.anywhere, now)
	default:
		h.wrong.add(c.subject, c.here, now)
	}
	close(v.done)
}

func (h *Hasher) compute(ctx context.Context, by Requester, stored hash, password string) (bool, error) {
	release, err := h.Acquire(ctx, by)
	if err != nil {
		return false, err
	}
	defer release()
	h.hashes.Add(1)
	return stored.matches(password), nil
}

// Acquire waits for a slot for other work on passwords, which it shares with
// hashes. The caller calls release after it.
func (h *Hasher) Acquire(ctx context.Context, by Requester) (release func(), err error) {
	return h.slots.acquire(ctx, by)
}

// Forget drops what is remembered of a credential: at a change of password, a
// suspension or a revocation, on every node.
func (h *Hasher) Forget(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.right.forget(subject{id: id})
	h.wrong.forget(subject{id: id})
}

// ForgetAll drops everything: when signals from other nodes may have been lost.
func (h *Hasher) ForgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.right.clear()
	h.wrong.clear()
}

// Hashes returns how many passwords were hashed since the start.
func (h *Hasher) Hashes() int64 { return h.hashes.Load() }

// claim covers the stored hash, whose salt changes with each password: so what was
// found of an old password says nothing of a new one, on any node.
func (h *Hasher) claim(s subject, by Requester, phc, password string) claim {
	fingerprintOf := func(network string) (f fingerprint) {
		mac := hmac.New(sha256.New, h.key[:])
		mac.Write([]byte(phc + "\x00" + network + "\x00" + prepare(password)))
		mac.Sum(f[:0])
		return f
	}
	c := claim{subject: s, anywhere: fingerprintOf("")}
	if c.here = c.anywhere; len(by.Networks) > 0 {
		c.here = fingerprintOf(by.Networks[0].String())
	}
	return c
}

func newHash() hash {
	fresh := hash{memory: newMemory, time: newTime, threads: newThreads, salt: make([]byte, newSalt)}
	rand.Read(fresh.salt)
	return fresh
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
