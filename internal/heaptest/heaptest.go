// SPDX-License-Identifier: Apache-2.0

// Package heaptest measures how much memory a parser of foreign bytes needs while it
// reads a stream that does not end.
package heaptest

import (
	"io"
	"runtime"
	"testing"
)

// Limit is how much of the heap a parser may use, in bytes.
const Limit = 2 << 20

// samples is how often the heap is measured within one stream.
const samples = 8

// Input is a stream: Head, then Unit again and again, Size bytes in all.
type Input struct{ Head, Unit string }

// Check gives parse each input as a stream. It reports an error when more than Limit
// bytes of heap are live above the start: while parse waits for more input, or after it
// returned, with its result. The test must not run in parallel with others.
func Check(t *testing.T, parse func(r io.Reader) (result any), inputs ...Input) {
	t.Helper()
	CheckLimit(t, Limit, parse, inputs...)
}

// CheckLimit is Check with a limit for results that may be larger.
func CheckLimit(t *testing.T, limit int64, parse func(r io.Reader) (result any), inputs ...Input) {
	t.Helper()
	for _, in := range inputs {
		if peak := peakOf(in, parse); peak > limit {
			t.Errorf("%d KiB of heap are live after %.80q and then %.80q again and again, more than %d KiB", peak>>10, in.Head, in.Unit, limit>>10)
		}
	}
}

// Discard reads r to its end. It is what a filter's parse does with its output.
func Discard(r io.Reader) (result any) {
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{r})
	return r
}

// peakOf returns how much of the heap parse needs at most for one input, in bytes.
func peakOf(in Input, parse func(r io.Reader) (result any)) int64 {
	s := &stream{head: in.Head, left: Size}
	s.block = make([]byte, 0, 64<<10+len(in.Unit))
	for len(s.block) < 64<<10 {
		s.block = append(s.block, in.Unit...)
	}
	runtime.GC() // what pools keep goes with the second cycle
	s.start = Live()
	result := parse(s)
	s.measure()
	runtime.KeepAlive(result)
	runtime.KeepAlive(s)
	return s.peak
}

// stream measures the heap whenever another part of it was read.
type stream struct {
	head  string
	block []byte
	at    int
	left  int
	next  int // measure once no more than this is left
	start int64
	peak  int64
}

// Read is that of io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if s.left <= s.next {
		s.measure()
		s.next = max(0, s.left-Size/samples)
	}
	if s.left == 0 {
		return 0, io.EOF
	}
	var n int
	if s.head != "" {
		n = copy(p, s.head)
		s.head = s.head[n:]
	} else {
		n = copy(p[:min(len(p), s.left)], s.block[s.at:])
		s.at = (s.at + n) % len(s.block)
	}
	s.left = max(0, s.left-n)
	return n, nil
}

func (s *stream) measure() { s.peak = max(s.peak, Live()-s.start) }

// Live returns how much of the heap is in use after a collection, in bytes.
func Live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
