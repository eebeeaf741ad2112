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

	"github.com/mailstead/mailstead/internal/lru"
	"github.com/mailstead/mailstead/internal/notify"
)

// Parameters of new hashes, apart from their Cost.
const (
	argonThreads = 1
	saltSize     = 16 // bytes
	sumSize      = 32
)

// Cost is the work for one hash, to make or to guess it.
type Cost struct {
	Memory uint32 // KiB
	Passes uint32 // over the memory
}

// DefaultCost is OWASP's recommendation for argon2id. A hash takes about 50 ms.
var DefaultCost = Cost{Memory: 19 << 10, Passes: 2}

// Limits of the result caches. A few right passwords of each credential suffice; of wrong ones, as
// many as the login limiter allows.
const (
	maxSubjects        = 10_000
	rightTTL           = 5 * time.Minute
	maxRightPerSubject = 4
	wrongTTL           = time.Minute
	maxWrongPerSubject = 32
	// repeatPause is the delay of the result for a repeated wrong password: many
	// connections that repeat one as fast as they can would use all processors.
	repeatPause = time.Second
)

// Hasher hashes and verifies passwords with argon2id (RFC 9106). Each hash takes a processor and
// 19 MiB, so at most as many run at once as there are processors; others wait in a fair queue. It
// caches results for a short time, so that a repeated password, right or wrong, costs microseconds.
type Hasher struct {
	// Now and Sleep are the clock. Set them before the first use.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error

	cost   Cost
	slots  *slotQueue
	hashes atomic.Int64
	key    [sha256.Size]byte // random key of this process
	dummy  string            // hash that no password matches

	mu           sync.Mutex
	right, wrong resultCache
	running      map[attempt]*verification
}

// verification is a completed or running verification. Other requests of the same network with the
// same password wait for its result.
type verification struct {
	done          chan struct{} // closed when ok and err are set
	ok            bool
	err           error
	repeatedWrong bool // whether it is a repeated wrong password
}

// attempt is a password from a client. A right one is cached for all networks, a wrong one only for
// its own network. Otherwise response times would reveal the wrong passwords that others have
// tried, which may be right elsewhere.
type attempt struct {
	subject
	anyNetwork, ownNetwork fingerprint
}

// NewHasher returns a Hasher with the default cost.
func NewHasher() *Hasher { return NewHasherWithCost(DefaultCost) }

// NewHasherWithCost returns a Hasher that makes hashes of a cost, DefaultCost if it is zero. It
// verifies hashes of any cost.
func NewHasherWithCost(c Cost) *Hasher {
	if c == (Cost{}) {
		c = DefaultCost
	}
	h := &Hasher{
		cost: c, Now: time.Now, Sleep: notify.Sleep, slots: newSlots(notify.Processors), running: map[attempt]*verification{},
		right: resultCache{ttl: rightTTL, maxPerSubject: maxRightPerSubject, subjects: lru.Map[subject, subjectPasswords]{Max: maxSubjects}},
		wrong: resultCache{ttl: wrongTTL, maxPerSubject: maxWrongPerSubject, subjects: lru.Map[subject, subjectPasswords]{Max: maxSubjects}},
	}
	rand.Read(h.key[:])
	dummy := newHash(c)
	dummy.sum = make([]byte, sumSize)
	rand.Read(dummy.sum)
	h.dummy = dummy.String()
	return h
}

// Hash returns the PHC string to store for a password that has passed Check.
// It fails when ctx ends before a slot is free, and returns a fault.RateLimited when too many wait.
func (h *Hasher) Hash(ctx context.Context, by Requester, password string) (string, error) {
	release, err := h.Acquire(ctx, by)
	if err != nil {
		return "", err
	}
	defer release()
	fresh := newHash(h.cost)
	fresh.sum = fresh.derive(password, sumSize)
	h.hashes.Add(1)
	return fresh.String(), nil
}

// Verify reports whether the password is the one that phc was made from. id is the credential that
// phc is stored with. An error means that the result is unknown: ctx ended, too many wait
// (fault.RateLimited), or phc is damaged.
func (h *Hasher) Verify(ctx context.Context, by Requester, id int64, phc, password string) (bool, error) {
	return h.verify(ctx, by, subject{id: id}, phc, password)
}

// VerifyDummy takes as long, and costs as much, as Verify with a wrong password. Servers call it
// for an address that does not exist, which is by.Target, so that response times don't reveal which
// addresses exist.
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
		if v.err == nil { // otherwise it is the error of the first request, whose client left
			return v.ok, nil
		}
	}
}

// startVerification returns a completed or running verification of the password, or a new one. If
// it is new, first is true and the caller must run it.
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

// finishVerification caches the result of a verification and wakes the waiting requests.
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

// Acquire waits for a slot for other work on passwords, which shares the slots with hashes. The
// caller must call release afterwards.
func (h *Hasher) Acquire(ctx context.Context, by Requester) (release func(), err error) {
	return h.slots.acquire(ctx, by)
}

// Forget drops the cached results of a credential. It is called on every node after a change of
// password, a suspension or a revocation.
func (h *Hasher) Forget(id int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.right.subjects.Delete(subject{id: id})
	h.wrong.subjects.Delete(subject{id: id})
}

// ForgetAll drops all cached results. It is called when signals from other nodes may have been
// lost.
func (h *Hasher) ForgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.right.subjects.Clear()
	h.wrong.subjects.Clear()
}

// HashCount returns how many passwords were hashed since the start.
func (h *Hasher) HashCount() int64 { return h.hashes.Load() }

// newAttempt returns the attempt for a password. Its fingerprints include the stored hash, whose
// salt changes with each password. So results for an old password don't apply to a new one, on any
// node.
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

func newHash(c Cost) hash {
	fresh := hash{memory: c.Memory, time: c.Passes, threads: argonThreads, salt: make([]byte, saltSize)}
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
