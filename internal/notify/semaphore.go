// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"sync"
)

// KeyedSemaphore limits the concurrent operations of each key (of each account, for example). A
// zero KeyedSemaphore is ready to use, and safe for use by many goroutines.
type KeyedSemaphore[K comparable] struct {
	mu    sync.Mutex
	byKey map[K]*semaphore
}

type semaphore struct {
	tokens chan struct{} // holds a token of each holder
	refs   int           // number of holders and waiters
}

// Acquire waits for one of the key's slots, of which there are each, until ctx ends. The caller
// releases it with pass.
func (t *KeyedSemaphore[K]) Acquire(ctx context.Context, key K, each int) (pass func(), err error) {
	t.mu.Lock()
	if t.byKey == nil {
		t.byKey = map[K]*semaphore{}
	}
	one := t.byKey[key]
	if one == nil {
		one = &semaphore{tokens: make(chan struct{}, each)}
		t.byKey[key] = one
	}
	one.refs++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.refs--; one.refs == 0 {
			delete(t.byKey, key)
		}
	}
	select {
	case one.tokens <- struct{}{}:
		return func() { <-one.tokens; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// Count returns the number of holders and waiters of key.
func (t *KeyedSemaphore[K]) Count(key K) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.byKey[key]; one != nil {
		return one.refs
	}
	return 0
}
