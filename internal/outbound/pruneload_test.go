// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/retention"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	filedMessages = db.SQL(`SELECT outbound FROM message WHERE outbound > 0`)
	openPasses    = db.SQL(`UPDATE outbound_index_progress SET position = $1`)
)

// While mail is sent and delivered, every expired message is deleted immediately: each message
// still arrives once, and in the end only the received messages and the traces remain.
func TestPruneUnderLoad(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const senders, each = 4, 15
		a := &attic{t: t, s: s}
		dbtest.Exec(a.t, a.s.DB, openPasses.With(int64(1)<<62)) // as if all was looked at
		now := func() time.Time { return time.Now().Add(time.Hour) }
		keeper := func() *retention.Pruner {
			var tasks []retention.Task
			for _, task := range s.Retention.Tasks {
				switch task.Name {
				case "attempts", "messages", "events":
					task.MaxAge = time.Minute
					tasks = append(tasks, task)
				}
			}
			return &retention.Pruner{DB: s.DB, Node: s.Outbox.Node, Tasks: tasks, Now: now, Log: s.Log}
		}
		ctx, stop := context.WithCancel(t.Context())
		var pruning, sending sync.WaitGroup
		for range 2 {
			k := keeper()
			pruning.Go(func() {
				for ctx.Err() == nil {
					if _, err := k.RunOnce(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		sent := make(chan db.ID, senders*each)
		for range senders {
			sending.Go(func() {
				for range each {
					results, err := s.Outbox.Send(t.Context(), demo(t, s), []outbound.SendRequest{{
						FromEmail: "alice@demo.test", To: []string{"bob@demo.test", "delivered@simulator.test"}, Subject: "Hello", Text: "Hello",
					}}, outbound.SendOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					sent <- results[0].ID
				}
			})
		}
		sending.Wait()
		close(sent)
		servertest.Eventually(t, func() string {
			if left := a.count(allMessages); len(left) > 0 {
				return fmt.Sprintf("%d messages are there", len(left))
			}
			return ""
		})
		stop()
		pruning.Wait()
		filed, traces := a.count(filedMessages), a.count(allTraces)
		for id := range sent {
			if filed[id] != 1 || traces[id] != 1 {
				t.Errorf("%s: filed %d times, %d traces", id, filed[id], traces[id])
			}
		}
		if n := len(a.count(allDeliveries)) + len(a.count(allAttempts)); n > 0 {
			t.Errorf("something is left of %d messages", n)
		}
		if n := len(a.count(allBlobs)); n != len(filed) {
			t.Errorf("there are %d blobs of %d messages in folders", n, len(filed))
		}
	})
}

// BenchmarkPrune deletes ordinary messages: rows of one recipient, one attempt
// and some terms, in commits of up to 200 rows.
func BenchmarkPrune(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			s := servertest.Start(b, servertest.Database(url(b)))
			at := time.Now().Add(-40 * 24 * time.Hour)
			for i := 0; i < b.N; i += 100 {
				if err := s.DB.Tx(b.Context(), func(tx *db.Tx) error {
					for j := i; j < min(i+100, b.N); j++ {
						id := db.MinIDAt(at.Add(time.Duration(j) * time.Second))
						blob, err := s.Blobs.FromBytes(b.Context(), make([]byte, 2000))
						if err != nil {
							return err
						}
						for _, statement := range []db.Statement{
							blob.InsertStatement(), plantOld.With(id, 1, 5, 0, fmt.Sprint("Your order number ", j, " was shipped today"), "<x>", "x", blob.ID, db.Micros(at), 0),
							plantOldDelivery.With(id, 0, 1, fmt.Sprintf("u%d@x.example", j), "delivered", farAhead, nil, 1, db.Micros(at), 0), plantAttempt.With(id, 0, 1),
						} {
							if _, err := tx.Exec(b.Context(), statement); err != nil {
								return err
							}
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			for pass := range 3 {
				for more := true; more; {
					var err error
					if more, err = s.Outbox.Index.RunBatch(b.Context(), pass, time.Now()); err != nil {
						b.Fatal(err)
					}
				}
			}
			commits, longest := 0, time.Duration(0)
			b.ResetTimer()
			for {
				begin := time.Now()
				n, err := s.Outbox.Prune(b.Context(), time.Now(), 200)
				if err != nil {
					b.Fatal(err)
				}
				if n == 0 {
					break
				}
				commits++
				longest = max(longest, time.Since(begin))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(longest.Milliseconds()), "ms-longest")
			b.ReportMetric(b.Elapsed().Seconds()*1000/float64(max(1, commits)), "ms/commit")
		})
	}
}
