// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"runtime"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// turns let each account fill in only so many templates at a time. What makes the
// text of a hostile html of 1 MB takes seconds of a processor and much memory: a
// hundred of one account at once would be felt by all others.
type turns struct {
	mu sync.Mutex
	of map[db.ID]*turn
}

type turn struct {
	taken chan struct{} // holds a token of each who has a turn
	users int           // who have one or wait for one
}

// ofOne is how many turns an account has: with them it gets half of the processors at most.
func ofOne() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// take waits for a turn of the account's, until ctx ends. Whoever got it passes it on.
func (t *turns) take(ctx context.Context, account db.ID) (pass func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[db.ID]*turn{}
	}
	one := t.of[account]
	if one == nil {
		one = &turn{taken: make(chan struct{}, ofOne())}
		t.of[account] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.of, account)
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
