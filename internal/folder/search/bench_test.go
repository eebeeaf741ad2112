// SPDX-License-Identifier: Apache-2.0

package search

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
)

// eachBench runs f on both engines, with a folder of 10,000 messages of 8 KiB.
func eachBench(b *testing.B, f func(b *testing.B, h *fixture, v *folder.View)) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			h := newFixture(b, url(b))
			one := h.upload(mail("about something", strings.Repeat("All work and no play makes Jack a dull boy.\r\n", 180)))
			for range 20 {
				all := make([]folder.Upload, 500)
				for i := range all {
					all[i] = one
					all[i].Blob = h.Blobs.Prepend(one.Blob, nil)
				}
				h.append(all...)
			}
			v := h.view()
			b.ResetTimer()
			f(b, h, v)
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	for name, c := range map[string]Criterion{
		"unseen":  {Test: HasFlags, Flags: folder.Seen, Not: true},
		"subject": {Test: InEnvelope, Header: "subject", Text: "nothing"},
		"body":    {Test: InBody, Text: "nowhere"},
	} {
		b.Run(name, func(b *testing.B) {
			eachBench(b, func(b *testing.B, h *fixture, v *folder.View) {
				for b.Loop() {
					_, err := h.Search(h.ctx(), v, c, nil)
					h.must(err)
				}
			})
		})
	}
}
