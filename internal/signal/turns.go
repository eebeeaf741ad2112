// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"context"
	"sync"
)

// Turns let each of many, such as the accounts, do only so much at a time; the
// others of theirs wait. Zero Turns are ready; they are safe for use by many
// goroutines.
type Turns[K comparable] struct {
	mu sync.Mutex
	of map[K]*turn
}

type turn struct {
	taken chan struct{} // holds a token of each who has a turn
	users int           // who have one or wait for one
}

// Take waits for one of the turns of key, of which there are each, until ctx ends.
// Whoever got it passes it on.
func (t *Turns[K]) Take(ctx context.Context, key K, each int) (pass func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[K]*turn{}
	}
	one := t.of[key]
	if one == nil {
		one = &turn{taken: make(chan struct{}, each)}
		t.of[key] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.of, key)
		}
	}
	select {
	case one.taken <- struct{}{}:
		return func() { <-one.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Users returns how many have a turn of key's or wait for one.
func (t *Turns[K]) Users(key K) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.of[key]; one != nil {
		return one.users
	}
	return 0
}
