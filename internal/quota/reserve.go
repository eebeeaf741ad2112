// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"time"
)

// Reservation is the quota that a send reserved, until the send is accepted. The zero Reservation
// is empty.
type Reservation struct {
	account  *accountState
	counters []counter
}

// Reserve takes messages and their recipients from the limits, all or nothing. It returns a
// fault.RateLimited with RetryAfter if the limits don't allow them now, and a fault.Denied if they
// are more than a whole limit. If the messages are then not accepted, the caller must call Release.
//
// A message counts once, and once more for each of its recipients, including suppressed and
// simulator addresses.
func (l *Limiter) Reserve(ctx context.Context, w Consumer, sends, recipients int) (Reservation, error) {
	a, err := l.load(ctx, w.Account)
	if err != nil {
		return Reservation{}, err
	}
	of := amounts{int64(sends), int64(sends), int64(recipients)}
	now := l.Now()
	a.mu.Lock()
	all := a.counters(w, now, of)
	err = checkPossible(all)
	had := err == nil && reserveAll(all, now)
	a.mu.Unlock()
	if had || err != nil {
		return Reservation{a, all}, err
	}
	a.drawMu.Lock()
	defer a.drawMu.Unlock()
	all, err = l.draw(ctx, a, w, of)
	return Reservation{a, all}, err
}

// reserveAll reserves everything from the node's unspent quota, or nothing. accountState.mu is
// held.
func reserveAll(all []counter, now time.Time) bool {
	for i := range all {
		if all[i].available() < all[i].need {
			return false
		}
	}
	for i := range all {
		all[i].reserve(now)
	}
	return true
}

// reserve takes what the node has left. accountState.mu is held.
func (c *counter) reserve(now time.Time) {
	take := min(c.available(), c.need)
	c.unspent -= take
	c.reserved += take
	c.need -= take
	if take > 0 {
		c.usedAt = now
	}
}

// Release returns the quota of messages that were not accepted. It may be called more than once.
func (s *Reservation) Release() {
	if s.account == nil {
		return
	}
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	releaseAll(s.counters)
}

// releaseAll returns the reserved quota of the counters to their pools, unless the window is over.
// accountState.mu is held.
func releaseAll(all []counter) {
	for i := range all {
		c := &all[i]
		if c.pool.start.Equal(c.start) {
			c.unspent += c.reserved
		}
		c.reserved = 0
	}
}

// CheckSend returns the likely error of Reserve, without reserving anything, for listeners that
// reject early.
func (l *Limiter) CheckSend(ctx context.Context, w Consumer, sends, recipients int) error {
	a, err := l.load(ctx, w.Account)
	if err != nil {
		return err
	}
	of := amounts{int64(sends), int64(sends), int64(recipients)}
	now := l.Now()
	look := func() (err error, sure bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		all := a.counters(w, now, of)
		sure = true
		if err := checkPossible(all); err != nil {
			return err, true
		}
		for i := range all {
			c := &all[i]
			if c.available() >= c.need {
				continue
			}
			if c.remaining() < c.need {
				err = c.exhaustedError(now)
			}
			if c.pool.readAt.IsZero() || err != nil && now.Sub(c.pool.readAt) >= recheckAfter {
				sure = false
			}
		}
		return err, sure
	}
	err, sure := look()
	if !sure {
		if err := l.readWindows(ctx, a, w, now); err != nil {
			return err
		}
		err, _ = look()
	}
	return err
}

// recheckAfter is how long an exhausted limit is considered exhausted without a query: other nodes
// may have returned quota since.
const recheckAfter = time.Second
