// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
)

// Number of ids read from a source at once. It grows while ids are read in sequence and is reset
// after a skip.
const (
	minReadSize = 64
	maxReadSize = 1000 // limit of db.Reader
)

// intersection iterates over the ids that several sources have in common, in the direction of the
// search. The source with the fewest ids leads; the others skip to its position.
type intersection struct {
	search    *search
	streams   []*sourceCursor
	exhausted bool // a source has no more ids
}

// sourceCursor is the read position in a source.
type sourceCursor struct {
	source   idSource
	lo, hi   db.ID // unread ids lie between them
	readSize int
	buffer   []db.ID // ids that were read but not passed yet
}

func (x *search) newIntersection(sources []idSource, lo, hi db.ID) *intersection {
	n := &intersection{search: x}
	for _, s := range sources {
		n.streams = append(n.streams, &sourceCursor{source: s, lo: lo, hi: hi, readSize: minReadSize})
	}
	return n
}

// next returns up to limit common ids. whole reports whether there are no more. If it returns fewer
// than limit and whole is false, the limit of reads was reached.
func (n *intersection) next(ctx context.Context, limit int) (ids []db.ID, whole bool, err error) {
	for len(ids) < limit {
		head, ok, err := n.nextCommon(ctx)
		if err != nil || !ok {
			return ids, n.exhausted, err
		}
		ids = append(ids, head)
		n.streams[0].buffer = n.streams[0].buffer[1:]
	}
	return ids, false, nil
}

// nextCommon advances all streams to the same id. ok is false if there is none left, or if the
// limit of reads was reached.
func (n *intersection) nextCommon(ctx context.Context) (head db.ID, ok bool, err error) {
	for agreed := 0; agreed < len(n.streams); {
		agreed = 0
		for _, s := range n.streams {
			if ok, err = n.seek(ctx, s, head); err != nil || !ok {
				return 0, false, err
			}
			if s.buffer[0] == head {
				agreed++
			}
			head = s.buffer[0]
		}
	}
	return head, true, nil
}

// seek skips the ids before to; 0 skips nothing.
func (n *intersection) seek(ctx context.Context, s *sourceCursor, to db.ID) (ok bool, err error) {
	x := n.search
	if to != 0 {
		for len(s.buffer) > 0 && x.compare(s.buffer[0], to) < 0 {
			s.buffer = s.buffer[1:]
		}
	}
	if len(s.buffer) > 0 {
		return true, nil
	}
	if to != 0 {
		leap := false
		if x.ascending && to-1 > s.lo {
			s.lo, leap = to-1, true
		}
		if !x.ascending && to+1 < s.hi {
			s.hi, leap = to+1, true
		}
		if leap {
			s.readSize = minReadSize
		}
	}
	if x.indexReadsLeft <= 0 {
		return false, nil
	}
	if s.buffer, err = s.source(ctx, s.lo, s.hi, s.readSize); err != nil {
		return false, err
	}
	x.indexReadsLeft -= max(len(s.buffer), minReadSize/4)
	if len(s.buffer) == 0 {
		n.exhausted = true
		return false, nil
	}
	last := s.buffer[len(s.buffer)-1]
	if x.ascending {
		s.lo = last
	} else {
		s.hi = last
	}
	s.readSize = min(2*s.readSize, maxReadSize)
	return true, nil
}

// position returns the last id that all streams have passed.
func (n *intersection) position() db.ID {
	first := n.streams[0]
	if len(first.buffer) > 0 { // not passed yet: it may still match
		if n.search.ascending {
			return first.buffer[0] - 1
		}
		return first.buffer[0] + 1
	}
	if n.search.ascending {
		return first.lo
	}
	return first.hi
}
