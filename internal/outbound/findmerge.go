// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// Sizes of what is read of a source at once: it grows while one id after the
// other is wanted, and is small again after a leap.
const (
	firstRead = 64
	mostRead  = 1000 // a bound of db.Reader
)

// intersection goes through the ids that several sources have in common, in the
// direction of the search. A source that has few leads; the others leap to
// what it has.
type intersection struct {
	search  *search
	streams []*stream
	ended   bool // a source has no more
}

// stream is a source that is being read.
type stream struct {
	source source
	lo, hi db.ID // what was not read yet lies between them
	size   int
	ahead  []db.ID // what was read and is not passed yet
}

func (x *search) intersect(sources []source, lo, hi db.ID) *intersection {
	n := &intersection{search: x}
	for _, s := range sources {
		n.streams = append(n.streams, &stream{source: s, lo: lo, hi: hi, size: firstRead})
	}
	return n
}

// next returns up to limit common ids. whole says that there are no more; with
// fewer than limit, and not whole, no more may be read.
func (n *intersection) next(ctx context.Context, limit int) (ids []db.ID, whole bool, err error) {
	for len(ids) < limit {
		head, ok, err := n.common(ctx)
		if err != nil || !ok {
			return ids, n.ended, err
		}
		ids = append(ids, head)
		n.streams[0].ahead = n.streams[0].ahead[1:]
	}
	return ids, false, nil
}

// common brings all streams to the same id. ok is false when there is none left,
// or no more may be read.
func (n *intersection) common(ctx context.Context) (head db.ID, ok bool, err error) {
	for agreed := 0; agreed < len(n.streams); {
		agreed = 0
		for _, s := range n.streams {
			if ok, err = n.seek(ctx, s, head); err != nil || !ok {
				return 0, false, err
			}
			if s.ahead[0] == head {
				agreed++
			}
			head = s.ahead[0]
		}
	}
	return head, true, nil
}

// seek passes what comes before an id, 0 for nothing.
func (n *intersection) seek(ctx context.Context, s *stream, to db.ID) (ok bool, err error) {
	x := n.search
	if to != 0 {
		for len(s.ahead) > 0 && x.compare(s.ahead[0], to) < 0 {
			s.ahead = s.ahead[1:]
		}
	}
	if len(s.ahead) > 0 {
		return true, nil
	}
	if to != 0 {
		leap := false
		if x.up && to-1 > s.lo {
			s.lo, leap = to-1, true
		}
		if !x.up && to+1 < s.hi {
			s.hi, leap = to+1, true
		}
		if leap {
			s.size = firstRead
		}
	}
	if x.reads <= 0 {
		return false, nil
	}
	if s.ahead, err = s.source(ctx, s.lo, s.hi, s.size); err != nil {
		return false, err
	}
	x.reads -= max(len(s.ahead), firstRead/4)
	if len(s.ahead) == 0 {
		n.ended = true
		return false, nil
	}
	last := s.ahead[len(s.ahead)-1]
	if x.up {
		s.lo = last
	} else {
		s.hi = last
	}
	s.size = min(2*s.size, mostRead)
	return true, nil
}

// at is the last id that all streams have passed.
func (n *intersection) at() db.ID {
	first := n.streams[0]
	if len(first.ahead) > 0 { // not passed: it may still be wanted
		if n.search.up {
			return first.ahead[0] - 1
		}
		return first.ahead[0] + 1
	}
	if n.search.up {
		return first.lo
	}
	return first.hi
}
