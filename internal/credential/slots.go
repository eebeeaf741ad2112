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

// Requester is who causes a hash. Slots are shared fairly between networks, and
// between targets.
type Requester struct {
	// Networks are the client's, from narrow to wide, as throttle.Networks
	// returns them. None: it is not limited by network.
	Networks []netip.Prefix
	// Target is whose password it is: an address in its normal form, or
	// "account " and an id. "": it is not limited by target.
	Target string
}

const (
	maxLine  = 200  // hashes of one network or one target that wait
	maxLines = 4096 // hashes that wait in all
	// usageSpan is after how many hashes the usage of each group is halved, so
	// that a flood is forgotten, and groups without usage take no memory.
	usageSpan = 256
	lineRetry = 5 * time.Second
)

// slots is a fair queue for the processors that hash passwords. Requests belong
// to up to four groups: the client's network, its target, the wider network and
// the target's domain. The first two may hold only a share of the slots, so that
// a newcomer finds a free one. A free slot goes to the request whose heaviest
// group used slots least. So a flood from one network, against one address or
// against one domain waits behind everybody else.
type slots struct {
	mu     sync.Mutex
	free   int
	share  int // slots that one network or one target may hold
	groups map[groupKey]*group
	line   []*waiter // in the order in which they came
	grants int       // since usage was halved
}

// groupKey is a network, or the name of a target or domain.
type groupKey struct {
	network netip.Prefix
	name    string
}

// group counts the requests of a network, target or domain.
type group struct {
	running, waiting int
	used             int // slots it got lately
}

// The groups of a waiter.
const (
	ofNetwork = iota
	ofTarget
	ofWide
	ofDomain
	maxGroups
	// limited are the groups that are limited; those after them only decide the
	// order. Since they stand for many people, their usage counts an eighth.
	limited = ofWide
	many    = 8
)

// waiter is a request for a slot.
type waiter struct {
	keys   [maxGroups]groupKey
	groups [maxGroups]*group // nil: not in one
	ready  chan struct{}     // closed when it has a slot, or was dropped
	err    error             // why it was dropped
}

func newSlots(n int) *slots {
	return &slots{free: n, share: max(1, n/2), groups: map[groupKey]*group{}}
}

// acquire waits for a slot. The caller gives it back with release. It is
// fault.Limited when too many wait already.
func (s *slots) acquire(ctx context.Context, by Requester) (release func(), err error) {
	w, err := s.enter(by)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		if s.leave(w) {
			return nil, fmt.Errorf("waiting to hash a password: %w", ctx.Err())
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return func() { s.release(w) }, nil
}

// enter puts a request into the line, and grants the slots that are free.
func (s *slots) enter(by Requester) (*waiter, error) {
	w := &waiter{ready: make(chan struct{})}
	if len(by.Networks) > 0 {
		w.keys[ofNetwork].network = by.Networks[0]
		w.keys[ofWide].network = by.Networks[len(by.Networks)-1]
	}
	w.keys[ofTarget].name = by.Target
	if at := strings.LastIndexByte(by.Target, '@'); at >= 0 {
		w.keys[ofDomain].name = by.Target[at+1:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, key := range w.keys {
		if g := s.groups[key]; i < limited && g != nil && g.waiting >= maxLine {
			return nil, tooMany()
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
	s.line = append(s.line, w)
	if s.grant(); len(s.line) > maxLines {
		s.drop()
	}
	return w, nil
}

// drop refuses the request that would be the last to get a slot.
func (s *slots) drop() {
	last := 0
	for i, w := range s.line {
		if !w.before(s.line[last]) {
			last = i
		}
	}
	w := s.line[last]
	w.err = tooMany()
	s.remove(last)
	close(w.ready)
}

// leave takes a request out of the line, unless it has left that already.
func (s *slots) leave(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.line, w)
	if i < 0 {
		return false
	}
	s.remove(i)
	return true
}

func (s *slots) release(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	for i, g := range w.groups {
		if g != nil {
			g.running--
			s.tidy(w.keys[i], g)
		}
	}
	s.grant()
}

// grant gives free slots to the requests whose groups used them least.
func (s *slots) grant() {
	for s.free > 0 {
		next := -1
		for i, w := range s.line {
			if w.within(s.share) && (next < 0 || w.before(s.line[next])) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.line[next]
		s.free--
		for _, g := range w.groups {
			if g != nil {
				g.running++
				g.used++
			}
		}
		s.remove(next)
		close(w.ready)
		if s.grants++; s.grants == usageSpan {
			s.grants = 0
			for key, g := range s.groups {
				g.used /= 2
				s.tidy(key, g)
			}
		}
	}
}

// remove takes a request out of the line.
func (s *slots) remove(i int) {
	w := s.line[i]
	s.line = slices.Delete(s.line, i, i+1)
	for i, g := range w.groups {
		if g != nil {
			g.waiting--
			s.tidy(w.keys[i], g)
		}
	}
}

// tidy drops a group that is no longer of interest.
func (s *slots) tidy(key groupKey, g *group) {
	if *g == (group{}) {
		delete(s.groups, key)
	}
}

// within reports whether the request's network and target hold less than their
// share.
func (w *waiter) within(share int) bool {
	return !slices.ContainsFunc(w.groups[:limited], func(g *group) bool { return g != nil && g.running >= share })
}

// before reports whether the request's groups used slots less than those of v:
// the heaviest user of each is compared first.
func (w *waiter) before(v *waiter) bool {
	a, b := w.usage(), v.usage()
	return slices.Compare(a[:], b[:]) < 0
}

func (w *waiter) usage() (used [maxGroups]int) {
	for i, g := range w.groups {
		switch {
		case g == nil:
		case i < limited:
			used[i] = many * g.used
		default:
			used[i] = g.used
		}
	}
	slices.SortFunc(used[:], func(a, b int) int { return cmp.Compare(b, a) })
	return used
}

func tooMany() error {
	err := fault.New(fault.Limited, "too_many_logins", "Too many passwords are being checked. Try again in a few seconds.")
	err.Retry = lineRetry
	return err
}
