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

	"github.com/mailstead/mailstead/internal/notify"
)

// Cost of new hashes: 19 MiB, two passes, one thread, about 50 ms.
const (
	argonMemory  = 19 << 10 // KiB
	argonTime    = 2
	argonThreads = 1
	saltSize     = 16 // bytes
	sumSize      = 32
)

// What is remembered of verifications, and for how long. Of right passwords a
// few of each credential suffice; of wrong ones, as many as the login limiter
// lets through.
const (
	maxSubjects        = 10_000
	rightTTL           = 5 * time.Minute
	maxRightPerSubject = 4
	wrongTTL           = time.Minute
	maxWrongPerSubject = 32
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
	Sleep func(context.Context, time.Duration) error

	slots  *slotQueue
	hashes atomic.Int64
	key    [sha256.Size]byte // of this process alone
	dummy  string            // a hash that no password has

	mu           sync.Mutex
	right, wrong resultCache
	running      map[attempt]*verification
}

// verification is one that is done or under way. Others of the same network with
// the same password wait for its result.
type verification struct {
	done          chan struct{} // closed when ok and err are set
	ok            bool
	err           error
	repeatedWrong bool // a wrong password again
}

// attempt is a password that a client gives. A right one is remembered for all
// networks. A wrong one, which may open something elsewhere, is for its own
// network only: else time would tell which ones others have tried.
type attempt struct {
	subject
	anyNetwork, ownNetwork fingerprint
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher {
	h := &Hasher{
		Now: time.Now, Sleep: notify.Sleep, slots: newSlots(notify.Processors), running: map[attempt]*verification{},
		right: resultCache{ttl: rightTTL, maxPerSubject: maxRightPerSubject, maxSubjects: maxSubjects},
		wrong: resultCache{ttl: wrongTTL, maxPerSubject: maxWrongPerSubject, maxSubjects: maxSubjects},
	}
	rand.Read(h.key[:])
	dummy := newHash()
	dummy.sum = make([]byte, sumSize)
	rand.Read(dummy.sum)
	h.dummy = dummy.String()
	return h
}

// Hash returns the PHC string to store for a password that has passed Check.
// It fails when ctx ends before its turn comes, and is fault.RateLimited when too
// many wait.
func (h *Hasher) Hash(ctx context.Context, by Requester, password string) (string, error) {
	release, err := h.Acquire(ctx, by)
	if err != nil {
		return "", err
	}
	defer release()
	fresh := newHash()
	fresh.sum = fresh.derive(password, sumSize)
	h.hashes.Add(1)
	return fresh.String(), nil
}

// Verify reports whether the password is the one that phc was made from. id is
// the credential that phc is stored with. An error means that it could not be
// told: ctx ended, too many wait (fault.RateLimited), or phc is damaged.
func (h *Hasher) Verify(ctx context.Context, by Requester, id int64, phc, password string) (bool, error) {
	return h.verify(ctx, by, subject{id: id}, phc, password)
}

// VerifyDummy takes as long as Verify does with a wrong password, and costs as much.
// A listener calls it for an address that does not exist, which is by's target,
// so that time does not tell which addresses exist.
func (h *Hasher) VerifyDummy(ctx context.Context, by Requester, password string) error {
	_, err := h.verify(ctx, by, subject{address: by.Target}, h.dummy, password)
	return err
}

func (h *Hasher) verify(ctx context.Context, by Requester, s subject, phc, password string) (bool, error) {
	stored, err := parsePHC(phc)
	if err != nil || len(password) > MaxLength {
		return false, err
	}
	c := h.newAttempt(s, by, phc, password)
	for {
		v, first := h.startVerification(c)
		if first {
			v.ok, v.err = h.compute(ctx, by, stored, password)
			h.finishVerification(c, v)
			return v.ok, v.err
		}
		select {
		case <-v.done:
		case <-ctx.Done():
			return false, fmt.Errorf("waiting to hash a password: %w", ctx.Err())
		}
		if v.repeatedWrong && len(by.Networks) > 0 {
			if err := h.Sleep(ctx, repeatPause); err != nil {
				return false, err
			}
		}
		if v.err == nil { // else it is of the one who went ahead, whose client left
			return v.ok, nil
		}
	}
}

// startVerification returns the verification of a password: one that is done or under way,
// or a new one that the caller carries out.
func (h *Hasher) startVerification(c attempt) (v *verification, first bool) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	right := h.right.has(c.subject, c.anyNetwork, now)
	if right || h.wrong.has(c.subject, c.ownNetwork, now) {
		v = &verification{done: make(chan struct{}), ok: right, repeatedWrong: !right}
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

// finishVerification tells the result of a verification to those who wait, and remembers it.
func (h *Hasher) finishVerification(c attempt, v *verification) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, c)
	switch {
	case v.err != nil:
	case v.ok:
		h.right.add(c.subject, c.anyNetwork, now)
	default:
		h.wrong.add(c.subject, c.ownNetwork, now)
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

// InvalidateAll drops everything: when signals from other nodes may have been lost.
func (h *Hasher) ForgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.right.clear()
	h.wrong.clear()
}

// HashCount returns how many passwords were hashed since the start.
func (h *Hasher) HashCount() int64 { return h.hashes.Load() }

// newAttempt covers the stored hash, whose salt changes with each password: so what was
// found of an old password says nothing of a new one, on any node.
func (h *Hasher) newAttempt(s subject, by Requester, phc, password string) attempt {
	fingerprintOf := func(network string) (f fingerprint) {
		mac := hmac.New(sha256.New, h.key[:])
		mac.Write([]byte(phc + "\x00" + network + "\x00" + normalize(password)))
		mac.Sum(f[:0])
		return f
	}
	c := attempt{subject: s, anyNetwork: fingerprintOf("")}
	if c.ownNetwork = c.anyNetwork; len(by.Networks) > 0 {
		c.ownNetwork = fingerprintOf(by.Networks[0].String())
	}
	return c
}

func newHash() hash {
	fresh := hash{memory: argonMemory, time: argonTime, threads: argonThreads, salt: make([]byte, saltSize)}
	rand.Read(fresh.salt)
	return fresh
}

func (s hash) matches(password string) bool {
	if len(password) > MaxLength {
		return false
	}
	return subtle.ConstantTimeCompare(s.derive(password, uint32(len(s.sum))), s.sum) == 1
}

func (s hash) derive(password string, size uint32) []byte {
	return argon2.IDKey([]byte(normalize(password)), s.salt, s.time, s.memory, s.threads, size)
}
