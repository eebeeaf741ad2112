// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Range is Lo to Hi, both included, in either order.
type Range struct{ Lo, Hi uint32 }

// AppendUID appends uid, which is higher than all UIDs in ranges.
func AppendUID(ranges []Range, uid uint32) []Range {
	if last := len(ranges) - 1; last >= 0 && ranges[last].Hi+1 == uid {
		ranges[last].Hi = uid
		return ranges
	}
	return append(ranges, Range{uid, uid})
}

// FormatRanges returns ranges as the log stores them: 1:5,9.
func FormatRanges(ranges []Range) string {
	var b []byte
	for i, r := range ranges {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(r.Lo), 10)
		if r.Hi != r.Lo {
			b = append(b, ':')
			b = strconv.AppendUint(b, uint64(r.Hi), 10)
		}
	}
	return string(b)
}

// ParseRanges parses the output of FormatRanges and appends it to ranges.
func ParseRanges(ranges []Range, text string) ([]Range, error) {
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, isRange := strings.Cut(part, ":")
		if !isRange {
			hi = lo
		}
		a, errLo := strconv.ParseUint(lo, 10, 32)
		b, errHi := strconv.ParseUint(hi, 10, 32)
		if errLo != nil || errHi != nil || a > b {
			return nil, fmt.Errorf("the change log holds %q, which is no UID set", part)
		}
		ranges = append(ranges, Range{uint32(a), uint32(b)})
	}
	return ranges, nil
}

// NormalizeRanges sorts ranges and joins those that overlap or touch. It modifies its argument.
func NormalizeRanges(ranges []Range) []Range {
	for i, r := range ranges {
		if r.Lo > r.Hi {
			ranges[i] = Range{r.Hi, r.Lo}
		}
	}
	slices.SortFunc(ranges, func(a, b Range) int { return int(int64(a.Lo) - int64(b.Lo)) })
	var joined []Range
	for _, r := range ranges {
		if last := len(joined) - 1; last >= 0 && uint64(r.Lo) <= uint64(joined[last].Hi)+1 {
			joined[last].Hi = max(joined[last].Hi, r.Hi)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// CoarsenRanges joins the closest of the ranges, which are normalized, until there are at most most.
func CoarsenRanges(ranges []Range, most int) []Range {
	for gap := uint64(4); len(ranges) > most; gap *= 2 {
		joined := []Range{ranges[0]}
		for _, r := range ranges[1:] {
			if last := &joined[len(joined)-1]; uint64(r.Lo)-uint64(last.Hi) <= gap {
				last.Hi = r.Hi
			} else {
				joined = append(joined, r)
			}
		}
		ranges = joined
	}
	return ranges
}

// SubtractRanges returns ranges without gone; both are normalized.
func SubtractRanges(ranges, gone []Range) (left []Range) {
	for _, r := range ranges {
		lo := uint64(r.Lo)
		for len(gone) > 0 && gone[0].Hi < r.Lo {
			gone = gone[1:]
		}
		for i := 0; i < len(gone) && gone[i].Lo <= r.Hi; i++ {
			if uint64(gone[i].Lo) > lo {
				left = append(left, Range{uint32(lo), gone[i].Lo - 1})
			}
			lo = uint64(gone[i].Hi) + 1
		}
		if lo <= uint64(r.Hi) {
			left = append(left, Range{uint32(lo), r.Hi})
		}
	}
	return left
}

// IntersectRanges returns the UIDs in both of two normalized sets.
func IntersectRanges(a, b []Range) (both []Range) {
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].Lo, b[0].Lo), min(a[0].Hi, b[0].Hi); lo <= hi {
			both = append(both, Range{lo, hi})
		}
		if a[0].Hi < b[0].Hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// ContainsUID reports whether normalized ranges contain a UID.
func ContainsUID(ranges []Range, uid uint32) bool {
	_, found := slices.BinarySearchFunc(ranges, uid, func(r Range, uid uint32) int {
		switch {
		case r.Hi < uid:
			return -1
		case r.Lo > uid:
			return 1
		}
		return 0
	})
	return found
}

// Span is a run of consecutive messages: no other message of the folder has a UID between Lo and Hi.
type Span struct {
	Range
	N int // number of messages
}

// SpanBuilder groups messages, given by index and UID in ascending order, into spans.
type SpanBuilder struct {
	Spans []Span
	next  int
}

// Add adds the message with an index and a UID.
func (s *SpanBuilder) Add(index int, uid uint32) {
	if last := len(s.Spans) - 1; last >= 0 && s.next == index {
		s.Spans[last].Hi = uid
		s.Spans[last].N++
	} else {
		s.Spans = append(s.Spans, Span{Range{uid, uid}, 1})
	}
	s.next = index + 1
}

// Ranges returns the UIDs of the spans.
func (s *SpanBuilder) Ranges() []Range {
	ranges := make([]Range, len(s.Spans))
	for i, r := range s.Spans {
		ranges[i] = r.Range
	}
	return ranges
}
