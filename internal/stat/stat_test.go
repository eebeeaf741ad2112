// SPDX-License-Identifier: Apache-2.0

package stat_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/stat"
)

var start = time.Date(2026, 3, 1, 21, 30, 0, 0, time.UTC)

// ledger has the expected counts: by account, domain, interval and start.
type ledger map[string]stat.Counts

func (l ledger) add(account, domain db.ID, at time.Time, f func(*stat.Counts)) {
	for _, span := range []time.Duration{stat.Hour, stat.Day} {
		for _, d := range []db.ID{0, domain} {
			k := fmt.Sprint(account, d, span, at.Truncate(span))
			figures := l[k]
			f(&figures)
			l[k] = figures
			if domain == 0 {
				break
			}
		}
	}
}

// check reads all counts and compares them.
func (l ledger) check(t *testing.T, s *stat.Stats, accounts, domains []db.ID, from, to time.Time) {
	t.Helper()
	for _, account := range accounts {
		for _, domain := range append([]db.ID{0}, domains...) {
			for _, span := range []time.Duration{stat.Hour, stat.Day} {
				q := stat.Query{Account: account, Domain: domain, Interval: span, From: from, To: to}
				periods, total, err := s.Read(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				var sum stat.Counts
				at := from.Truncate(span)
				for _, p := range periods {
					want := l[fmt.Sprint(account, domain, span, at)]
					if !p.Start.Equal(at) || p.Counts != want {
						t.Errorf("account %d, domain %d, %v: got %+v, want %v %+v", account, domain, span, p, at, want)
					}
					sum.Delivered += p.Delivered
					sum.Inbound += p.Inbound
					sum.Accepted += p.Accepted
					at = at.Add(span)
				}
				if at.Before(to) || len(periods) != q.PeriodCount() {
					t.Errorf("the periods end at %v", at)
				}
				if sum.Delivered != total.Delivered || sum.Inbound != total.Inbound || sum.Accepted != total.Accepted {
					t.Errorf("the total is %+v", total)
				}
			}
		}
	}
}

// states maps a status to its count.
var states = map[string]func(*stat.Counts){
	"delivered": func(f *stat.Counts) { f.Delivered++ }, "deferred": func(f *stat.Counts) { f.Deferred++ },
	"bounced": func(f *stat.Counts) { f.Bounced++ }, "complained": func(f *stat.Counts) { f.Complained++ },
	"suppressed": func(f *stat.Counts) { f.Suppressed++ }, "failed": func(f *stat.Counts) { f.Failed++ },
	"cancelled": func(f *stat.Counts) { f.Cancelled++ }, "queued": func(*stat.Counts) {},
}

// On two nodes that count concurrently, with interrupted counts and pruned events, the counts
// always match a recount of counted and uncounted events.
func TestCount(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		second, err := lease.Join(t.Context(), d, lease.Options{Name: "second", Holder: "folder"})
		if err != nil {
			t.Fatal(err)
		}
		s := stat.New(d, slog.New(slog.DiscardHandler))
		random := rand.New(rand.NewPCG(1, 2))
		accounts, domains := []db.ID{d.NewID(), d.NewID()}, []db.ID{d.NewID(), d.NewID(), d.NewID()}
		want := ledger{}
		now := start
		var logs []*event.Log
		for _, n := range []*lease.Node{node, second} {
			logs = append(logs, &event.Log{DB: d, Node: n, Hub: &notify.Hub{}, Now: func() time.Time { return now }})
		}
		var names []string
		for name := range states {
			names = append(names, name)
		}
		record := func() {
			account, domain := accounts[random.IntN(2)], domains[random.IntN(3)]
			if random.IntN(20) == 0 {
				domain = 0
			}
			e := event.RecordParams{Account: account, Domain: domain, Data: struct{}{}}
			count := func(*stat.Counts) {}
			switch e.Status = names[random.IntN(len(names))]; random.IntN(6) {
			case 0:
				e.Kind, e.Status = event.InboundEmail, ""
				count = func(f *stat.Counts) { f.Inbound++ }
			case 1:
				e.Kind, e.Status = event.Unsubscribe, ""
				count = func(f *stat.Counts) { f.Unsubscribed++ }
			case 2: // recorded with a delivery_status
				e.Kind = []string{event.Bounce, event.Complaint, event.MailboxCreated}[random.IntN(3)]
			default:
				e.Kind, count = event.DeliveryStatus, states[e.Status]
			}
			if err := d.Tx(t.Context(), func(tx *db.Tx) error { return logs[0].Record(t.Context(), tx, e) }); err != nil {
				t.Fatal(err)
			}
			want.add(account, domain, now, count)
		}
		count := func(ctx context.Context) error {
			for more := true; more; {
				var err error
				if more, err = s.CountNext(ctx); err != nil {
					return err
				}
			}
			return nil
		}
		for round := range 40 {
			now = now.Add(time.Duration(random.Int64N(int64(2 * time.Hour))))
			for range random.IntN(20) {
				record()
			}
			for _, l := range logs {
				if _, err := l.AssignPositions(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if round%3 == 0 {
				want.check(t, s, accounts, domains, start.Add(-5*time.Hour), now.Add(time.Minute))
			}
			var together sync.WaitGroup
			ctx, interrupt := context.WithCancel(t.Context())
			together.Go(func() {
				if err := count(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
			if round%2 == 0 {
				interrupt()
			} else {
				together.Go(func() {
					if err := count(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			together.Wait()
			interrupt()
			if round%2 == 0 {
				continue // not all events are counted
			}
			if _, err := logs[0].Prune(t.Context(), now, 5); err != nil {
				t.Fatal(err)
			}
		}
		want.check(t, s, accounts, domains, start.Add(-5*time.Hour), now.Add(time.Minute))
	})
}

// Numbered events are counted automatically, also those from before the start.
func TestRun(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		s := stat.New(d, slog.New(slog.DiscardHandler))
		l := &event.Log{DB: d, Node: node, Hub: &notify.Hub{}, Now: func() time.Time { return start }, AfterNumbering: []func(){s.Wake}}
		record := func(n int) {
			for range n {
				e := event.RecordParams{Account: 1, Domain: 5, Kind: event.DeliveryStatus, Status: "delivered", Data: struct{}{}}
				if err := d.Tx(t.Context(), func(tx *db.Tx) error { return l.Record(t.Context(), tx, e) }); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.AssignPositions(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		record(3)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		await := func(n int64) {
			for counted := int64(-1); counted < n; {
				if err := d.One(t.Context(), counts.With(), &counted); err != nil {
					t.Fatal(err)
				}
				if counted > n {
					t.Fatalf("%d are counted, want %d", counted, n)
				}
			}
		}
		await(3)
		record(4)
		await(7)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

var counts = db.SQL(`SELECT COALESCE(SUM(delivered), 0) FROM stat WHERE domain = 0 AND span = 86400000000`)

// Accepted messages are summed. Hourly counts are pruned, daily ones stay.
func TestCountAndPrune(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := leasetest.Open(t, url)
		s := stat.New(d, slog.New(slog.DiscardHandler))
		random := rand.New(rand.NewPCG(3, 4))
		accounts, domains := []db.ID{1, 2}, []db.ID{5, 6}
		want := ledger{}
		for range 30 {
			var some []stat.AcceptedMessage
			for range 1 + random.IntN(10) {
				m := stat.AcceptedMessage{Account: accounts[random.IntN(2)], Domain: domains[random.IntN(2)],
					At: start.Add(time.Duration(random.Int64N(int64(50 * time.Hour)))), Recipients: 1 + random.IntN(3)}
				some = append(some, m)
				want.add(m.Account, m.Domain, m.At, func(f *stat.Counts) { f.Messages++; f.Accepted += int64(m.Recipients) })
			}
			if err := d.Write(t.Context(), 0, &db.Mutation{Apply: func(b *db.Batch) { s.CountAccepted(b, some, nil) }}); err != nil {
				t.Fatal(err)
			}
		}
		end := start.Add(50 * time.Hour)
		want.check(t, s, accounts, domains, start, end)

		middle := start.Add(25 * time.Hour).Truncate(time.Hour)
		for {
			n, err := s.Prune(t.Context(), middle, 10)
			if err != nil || n > 12 {
				t.Fatal(n, err)
			}
			if n == 0 {
				break
			}
		}
		want.check(t, s, accounts, domains, middle, end)
		q := stat.Query{Account: 1, Interval: stat.Hour, From: start, To: middle}
		if _, total, err := s.Read(t.Context(), q); err != nil || total != (stat.Counts{}) {
			t.Errorf("hours that were pruned: %+v, %v", total, err)
		}
		q.Interval, q.To = stat.Day, end
		if _, total, err := s.Read(t.Context(), q); err != nil || total.Messages == 0 || total.Messages != want.messages(1) {
			t.Errorf("days: %+v, %v", total, err)
		}
	})
}

// messages returns the number of accepted messages of an account.
func (l ledger) messages(account db.ID) (n int64) {
	for at := start.Truncate(stat.Day); at.Before(start.Add(60 * time.Hour)); at = at.Add(stat.Day) {
		n += l[fmt.Sprint(account, db.ID(0), stat.Day, at)].Messages
	}
	return n
}

// The first period contains From.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		from, to string
		by       time.Duration
		begin    string
		n        int
	}{
		{"2026-03-01T21:30:00Z", "2026-03-01T21:30:01Z", stat.Hour, "2026-03-01T21:00:00Z", 1},
		{"2026-03-01T21:30:00Z", "2026-03-01T22:00:00Z", stat.Hour, "2026-03-01T21:00:00Z", 1},
		{"2026-03-01T21:30:00Z", "2026-03-01T22:00:01Z", stat.Hour, "2026-03-01T21:00:00Z", 2},
		{"2026-03-01T01:30:00+02:00", "2026-03-03T00:00:00Z", stat.Day, "2026-02-28T00:00:00Z", 3},
		{"2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", stat.Day, "2026-03-01T00:00:00Z", 0},
		{"2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z", stat.Day, "2026-03-02T00:00:00Z", 0},
		{"0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", stat.Day, "0001-01-01T00:00:00Z", 106752},
	} {
		from, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		to, err := time.Parse(time.RFC3339, c.to)
		if err != nil {
			t.Fatal(err)
		}
		q := stat.Query{Interval: c.by, From: from, To: to}
		if got := q.Start().Format(time.RFC3339); got != c.begin || q.PeriodCount() != c.n {
			t.Errorf("%s to %s: %d from %s, want %d from %s", c.from, c.to, q.PeriodCount(), got, c.n, c.begin)
		}
	}
}

// BenchmarkCount counts numbered events of 20 accounts and 40 domains.
func BenchmarkCount(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			d, node := leasetest.Open(b, url(b))
			s := stat.New(d, slog.New(slog.DiscardHandler))
			l := &event.Log{DB: d, Node: node, Hub: &notify.Hub{}, Now: time.Now}
			for range (b.N + 499) / 500 {
				b.StopTimer()
				if err := d.Tx(b.Context(), func(tx *db.Tx) error {
					for i := range 500 {
						e := event.RecordParams{Account: db.ID(1 + i%20), Domain: db.ID(100 + i%40), Kind: event.DeliveryStatus, Status: "delivered", Data: struct{}{}}
						if err := l.Record(b.Context(), tx, e); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				if n, err := l.AssignPositions(b.Context()); err != nil || n != 500 {
					b.Fatal(n, err)
				}
				b.StartTimer()
				if _, err := s.CountNext(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
