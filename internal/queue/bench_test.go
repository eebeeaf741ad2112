// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
)

// BenchmarkAcceptAndDeliver accepts messages of one recipient each from 64 goroutines, while
// delivery agents without work deliver them. It measures the queue's own work: two commits per
// message, each shared by many messages. A second run has a backlog for an unreachable destination.
// Run it with -benchtime 10000x.
func BenchmarkAcceptAndDeliver(b *testing.B) {
	for _, engine := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		for _, c := range []struct{ destinations, dead int }{{1, 0}, {100, 0}, {100, 100_000}} {
			b.Run(fmt.Sprintf("%s/destinations=%d/dead=%d", engine.name, c.destinations, c.dead), func(b *testing.B) {
				benchmark(b, engine.url(b), c.destinations, c.dead)
			})
		}
	}
}

func benchmark(b *testing.B, url string, destinations, dead int) {
	d, n := leasetest.Open(b, url)
	nothing := &deliveryAgent{parallel: 16, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if c.Deliveries[0].Destination == "dead.test" {
			return nil
		}
		return []queue.Outcome{delivered}
	}}
	h := newFixture(b, d, n, nothing)
	for range dead / 50 {
		h.send(strings.Fields(strings.Repeat("someone@dead.test ", 50))...)
	}
	h.run()
	left, done := atomic.Int64{}, make(chan bool)
	left.Store(int64(b.N))
	h.queue.OnSettled(func(d *queue.Delivery) {
		if queue.StateOf(d).Final() && left.Add(-1) == 0 {
			close(done)
		}
	})
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > b.N {
					return
				}
				m := h.message()
				if err := h.try(m, to(fmt.Sprintf("ok@d%d.test", i%destinations))); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	accepted := b.Elapsed()
	limit := time.NewTimer(time.Minute)
	select {
	case <-done:
		limit.Stop()
	case <-limit.C:
		b.Fatalf("%d were not delivered in a minute; %+v", left.Load(), h.queue.Stats())
	}
	b.ReportMetric(float64(b.N)/accepted.Seconds(), "accepted/s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "delivered/s")
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(mem.HeapInuse>>20), "MB")
}
