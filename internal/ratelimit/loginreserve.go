// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"context"
	"hash/maphash"
	"slices"
)

// pendingAttempts counts the running attempts of a counter on this node.
type pendingAttempts struct {
	count   int64
	waiting []chan struct{} // the first is closed when an attempt ends
}

// shard returns the index of a counter in failureCounts.
func (l *LoginLimiter) shard(c counterKey) int {
	return int(maphash.Comparable(l.seed, c) % uint64(len(l.failureCounts)))
}

// failuresCounted returns how many failures this node has counted at the counters of an attempt.
func (l *LoginLimiter) failuresCounted(t *attempt) (sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failuresCountedLocked(t)
}

func (l *LoginLimiter) failuresCountedLocked(t *attempt) (sum uint64) {
	for _, g := range t.allCounters() {
		sum += l.failureCounts[l.shard(g.counterKey)]
	}
	return sum
}

// reserve takes slots for an attempt, all or none. It returns false when the rows must be read
// again: after a wait, or when this node has counted a failure since they were read. So a failure
// is either in the rows, or its attempt still has its slot. The same wrong password again needs no
// slot.
func (l *LoginLimiter) reserve(ctx context.Context, t *attempt, before uint64, places []reservation) (placed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failuresCountedLocked(t) != before {
		return false, nil
	}
	if l.wrongPasswords.Get(t.passwordHash) != nil {
		places = nil
	}
	for _, p := range places {
		if at := l.pending[p.counterKey]; at != nil && at.count >= p.capacity {
			if t.turn != p.counterKey {
				l.passTurn(t)
			}
			return false, l.waitForSlot(ctx, t, p.counterKey)
		}
	}
	for _, p := range places {
		at := l.pending[p.counterKey]
		if at == nil {
			at = &pendingAttempts{}
			l.pending[p.counterKey] = at
		}
		at.count++
		if t.turn == p.counterKey {
			t.turn = counterKey{}
		}
	}
	t.reserved = places
	l.passTurn(t)
	return true, nil
}

// waitForSlot waits until an attempt at a counter ends. If too many wait already, or ctx ends, it
// returns a fault.RateLimited. l.mu is held on entry and return, but not during the wait.
func (l *LoginLimiter) waitForSlot(ctx context.Context, t *attempt, c counterKey) error {
	at := l.pending[c]
	if len(at.waiting) >= maxWaiting {
		return limitedError(0)
	}
	turn := make(chan struct{})
	at.waiting = append(at.waiting, turn)
	t.turn = counterKey{}
	l.mu.Unlock()
	var err error
	select {
	case <-turn:
	case <-ctx.Done():
		err = limitedError(0)
	}
	l.mu.Lock()
	if at = l.pending[c]; at != nil && slices.Contains(at.waiting, turn) {
		at.waiting = slices.DeleteFunc(at.waiting, func(one chan struct{}) bool { return one == turn })
		return err
	}
	t.turn = c
	return err
}

// release returns the slots of an attempt.
func (l *LoginLimiter) release(t *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range t.reserved {
		l.pending[p.counterKey].count--
		l.wakeNext(p.counterKey)
	}
	t.reserved = nil
	l.passTurn(t)
}

// passTurn wakes the next attempt if this one did not use its turn. l.mu is held.
func (l *LoginLimiter) passTurn(t *attempt) {
	if t.turn != (counterKey{}) {
		l.wakeNext(t.turn)
		t.turn = counterKey{}
	}
}

// wakeNext wakes the first attempt that waits at a counter. l.mu is held.
func (l *LoginLimiter) wakeNext(c counterKey) {
	at := l.pending[c]
	switch {
	case at == nil:
	case len(at.waiting) > 0:
		close(at.waiting[0])
		at.waiting = at.waiting[1:]
	case at.count == 0:
		delete(l.pending, c)
	}
}

// isRepeated reports whether a wrong password was counted before.
func (l *LoginLimiter) isRepeated(guess uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrongPasswords.Get(guess) != nil
}
