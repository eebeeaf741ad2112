// SPDX-License-Identifier: Apache-2.0

package inbound_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// BenchmarkAccept files messages of 4 KiB durably, by 10 callers at once for
// each processor.
func BenchmarkAccept(b *testing.B) {
	body := "From: ann@example.com\r\nTo: bob@demo.test\r\nSubject: bench\r\nMessage-ID: <1@example.com>\r\nDate: Mon, 2 Mar 2026 10:00:00 +0100\r\n\r\n" +
		strings.Repeat("0123456789012345678901234567890123456789012345678901234567890123\r\n", 60)
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		for _, boxes := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/mailboxes=%d", name, boxes), func(b *testing.B) {
				h := newHouse(b, url(b))
				for i := range boxes {
					h.box(fmt.Sprintf("box%d", i), 1<<20)
				}
				from := addr(b, "ann@example.com")
				var next atomic.Int64
				b.SetParallelism(10)
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						to := addr(b, fmt.Sprintf("box%d@demo.test", next.Add(1)%int64(boxes)))
						l := h.Begin(&from, int64(len(body)))
						if err := l.Recipient(b.Context(), to); err != nil {
							b.Error(err)
							return
						}
						if _, err := l.Message(b.Context(), received, strings.NewReader(body)); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}
