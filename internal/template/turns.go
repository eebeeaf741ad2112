// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// turns let each account fill in one template at a time. What makes the text of a
// hostile html of 1 MB takes seconds of a processor and much memory: a hundred of
// one account at once would be felt by all others.
type turns struct {
	mu sync.Mutex
	of map[db.ID]*turn
}

type turn struct {
	free  chan struct{} // holds a token while nobody has the turn
	users int           // who have it or wait for it
}

// take waits for the account's turn, until ctx ends. Whoever got it passes it on.
func (t *turns) take(ctx context.Context, account db.ID) (pass func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[db.ID]*turn{}
	}
	one := t.of[account]
	if one == nil {
		one = &turn{free: make(chan struct{}, 1)}
		one.free <- struct{}{}
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
	case <-one.free:
		return func() { one.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
