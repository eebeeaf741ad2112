// SPDX-License-Identifier: Apache-2.0

// Package notify wakes whoever waits for something to change, in this process
// and, through two funcs, on other nodes. A signal carries no news: the woken
// one looks for itself. A signal may be spurious; across nodes it may be lost,
// so that a waiter also looks every few seconds.
package notify

import (
	"sync"
	"sync/atomic"
)

// Kind is what a key is about: one of the letters below, which go over the
// wire between nodes of different releases and never change their meaning. It
// is as wide as the id since a key without padding hashes twice as fast.
type Kind uint64

// The kinds, with what the key's ID is.
const (
	Folder       Kind = 'f' // an IMAP folder changed; folder id
	Mailbox      Kind = 'm' // a mailbox's folders, quota or settings changed; mailbox id
	Credential   Kind = 'c' // cached logins of a mailbox are to be dropped; mailbox id
	Account      Kind = 'a' // an account, its keys or limits changed; account id
	Domain       Kind = 'd' // a domain changed; domain id
	Queue        Kind = 'q' // deliveries are waiting; 0, or a shard
	Hold         Kind = 'h' // operators hold deliveries, release them, or want them tried; 0
	SenderNotice Kind = 'n' // senders are to be told of deliveries; 0
	Event        Kind = 'e' // events wait to be numbered; 0
	Webhook      Kind = 'w' // webhook deliveries are due; webhook id, and 0 for those that no node has in hand
	EventStream  Kind = 's' // numbered events are there to be read; account id
	QuotaWarning Kind = 'r' // owners are to be told that their mailboxes are nearly full; 0
	Suspension   Kind = 'x' // accounts or domains were suspended; 0
	Migration    Kind = 'i' // a migration has got on, or was cancelled; migration id, and 0 for those that no node has in hand
)

// Key names what changed.
type Key struct {
	Kind Kind
	ID   int64
}

// Limits of a hub.
const (
	shards     = 64      // so that waking and subscribing seldom meet in a lock
	maxPending = 1 << 16 // distinct keys kept for Forward while it is busy; more are dropped
)

// Hub connects wakers and waiters. The zero value is ready to use.
type Hub struct {
	// Forward, if set before the first Wake, is told the keys that were woken
	// here, each once per call, one call at a time, without a lock held, so
	// that it may take its time: what comes meanwhile waits for the next call.
	// If more than 65,536 distinct keys come meanwhile, the rest is dropped.
	Forward func(keys []Key)

	shards [shards]shard

	mu      sync.Mutex
	pending map[Key]struct{}
	busy    bool
}

type shard struct {
	mu   sync.RWMutex
	subs map[Key]*Subscription
	_    [32]byte // keeps neighbours' locks off one cache line
}

// Subscription is one subscription.
type Subscription struct {
	// C receives when the key was woken since the last receive. Wakes that
	// come before a receive are one.
	C <-chan struct{}

	c          chan struct{}
	hub        *Hub
	key        Key
	prev, next *Subscription // the key's subscriptions as a ring, in order; guarded by the shard
	closed     atomic.Bool
}

// Subscribe begins to wait for a key. Look at the state after subscribing,
// not before, and nothing is missed. The caller must Close the Subscription.
func (h *Hub) Subscribe(key Key) *Subscription {
	c := make(chan struct{}, 1)
	sub := &Subscription{C: c, c: c, hub: h, key: key}
	s := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = make(map[Key]*Subscription)
	}
	first := s.subs[key]
	if first == nil {
		s.subs[key], sub.prev, sub.next = sub, sub, sub
		return sub
	}
	sub.prev, sub.next = first.prev, first
	sub.prev.next, first.prev = sub, sub
	return sub
}

// Close ends the subscription. C is not closed, but receives nothing new. It
// may be called more than once.
func (sub *Subscription) Close() {
	if sub.closed.Swap(true) {
		return
	}
	s := sub.hub.shard(sub.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.prev.next, sub.next.prev = sub.next, sub.prev
	switch {
	case sub.next == sub:
		delete(s.subs, sub.key)
	case s.subs[sub.key] == sub:
		s.subs[sub.key] = sub.next
	}
	sub.prev, sub.next = nil, nil
}

// Wake signals everybody who waits for the key, here and through Forward on
// other nodes. It never blocks.
func (h *Hub) Wake(key Key) { h.wake(key, nil) }

// WakeOthers is Wake for who has changed the thing himself and knows of it: it
// signals all that wait for the key but sub.
func (sub *Subscription) WakeOthers() { sub.hub.wake(sub.key, sub) }

func (h *Hub) wake(key Key, save *Subscription) {
	h.wakeLocal(key, save)
	if h.Forward != nil {
		h.forward(key)
	}
}

// Receive signals those who wait here for keys that other nodes woke.
func (h *Hub) Receive(keys []Key) {
	for _, key := range keys {
		h.wakeLocal(key, nil)
	}
}

// WakeAll signals everybody here: after the connection to other nodes was
// lost and came back, when nobody knows what was missed.
func (h *Hub) WakeAll() {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.RLock()
		for _, sub := range s.subs {
			sub.wakeRing(nil)
		}
		s.mu.RUnlock()
	}
}

func (h *Hub) wakeLocal(key Key, save *Subscription) {
	s := h.shard(key)
	s.mu.RLock()
	s.subs[key].wakeRing(save)
	s.mu.RUnlock()
}

// wakeRing signals all subscriptions of a key, of which sub is the first, save
// one, in the order in which they began: who stands on what another finds out,
// and subscribed after it, is not woken before it.
func (sub *Subscription) wakeRing(save *Subscription) {
	for first := sub; sub != nil; {
		if sub != save {
			select {
			case sub.c <- struct{}{}:
			default: // a signal is waiting already
			}
		}
		if sub = sub.next; sub == first {
			return
		}
	}
}

func (h *Hub) shard(key Key) *shard {
	// Fibonacci hashing: the top bits of a multiplication mix neighbouring ids.
	x := (uint64(key.ID) ^ uint64(key.Kind)<<56) * 0x9e3779b97f4a7c15
	return &h.shards[x>>58]
}

// forward notes a key, and starts the one goroutine that empties what is
// noted unless it runs already.
func (h *Hub) forward(key Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending == nil {
		h.pending = make(map[Key]struct{})
	}
	if len(h.pending) < maxPending {
		h.pending[key] = struct{}{}
	}
	if !h.busy {
		h.busy = true
		go h.forwardPending()
	}
}

func (h *Hub) forwardPending() {
	for {
		h.mu.Lock()
		if len(h.pending) == 0 {
			h.busy = false
			h.mu.Unlock()
			return
		}
		keys := make([]Key, 0, len(h.pending))
		for key := range h.pending {
			keys = append(keys, key)
		}
		h.pending = nil
		h.mu.Unlock()
		h.Forward(keys)
	}
}
