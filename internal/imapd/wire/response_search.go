// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"iter"
	"slices"
)

// SearchResult is * SEARCH with the numbers found (RFC 3501 §7.2.5). A hasModSeq
// other than 0 is the highest of those messages, for a search that used MODSEQ
// (RFC 7162 §3.1.5).
func (w *Writer) SearchResult(found Set, modSeq uint64) {
	w.foundNumbers("* SEARCH", found.All(), modSeq)
}

// SortResult is * SORT with the numbers in order.
func (w *Writer) SortResult(found []uint32, modSeq uint64) {
	w.foundNumbers("* SORT", slices.Values(found), modSeq)
}

func (w *Writer) foundNumbers(start string, found iter.Seq[uint32], modSeq uint64) {
	w.Raw(start)
	empty := true
	for n := range found {
		w.SP().Number(uint64(n))
		empty = false
	}
	if modSeq != 0 && !empty {
		w.Raw(" (MODSEQ ").Number(modSeq).Raw(")")
	}
	w.CRLF()
}

// ESearch is * ESEARCH for the search command with this tag (RFC 9051 §7.3.4):
// of the normal set found it writes what want asks for.
func (w *Writer) ESearch(tag string, uid bool, want SearchOptions, found Set, modSeq uint64) {
	result := esearchResult{all: found, count: found.Count(), modSeq: modSeq}
	if len(found) > 0 {
		result.first, result.last = found[0].Lo, found[len(found)-1].Hi
	}
	if want.Return&ReturnPartial != 0 {
		result.page = want.Partial.Slice(found)
	}
	w.esearch(tag, uid, want, result)
}

// ESort is * ESEARCH for a SORT command: ESearch of messages that are in an
// order of their own (RFC 5267 §3).
func (w *Writer) ESort(tag string, uid bool, want SearchOptions, found []uint32, modSeq uint64) {
	result := esearchResult{count: uint64(len(found)), modSeq: modSeq}
	if len(found) > 0 {
		result.first, result.last = found[0], found[len(found)-1]
	}
	if want.Return&ReturnAll != 0 {
		result.all = orderedSet(found)
	}
	if want.Return&ReturnPartial != 0 {
		lo, hi := want.Partial.Bounds(uint64(len(found)))
		result.page = orderedSet(found[lo:hi])
	}
	w.esearch(tag, uid, want, result)
}

// esearchResult is what the search or sort found.
type esearchResult struct {
	all, page     Set
	first, last   uint32
	count, modSeq uint64
}

func (w *Writer) esearch(tag string, uid bool, want SearchOptions, found esearchResult) {
	w.Raw("* ESEARCH (TAG ").String(tag).Raw(")")
	if uid {
		w.Raw(" UID")
	}
	if found.count > 0 {
		if want.Return&ReturnMin != 0 {
			w.Raw(" MIN ").Number(uint64(found.first))
		}
		if want.Return&ReturnMax != 0 {
			w.Raw(" MAX ").Number(uint64(found.last))
		}
		if want.Return&ReturnAll != 0 {
			w.Raw(" ALL ").Set(found.all)
		}
	}
	if want.Return&ReturnCount != 0 {
		w.Raw(" COUNT ").Number(found.count)
	}
	if want.Return&ReturnPartial != 0 {
		w.esearchPartial(want.Partial, found.page)
	}
	if found.modSeq != 0 && found.count > 0 {
		w.Raw(" MODSEQ ").Number(found.modSeq)
	}
	w.CRLF()
}

// orderedSet returns numbers as a set that keeps their order: only what rises by
// one becomes a range (RFC 5267 §3.2). Such a set is not normal.
func orderedSet(numbers []uint32) (s Set) {
	for _, n := range numbers {
		if last := len(s) - 1; last >= 0 && s[last].Hi+1 == n {
			s[last].Hi = n
		} else {
			s = append(s, Range{n, n})
		}
	}
	return s
}

func (w *Writer) esearchPartial(p Page, found Set) {
	w.Raw(" PARTIAL (")
	if p.FromEnd {
		w.Raw("-").Number(uint64(p.First)).Raw(":-").Number(uint64(p.Last))
	} else {
		w.Number(uint64(p.First)).Raw(":").Number(uint64(p.Last))
	}
	if len(found) == 0 {
		w.Raw(" NIL)")
		return
	}
	w.SP().Set(found).Raw(")")
}

// Bounds returns which of n results the page holds: those from index lo up to,
// but without, hi.
func (p Page) Bounds(n uint64) (lo, hi uint64) {
	lo, hi = min(uint64(min(p.First, p.Last))-1, n), min(uint64(max(p.First, p.Last)), n)
	if p.FromEnd {
		return n - hi, n - lo
	}
	return lo, hi
}

// Slice returns the part of a normal set that the page holds.
func (p Page) Slice(found Set) Set {
	first, last := p.Bounds(found.Count())
	first++
	var out Set
	var before uint64
	for _, r := range found {
		size := uint64(r.Hi-r.Lo) + 1
		lo, hi := max(first, before+1), min(last, before+size)
		if lo <= hi {
			out = append(out, Range{r.Lo + uint32(lo-before-1), r.Lo + uint32(hi-before-1)})
		}
		before += size
	}
	return out
}
