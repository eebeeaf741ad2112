// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
)

// BenchmarkRelay accepts messages of 4 KiB and delivers each to a sink in this process, end to end:
// the rows, the SMTP sessions, the outcomes.
func BenchmarkRelay(b *testing.B) {
	for _, n := range []int{1, 4, 10} {
		b.Run(fmt.Sprintf("connections=%d", n), func(b *testing.B) {
			var taken atomic.Int64
			all := make(chan struct{})
			s := listen(b, &sink{forget: true, answer: func(_ int, line string) string {
				if line == "final" && taken.Add(1) == int64(b.N) {
					close(all)
				}
				return ""
			}})
			h := newFixture(b, s.addr.Port(), func(o *relay.Options) { o.MaxConnsPerDestination = n }, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
			h.run()
			body := "Subject: benchmark\r\n\r\n" + strings.Repeat(strings.Repeat("x", 76)+"\r\n", 52)
			edit := func(m *queue.OutboundMessage) {
				m.Body = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
				m.Size = int64(len(head) + len(body))
			}
			b.ReportAllocs()
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					h.accept(h.newMail(edit), "bob@d.test")
				}
			})
			<-all
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(s.connections()), "connections")
		})
	}
}
