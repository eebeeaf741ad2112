// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
)

// benchMail is a message of 8 KiB in words of a language with 5,000 of them;
// one in a hundred has the needle in its subject and body.
func benchMail(r *rand.Rand, i int) string {
	lexicon := func() string {
		w := rand.New(rand.NewPCG(uint64(r.ExpFloat64()*500)%5_000, 9))
		b := make([]byte, 3+w.IntN(7))
		for i := range b {
			b[i] = "etaoinshrdlucmfwypvbgkjqxz"[int(w.ExpFloat64()*5)%26]
		}
		return string(b)
	}
	var b strings.Builder
	needle := ""
	if i%100 == 0 {
		needle = " needle"
	}
	fmt.Fprintf(&b, "From: Ann <ann@example.com>\r\nTo: bob@demo.test\r\nSubject: %s %s%s\r\nMessage-ID: <%d@example.com>\r\nReceived: from a by b; %s\r\n\r\n",
		lexicon(), lexicon(), needle, i, time.Now())
	for line := 0; b.Len() < 8<<10; line++ {
		for range 9 {
			b.WriteString(lexicon() + " ")
		}
		if line == 40 {
			b.WriteString(needle)
		}
		b.WriteString("\r\n")
	}
	return b.String()
}

const benchMessages = 10_000

// eachBench runs f on both engines, with a folder of messages of 8 KiB that are
// not indexed.
func eachBench(b *testing.B, f func(b *testing.B, h *house)) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			h := newHouse(b, url(b))
			r := rand.New(rand.NewPCG(5, 6))
			for i := 0; i < benchMessages; {
				var some []string
				for range 500 {
					some = append(some, benchMail(r, i))
					i++
				}
				h.append(h.box, folder.Inbox, some...)
			}
			f(b, h)
		})
	}
}

// BenchmarkSearch tells what a search takes with and without the index, what
// filling it takes for each message, and how big it is.
func BenchmarkSearch(b *testing.B) {
	eachBench(b, func(b *testing.B, h *house) {
		begin := time.Now()
		h.fill()
		took := time.Since(begin)
		info, err := os.Stat(h.index.Path)
		h.must(err)
		for name, c := range map[string]folder.Criterion{
			"subject": {Test: folder.HasHeader, Header: "subject", Text: "needle"},
			"body":    {Test: folder.InBody, Text: "needle"},
			"text":    {Test: folder.InText, Text: "needle"},
			"none":    {Test: folder.InBody, Text: "nowhere"},
			"short":   {Test: folder.InBody, Text: "qzx"},
		} {
			for index, s := range map[string]*folder.Store{"indexed": h.Store, "scan": h.plain} {
				b.Run(name+"/"+index, func(b *testing.B) {
					v := h.view(s, h.box, folder.Inbox)
					hits := 0
					for b.Loop() {
						hits = len(h.search(v, c))
					}
					b.ReportMetric(float64(hits), "hits")
				})
			}
		}
		b.ReportMetric(float64(took.Microseconds())/benchMessages, "fill-µs/msg")
		b.ReportMetric(float64(info.Size())/benchMessages, "index-B/msg")
		b.ReportMetric(0, "ns/op")
	})
}
