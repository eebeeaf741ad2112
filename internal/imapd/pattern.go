// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"math/bits"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/folder"
)

// pattern is a LIST pattern: * matches anything, % anything within one level (RFC 3501 §6.3.8).
type pattern string

// newPattern joins a reference and a pattern in the form in which names are stored: NFC, with INBOX
// in capitals, also as the first level of a name.
func newPattern(reference, p string) pattern {
	p = norm.NFC.String(reference + p)
	first, rest, more := strings.Cut(p, string(separator))
	if strings.EqualFold(first, folder.Inbox) {
		p = folder.Inbox
		if more {
			p += string(separator) + rest
		}
	}
	return pattern(p)
}

// matches takes time at most proportional to the product of the lengths, for all patterns.
func (p pattern) matches(name string) bool { return p.matchesName(newPreparedName(name)) }

// preparedName is a name prepared for matching. Its sets have a bit for each position from 0 to
// len(name); position i is before name[i].
type preparedName struct {
	name     string
	sets     []uint64    // level, and the positions after each byte that occurs
	setIndex [256]uint16 // index in sets; 0 for a byte that does not occur
	level    []uint64    // positions that % reaches from the previous one
}

func newPreparedName(name string) *preparedName {
	n := len(name)/64 + 1
	s := &preparedName{name: name, sets: make([]uint64, n, 16*n)}
	for i := range len(name) {
		c, at := name[i], i+1
		if s.setIndex[c] == 0 {
			s.setIndex[c] = uint16(len(s.sets) / n)
			s.sets = append(s.sets, make([]uint64, n)...)
		}
		s.sets[int(s.setIndex[c])*n+at/64] |= 1 << (at % 64)
		if c != separator {
			s.sets[at/64] |= 1 << (at % 64)
		}
	}
	s.level = s.sets[:n]
	return s
}

// positionsAfter returns the positions after a byte, nil for none.
func (s *preparedName) positionsAfter(c byte) []uint64 {
	n := len(s.level)
	if at := int(s.setIndex[c]) * n; at > 0 {
		return s.sets[at : at+n]
	}
	return nil
}

// matchesName processes the pattern with the set of positions reached so far.
func (p pattern) matchesName(s *preparedName) bool {
	if len(p)-strings.Count(string(p), "*")-strings.Count(string(p), "%") > len(s.name) {
		return false
	}
	at := make([]uint64, len(s.level))
	at[0] = 1
	last := byte(0)
	for i := range len(p) {
		c := p[i]
		switch {
		case (c == '*' || c == '%') && (last == '*' || last == c):
			continue
		case c == '*':
			addAllAfter(at)
		case c == '%':
			addWithinLevel(at, s.level)
		case !advancePositions(at, s.positionsAfter(c)):
			return false
		}
		last = c
	}
	return at[len(s.name)/64]>>(len(s.name)%64)&1 != 0
}

// addAllAfter adds all positions after the first one in at.
func addAllAfter(at []uint64) {
	found := uint64(0)
	for i, x := range at {
		at[i] = found | x | -x // the lowest bit and all above it
		if x != 0 {
			found = ^uint64(0)
		}
	}
}

// addWithinLevel adds the positions reached from at by consecutive positions of level: an addition
// carries through each run of them.
func addWithinLevel(at, level []uint64) {
	var before, carry uint64
	for i, x := range at {
		from := (x<<1 | before>>63) & level[i]
		before = x
		var sum uint64
		sum, carry = bits.Add64(from, level[i], carry)
		at[i] |= (sum ^ level[i] | from) & level[i]
	}
}

// advancePositions moves to the next positions, limited to those of after, and reports whether any
// are left.
func advancePositions(at, after []uint64) bool {
	var before, left uint64
	for i := range after {
		x := at[i]
		at[i] = (x<<1 | before>>63) & after[i]
		before = x
		left |= at[i]
	}
	return left != 0
}
