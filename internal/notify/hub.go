// SPDX-License-Identifier: Apache-2.0

// Package notify wakes goroutines that wait for a change, in this process and, through
// NewHub and Hub.Listen, on other nodes. A signal carries no data: the woken goroutine reads
// the state itself. A signal may be spurious. Across nodes it may be lost, so waiters also poll
// every few seconds.
package notify

import (
	"sync"
	"sync/atomic"
)

// Kind is the kind of a key: one of the letters below. Nodes of different releases exchange the
// letters, so they never change their meaning. It is as wide as the id because a key without
// padding hashes twice as fast.
type Kind uint64

// The kinds, with the meaning of the key's ID.
const (
	Folder          Kind = 'f' // an IMAP folder changed; folder id
	MailboxSettings Kind = 'm' // a mailbox's folders, quota or settings changed; mailbox id
	Credential      Kind = 'c' // a mailbox's cached logins are invalid; mailbox id
	Account         Kind = 'a' // an account, its keys or limits changed; account id
	Domain          Kind = 'd' // a domain changed; domain id
	Queue           Kind = 'q' // deliveries are due; 0, or a shard
	Hold            Kind = 'h' // operators hold, release or retry deliveries; 0
	SenderNotice    Kind = 'n' // delivery notices to senders are due; 0
	Event           Kind = 'e' // events need a position; 0
	Webhook         Kind = 'w' // webhook deliveries are due; webhook id, and 0 for those that no node has leased
	EventStream     Kind = 's' // events with positions can be read; account id
	QuotaWarning    Kind = 'r' // warnings about nearly full mailboxes are due; 0
	Suspension      Kind = 'x' // accounts or domains were suspended; 0
	Migration       Kind = 'i' // a migration has progressed, or was cancelled; migration id, and 0 for those that no node has leased
)

// Key identifies the object that changed.
type Key struct {
	Kind Kind
	ID   int64
}

// Limits of a hub.
const (
	shards     = 64      // so that Wake and Subscribe rarely contend for a lock
	maxPending = 1 << 16 // distinct keys queued while send is busy; more are dropped
)

// Hub connects wakers and waiters. The zero value is ready to use.
type Hub struct {
	// send, if set before the first Wake, is called with the keys that were
	// woken here, each once per call. Calls don't overlap and hold no lock, so
	// send may be slow: keys that come meanwhile wait for the next call. If
	// more than 65,536 distinct keys come meanwhile, the rest is dropped.
	send func(keys []Key)

	shards [shards]shard

	mu         sync.Mutex
	pending    map[Key]struct{}
	busy       bool
	forwarding sync.WaitGroup
}

type shard struct {
	mu   sync.RWMutex
	subs map[Key]*Subscription
	_    [32]byte // keeps the locks of neighbors off one cache line
}

// Subscription receives the signals of one key.
type Subscription struct {
	// C receives when the key was woken since the last receive. Several
	// wakes before a receive count as one.
	C <-chan struct{}

	c          chan struct{}
	hub        *Hub
	key        Key
	prev, next *Subscription // ring of the key's subscriptions, in order; guarded by the shard
	closed     atomic.Bool
}

// Subscribe subscribes to a key. To miss no change, read the state after subscribing, not before.
// The caller must close the Subscription.
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

// Wake signals all subscriptions of the key, here and on other nodes. It never
// blocks.
func (h *Hub) Wake(key Key) { h.wake(key, nil) }

// WakeOthers is Wake for a subscriber that made the change itself: it signals all subscriptions of
// the key except sub.
func (sub *Subscription) WakeOthers() { sub.hub.wake(sub.key, sub) }

func (h *Hub) wake(key Key, save *Subscription) {
	h.wakeLocal(key, save)
	if h.send != nil {
		h.forward(key)
	}
}

// Receive signals this node's subscriptions of keys that other nodes woke.
func (h *Hub) Receive(keys []Key) {
	for _, key := range keys {
		h.wakeLocal(key, nil)
	}
}

// WakeAll signals all subscriptions on this node. It is for when the connection to other nodes was
// lost and restored, as signals may have been missed.
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

// wakeRing signals all subscriptions of a key except save, in the order of subscription; sub is the
// first. So a subscriber that depends on the work of another, and subscribed after it, is not woken
// before it.
func (sub *Subscription) wakeRing(save *Subscription) {
	for first := sub; sub != nil; {
		if sub != save {
			select {
			case sub.c <- struct{}{}:
			default: // a signal is already pending
			}
		}
		if sub = sub.next; sub == first {
			return
		}
	}
}

func (h *Hub) shard(key Key) *shard {
	// Fibonacci hashing: the top bits of a multiplication mix consecutive ids.
	x := (uint64(key.ID) ^ uint64(key.Kind)<<56) * 0x9e3779b97f4a7c15
	return &h.shards[x>>58]
}

// forward queues a key for send, and starts the goroutine that calls send unless it is
// running.
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
		h.forwarding.Go(h.forwardPending)
	}
}

// Flush waits until all keys that were woken here have been sent to the other nodes.
func (h *Hub) Flush() { h.forwarding.Wait() }

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
		h.send(keys)
	}
}
