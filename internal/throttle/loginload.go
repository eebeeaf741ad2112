// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"context"
	"hash/maphash"
	"slices"
)

// load is what is under way at a counter on this node.
type load struct {
	tries   int64
	waiting []chan struct{} // the first of which is closed when a try ends
}

// number is where counted notes the failures of a counter.
func (l *LoginLimiter) number(c counter) int {
	return int(maphash.Comparable(l.seed, c) % uint64(len(l.counted)))
}

// countedAt returns what this node has counted so far at the counters of a try.
func (l *LoginLimiter) countedAt(t *try) (sum uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.countedNow(t)
}

func (l *LoginLimiter) countedNow(t *try) (sum uint64) {
	for _, g := range t.every() {
		sum += l.counted[l.number(g.counter)]
	}
	return sum
}

// reserve takes places for a try, all or none. It returns false when the rows are
// to be read again: after it has waited, or when this node has counted a failure
// since the rows were read. So a failure is either in the rows, or its try still
// has its place. The same wrong password again needs no place.
func (l *LoginLimiter) reserve(ctx context.Context, t *try, before uint64, places []place) (placed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.countedNow(t) != before {
		return false, nil
	}
	if l.wrong.find(t.guess) != nil {
		places = nil
	}
	for _, p := range places {
		if at := l.loads[p.counter]; at != nil && at.tries >= p.room {
			if t.turn != p.counter {
				l.endTurn(t)
			}
			return false, l.wait(ctx, t, p.counter)
		}
	}
	for _, p := range places {
		at := l.loads[p.counter]
		if at == nil {
			at = &load{}
			l.loads[p.counter] = at
		}
		at.tries++
		if t.turn == p.counter {
			t.turn = counter{}
		}
	}
	t.held = places
	l.endTurn(t)
	return true, nil
}

// wait waits until a try at a counter ends. If too many wait already, or ctx ends,
// it returns fault.Limited. l.mu is held, but not meanwhile.
func (l *LoginLimiter) wait(ctx context.Context, t *try, c counter) error {
	at := l.loads[c]
	if len(at.waiting) >= maxWaiting {
		return tooMany(0)
	}
	turn := make(chan struct{})
	at.waiting = append(at.waiting, turn)
	t.turn = counter{}
	l.mu.Unlock()
	var err error
	select {
	case <-turn:
	case <-ctx.Done():
		err = tooMany(0)
	}
	l.mu.Lock()
	if at = l.loads[c]; at != nil && slices.Contains(at.waiting, turn) {
		at.waiting = slices.DeleteFunc(at.waiting, func(one chan struct{}) bool { return one == turn })
		return err
	}
	t.turn = c
	return err
}

// release gives up the places of a try.
func (l *LoginLimiter) release(t *try) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range t.held {
		l.loads[p.counter].tries--
		l.next(p.counter)
	}
	t.held = nil
	l.endTurn(t)
}

// endTurn lets the next try have a turn that this one did not use; l.mu is held.
func (l *LoginLimiter) endTurn(t *try) {
	if t.turn != (counter{}) {
		l.next(t.turn)
		t.turn = counter{}
	}
}

// next wakes the first try that waits at a counter; l.mu is held.
func (l *LoginLimiter) next(c counter) {
	at := l.loads[c]
	switch {
	case at == nil:
	case len(at.waiting) > 0:
		close(at.waiting[0])
		at.waiting = at.waiting[1:]
	case at.tries == 0:
		delete(l.loads, c)
	}
}

// repeated reports whether a wrong password was counted before.
func (l *LoginLimiter) repeated(guess uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong.find(guess) != nil
}
