// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// BenchmarkLargeSends has sixteen clients send 25 MiB of attachments each, concurrently. It reports
// the memory of the process: resident before, and the peak until all messages are delivered. Run it
// with -benchtime 1x, or 5x to see that memory doesn't grow.
func BenchmarkLargeSends(b *testing.B) {
	for _, engine := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		b.Run(engine.name, func(b *testing.B) {
			s := newService(b, b.TempDir(), engine.url(b))
			s.Start()
			c := s.Client()
			idle := s.Memory("VmRSS")
			var mu sync.Mutex
			var sent []string
			for b.Loop() {
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						a, err := c.Send(b.Context(), &client.Send{
							FromEmail: s.Dev.Mailboxes[0].Address, To: []string{fmt.Sprintf("r%d@elsewhere.example.net", i)}, Subject: "large", Text: "See the files.",
							Attachments: []client.Attachment{large("a.bin", 20<<20), large("b.bin", 5<<20)},
						})
						if err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						sent = append(sent, a.ID)
					})
				}
				all.Wait()
			}
			took := b.Elapsed()
			b.ReportMetric(float64(16*b.N)/took.Seconds(), "sends/s")
			b.ReportMetric(float64(idle)/(1<<20), "idle-MiB")
			for _, id := range sent { // includes signing and delivery
				servertest.Eventually(b, func() string {
					m, err := c.GetMessage(b.Context(), id)
					if err != nil || m.Status != client.Delivered {
						return fmt.Sprintf("%+v, %v", m, err)
					}
					return ""
				})
			}
			b.ReportMetric(float64(s.Memory("VmHWM"))/(1<<20), "peak-MiB")
			s.Stop()
		})
	}
}

// large is a file whose contents are generated while it is read.
func large(name string, size int64) client.Attachment {
	return client.Attachment{Filename: name, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(pattern{}, size)), nil
	}}
}

type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * i)
	}
	return len(p), nil
}
