// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"time"
)

// Spent is what a send took, until it is known to be accepted. The zero Spent is
// nothing.
type Spent struct {
	account *account
	of      []counter
}

// Send takes messages and their recipients from the limits, all or nothing. If
// they don't allow it now it is a fault.Limited, with when to come again; what
// is more than a limit allows at all is a fault.Denied. If the messages are then
// not accepted the caller gives back.
//
// A message counts once, and once more for each of its recipients, whoever they
// are: also the suppressed, and those of the simulator.
func (l *Limits) Send(ctx context.Context, w Who, sends, recipients int) (Spent, error) {
	a, err := l.account(ctx, w.Account)
	if err != nil {
		return Spent{}, err
	}
	of := amounts{int64(sends), int64(sends), int64(recipients)}
	now := l.Now()
	a.mu.Lock()
	all := a.counters(w, now, of)
	err = impossible(all)
	had := err == nil && spend(all, now)
	a.mu.Unlock()
	if had || err != nil {
		return Spent{a, all}, err
	}
	a.drawing.Lock()
	defer a.drawing.Unlock()
	all, err = l.draw(ctx, a, w, of)
	return Spent{a, all}, err
}

// spend takes everything from what the node has, or nothing. account.mu is held.
func spend(all []counter, now time.Time) bool {
	for i := range all {
		if all[i].had() < all[i].need {
			return false
		}
	}
	for i := range all {
		all[i].reserve(now)
	}
	return true
}

// reserve takes what the node has. account.mu is held.
func (c *counter) reserve(now time.Time) {
	take := min(c.had(), c.need)
	c.spare -= take
	c.mine += take
	c.need -= take
	if take > 0 {
		c.used = now
	}
}

// GiveBack returns what was taken for messages that were not accepted. It may be
// called more than once.
func (s *Spent) GiveBack() {
	if s.account == nil {
		return
	}
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	giveBack(s.of)
}

// giveBack returns what the counters have to their pools, unless the window is
// over. account.mu is held.
func giveBack(all []counter) {
	for i := range all {
		c := &all[i]
		if c.pool.start.Equal(c.start) {
			c.spare += c.mine
		}
		c.mine = 0
	}
}

// Check says what Send would say, as far as can be told without taking
// anything: for doors that rather refuse early.
func (l *Limits) Check(ctx context.Context, w Who, sends, recipients int) error {
	a, err := l.account(ctx, w.Account)
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
		if err := impossible(all); err != nil {
			return err, true
		}
		for i := range all {
			c := &all[i]
			if c.had() >= c.need {
				continue
			}
			if c.left() < c.need {
				err = c.exhausted(now)
			}
			if c.pool.read.IsZero() || err != nil && now.Sub(c.pool.read) >= again {
				sure = false
			}
		}
		return err, sure
	}
	err, sure := look()
	if !sure {
		if err := l.read(ctx, a, w, now); err != nil {
			return err
		}
		err, _ = look()
	}
	return err
}

// again is how long a limit that was found used up is taken to be so without
// asking: others may have given back since.
const again = time.Second
