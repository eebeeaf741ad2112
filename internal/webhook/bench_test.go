// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
)

// BenchmarkDeliver measures events from their rows to their outcomes: numbered, delivered to one
// receiver that responds at once, and settled.
func BenchmarkDeliver(b *testing.B) {
	for _, engine := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		b.Run(engine.name, func(b *testing.B) {
			h := start(b, engine.url(b))
			var got atomic.Int64
			done := make(chan struct{})
			r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if got.Add(1) == int64(b.N) {
					close(done)
				}
			}))
			defer r.Close()
			h.create(r.URL)
			b.ResetTimer()
			for left := b.N; left > 0; left -= 1000 {
				h.record(event.Bounce, min(left, 1000))
			}
			<-done
			for range b.N {
				h.outcome()
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			h.stop()
		})
	}
}
