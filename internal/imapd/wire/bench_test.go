// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// again is an endless stream of one text.
type again struct {
	text string
	pos  int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.text[a.pos:])
	a.pos = (a.pos + n) % len(a.text)
	return n, nil
}

func BenchmarkReadCommand(b *testing.B) {
	for _, line := range []string{"a1 UID FETCH 1:* (FLAGS)", "a1 NOOP", `a1 UID SEARCH RETURN (ALL) UNSEEN FROM "smith" SINCE 1-Feb-1994`} {
		b.Run(strings.Fields(line)[1]+" "+strings.Fields(line + " -")[2], func(b *testing.B) {
			r := NewReader(bufio.NewReader(&again{text: line + "\r\n"}), nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.ReadCommand(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWriteRows writes 20,000 rows of UID and FLAGS each time.
func BenchmarkWriteRows(b *testing.B) {
	var buffers BufferPool
	w := NewWriter(io.Discard, &buffers)
	keywords := []string{"$Forwarded"}
	b.ReportAllocs()
	for b.Loop() {
		for n := uint32(1); n <= 20_000; n++ {
			row := w.Fetch(n)
			row.UID(n + 100_000)
			flags := Flags{System: SystemFlags(n) & AllFlags}
			if n%10 == 0 {
				flags.Keywords = keywords
			}
			row.Flags(flags)
			row.End()
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteLiteral(b *testing.B) {
	var buffers BufferPool
	w := NewWriter(io.Discard, &buffers)
	text := strings.Repeat("x", 8<<10)
	src := strings.NewReader(text)
	b.SetBytes(8 << 10)
	b.ReportAllocs()
	for b.Loop() {
		src.Reset(text)
		row := w.Fetch(1)
		row.Section(&Section{}, 8<<10, src)
		row.End()
	}
}
