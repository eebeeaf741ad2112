// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// Requester identifies the cause of a hash. Slots are shared fairly between networks, and between
// targets.
type Requester struct {
	// Networks are the client's networks, from narrow to wide, as ratelimit.Networks
	// returns them. If empty, the request is not limited by network.
	Networks []netip.Prefix
	// Target is the owner of the password: an address in its normal form, or
	// "account " and an id. If "", the request is not limited by target.
	Target string
}

const (
	maxGroupQueue = 200  // waiting requests of one network or one target
	maxQueue      = 4096 // waiting requests in total
	// usageHalvingInterval is the number of hashes after which the usage of each group is
	// halved. So a flood is forgotten, and groups without usage take no memory.
	usageHalvingInterval = 256
	queueRetryAfter      = 5 * time.Second
)

// slotQueue is a fair queue for the processors that hash passwords. A request belongs to up to four
// groups: the client's network, its target, the wider network and the target's domain. The first
// two may only hold a share of the slots, so that another client finds a free one. A free slot goes
// to the request whose heaviest group used slots least. So a flood from one network, against one
// address or against one domain waits behind all other requests.
type slotQueue struct {
	mu       sync.Mutex
	free     int
	maxShare int // maximum slots of one network or one target
	groups   map[groupKey]*group
	queue    []*waiter // in the order of arrival
	grants   int       // number of grants since usage was halved
}

// groupKey identifies a group: a network, or the name of a target or domain.
type groupKey struct {
	network netip.Prefix
	name    string
}

// group counts the requests of a network, target or domain.
type group struct {
	running, waiting int
	usage            int // slots used recently
}

// The groups of a waiter.
const (
	groupNetwork = iota
	groupTarget
	groupWideNetwork
	groupDomain
	groupCount
	// limitedGroups is the number of groups with a share; those after them only decide the
	// order. Since these represent many people, their usage counts an eighth.
	limitedGroups = groupWideNetwork
	narrowWeight  = 8
)

// waiter is a request for a slot.
type waiter struct {
	keys   [groupCount]groupKey
	groups [groupCount]*group // nil if not in that group
	ready  chan struct{}      // closed when the request gets a slot, or is dropped
	err    error              // why the request was dropped
}

func newSlots(n int) *slotQueue {
	return &slotQueue{free: n, maxShare: max(1, n/2), groups: map[groupKey]*group{}}
}

// acquire waits for a slot. The caller returns it with release. It returns a fault.RateLimited when
// too many requests wait already.
func (s *slotQueue) acquire(ctx context.Context, by Requester) (release func(), err error) {
	w, err := s.enqueue(by)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if s.dequeue(w) {
			return nil, fmt.Errorf("waiting to hash a password: %w", ctx.Err())
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return func() { s.release(w) }, nil
}

// enqueue adds a request to the queue, and grants the free slots.
func (s *slotQueue) enqueue(by Requester) (*waiter, error) {
	w := &waiter{ready: make(chan struct{})}
	if len(by.Networks) > 0 {
		w.keys[groupNetwork].network = by.Networks[0]
		w.keys[groupWideNetwork].network = by.Networks[len(by.Networks)-1]
	}
	w.keys[groupTarget].name = by.Target
	if at := strings.LastIndexByte(by.Target, '@'); at >= 0 {
		w.keys[groupDomain].name = by.Target[at+1:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, key := range w.keys {
		if g := s.groups[key]; i < limitedGroups && g != nil && g.waiting >= maxGroupQueue {
			return nil, tooManyLoginsError()
		}
	}
	for i, key := range w.keys {
		if key == (groupKey{}) || slices.Contains(w.keys[:i], key) {
			continue
		}
		if s.groups[key] == nil {
			s.groups[key] = &group{}
		}
		w.groups[i] = s.groups[key]
		w.groups[i].waiting++
	}
	s.queue = append(s.queue, w)
	if s.grant(); len(s.queue) > maxQueue {
		s.dropLast()
	}
	return w, nil
}

// dropLast drops the request that would be the last to get a slot.
func (s *slotQueue) dropLast() {
	last := 0
	for i, w := range s.queue {
		if !w.before(s.queue[last]) {
			last = i
		}
	}
	w := s.queue[last]
	w.err = tooManyLoginsError()
	s.remove(last)
	close(w.ready)
}

// dequeue removes a request from the queue, and reports whether it was still there.
func (s *slotQueue) dequeue(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, w)
	if i < 0 {
		return false
	}
	s.remove(i)
	return true
}

func (s *slotQueue) release(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	for i, g := range w.groups {
		if g != nil {
			g.running--
			s.deleteIfIdle(w.keys[i], g)
		}
	}
	s.grant()
}

// grant gives free slots to the requests whose groups used them least.
func (s *slotQueue) grant() {
	for s.free > 0 {
		next := -1
		for i, w := range s.queue {
			if w.underShare(s.maxShare) && (next < 0 || w.before(s.queue[next])) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.queue[next]
		s.free--
		for _, g := range w.groups {
			if g != nil {
				g.running++
				g.usage++
			}
		}
		s.remove(next)
		close(w.ready)
		if s.grants++; s.grants == usageHalvingInterval {
			s.grants = 0
			for key, g := range s.groups {
				g.usage /= 2
				s.deleteIfIdle(key, g)
			}
		}
	}
}

// remove removes the i-th request from the queue.
func (s *slotQueue) remove(i int) {
	w := s.queue[i]
	s.queue = slices.Delete(s.queue, i, i+1)
	for i, g := range w.groups {
		if g != nil {
			g.waiting--
			s.deleteIfIdle(w.keys[i], g)
		}
	}
}

// deleteIfIdle deletes a group without requests and usage.
func (s *slotQueue) deleteIfIdle(key groupKey, g *group) {
	if *g == (group{}) {
		delete(s.groups, key)
	}
}

// underShare reports whether the request's network and target hold less than their
// share.
func (w *waiter) underShare(share int) bool {
	return !slices.ContainsFunc(w.groups[:limitedGroups], func(g *group) bool { return g != nil && g.running >= share })
}

// before reports whether the request's groups used slots less than those of v. It compares the
// heaviest group of each first.
func (w *waiter) before(v *waiter) bool {
	a, b := w.usage(), v.usage()
	return slices.Compare(a[:], b[:]) < 0
}

func (w *waiter) usage() (used [groupCount]int) {
	for i, g := range w.groups {
		switch {
		case g == nil:
		case i < limitedGroups:
			used[i] = narrowWeight * g.usage
		default:
			used[i] = g.usage
		}
	}
	slices.SortFunc(used[:], func(a, b int) int { return cmp.Compare(b, a) })
	return used
}

func tooManyLoginsError() error {
	err := fault.New(fault.RateLimited, "too_many_logins", "Too many passwords are being checked. Try again in a few seconds.")
	err.RetryAfter = queueRetryAfter
	return err
}
