// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
)

var everyPosition = db.SQL(`SELECT id, position FROM event ORDER BY position`)

func newLog(d *db.DB, n *lease.Node) *event.Log {
	return &event.Log{DB: d, Node: n, Hub: &notify.Hub{}, Now: time.Now}
}

func record(t *testing.T, l *event.Log, e event.RecordParams) {
	t.Helper()
	if err := l.DB.Tx(t.Context(), func(tx *db.Tx) error { return l.Record(t.Context(), tx, e) }); err != nil {
		t.Fatal(err)
	}
}

func numberAll(t *testing.T, l *event.Log) (total int) {
	t.Helper()
	for {
		n, err := l.AssignPositions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n == 0 {
			return total
		}
	}
}

func listed(t *testing.T, l *event.Log, account db.ID, f event.Filter) ([]event.Event, error) {
	t.Helper()
	p, err := l.List(t.Context(), account, f)
	return p.Events, err
}

type data struct {
	N int `json:"n"`
}

func numbers(t *testing.T, events []event.Event) (ns []int) {
	t.Helper()
	for _, e := range events {
		var d data
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		ns = append(ns, d.N)
	}
	return ns
}

func TestListAndGet(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account, other, message := d.NewID(), d.NewID(), d.NewID()
		for i := range 10 {
			e := event.RecordParams{Account: account, Kind: event.DeliveryStatus, Data: data{i}}
			switch i % 3 {
			case 1:
				e.Kind, e.Message = event.Bounce, message
			case 2:
				e.Message = message
			}
			record(t, l, e)
			record(t, l, event.RecordParams{Account: other, Kind: event.Bounce, Message: message, Data: data{100 + i}})
		}
		if got, err := listed(t, l, account, event.Filter{}); err != nil || len(got) != 0 {
			t.Errorf("listed before they are numbered: %v, %v", got, err)
		}
		if n := numberAll(t, l); n != 20 {
			t.Fatalf("numbered %d", n)
		}
		all, err := listed(t, l, account, event.Filter{})
		if err != nil || len(all) != 10 {
			t.Fatal(len(all), err)
		}
		for _, c := range []struct {
			name string
			f    event.Filter
			want []int
		}{
			{"all", event.Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
			{"first", event.Filter{Limit: 3}, []int{0, 1, 2}},
			{"after", event.Filter{After: all[6].Position}, []int{7, 8, 9}},
			{"before", event.Filter{Before: all[3].Position}, []int{2, 1, 0}},
			{"newest", event.Filter{Before: 1 << 62, Limit: 2}, []int{9, 8}},
			{"kind", event.Filter{Kinds: []string{event.Bounce}}, []int{1, 4, 7}},
			{"kinds", event.Filter{Kinds: []string{event.Bounce, event.DeliveryStatus}, Limit: 4}, []int{0, 1, 2, 3}},
			{"no such kind", event.Filter{Kinds: []string{event.Complaint}}, nil},
			{"message", event.Filter{Message: message}, []int{1, 2, 4, 5, 7, 8}},
			{"message after", event.Filter{Message: message, After: all[5].Position}, []int{7, 8}},
			{"message before", event.Filter{Message: message, Before: all[4].Position}, []int{2, 1}},
			{"message and kind", event.Filter{Message: message, Kinds: []string{event.Bounce}}, []int{1, 4, 7}},
			{"no such message", event.Filter{Message: account}, nil},
		} {
			got, err := listed(t, l, account, c.f)
			if ns := numbers(t, got); err != nil || !slices.Equal(ns, c.want) {
				t.Errorf("%s: %v, %v; want %v", c.name, ns, err, c.want)
			}
		}
		got, err := l.Get(t.Context(), account, all[4].ID, true)
		if err != nil || got.ID != all[4].ID || got.Type != event.Bounce || got.Version != 1 ||
			got.Account != account || string(got.Data) != `{"n":4}` || got.Position != all[4].Position || time.Since(got.Timestamp) > time.Hour {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, err := l.Get(t.Context(), other, all[4].ID, true); !fault.Is(err, fault.NotFound) {
			t.Errorf("another account's event: %v", err)
		}
	})
}

// An event of a rolled-back transaction never exists. An event that got its position before an
// earlier event is not skipped by a list of all events since a time.
func TestListSinceLate(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account, began := d.NewID(), time.Now()
		late, err := l.RecordStatement(event.RecordParams{Account: account, Kind: event.Bounce, Data: data{1}})
		if err != nil {
			t.Fatal(err)
		}
		record(t, l, event.RecordParams{Account: account, Kind: event.Bounce, Data: data{2}})
		numberAll(t, l)
		dbtest.Exec(t, d, late)
		numberAll(t, l)
		got, err := listed(t, l, account, event.Filter{Since: began.Add(-time.Second)})
		if ns := numbers(t, got); err != nil || !slices.Equal(ns, []int{2, 1}) {
			t.Errorf("%v, %v", ns, err)
		}
	})
}

func TestRecordRollsBack(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		refused := errors.New("refused")
		if err := d.Tx(t.Context(), func(tx *db.Tx) error {
			if err := l.Record(t.Context(), tx, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{1}}); err != nil {
				return err
			}
			return refused
		}); !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if n := numberAll(t, l); n != 0 {
			t.Errorf("%d events", n)
		}
		if _, err := l.RecordStatement(event.RecordParams{Kind: event.Bounce, Data: make(chan int)}); err == nil {
			t.Error("data without a JSON form was taken")
		}
	})
}

// With concurrent writers and two sequencers, every event gets one position, without gaps, and a
// reader that follows positions never misses one.
func TestNumberOnce(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		second := d
		if d.Engine() == db.Postgres { // a SQLite database has one process
			var err error
			if second, err = db.Open(t.Context(), db.Options{URL: url}); err != nil {
				t.Fatal(err)
			}
			defer second.Close() //nolint:errcheck // nothing to lose
		}
		secondNode, err := lease.Join(t.Context(), second, lease.Options{Name: "second", Holder: "folder"})
		if err != nil {
			t.Fatal(err)
		}
		logs := []*event.Log{newLog(d, node), newLog(second, secondNode)}
		logs[1].Hub = logs[0].Hub
		const writers, each = 8, 100
		account := d.NewID()
		var writing, working sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				l := logs[w%2]
				for i := range each {
					e := event.RecordParams{Account: account, Kind: event.Bounce, Data: data{w*each + i}}
					if i%10 == 0 {
						record(t, l, e)
						continue
					}
					s, err := l.RecordStatement(e)
					if err == nil {
						err = l.DB.Write(t.Context(), l.DB.NewID(), &db.Mutation{Apply: func(b *db.Batch) { b.Queue(s) }, AfterCommit: l.WakeSequencer})
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		stream := logs[0].Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(account)})
		defer stream.Close()
		for _, l := range logs {
			working.Go(func() {
				recorded := l.Hub.Subscribe(notify.Key{Kind: notify.Event})
				defer recorded.Close()
				for {
					if n, err := l.AssignPositions(t.Context()); err != nil {
						t.Error(err)
						return
					} else if n > 0 {
						continue
					}
					select {
					case <-recorded.C:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		var seen []int
		last := int64(0)
		for len(seen) < writers*each && !t.Failed() {
			<-stream.C
			events, err := listed(t, logs[0], account, event.Filter{After: last, Limit: writers * each})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Position != last+1 {
					t.Fatalf("position %d after %d", e.Position, last)
				}
				last = e.Position
			}
			seen = append(seen, numbers(t, events)...)
		}
		writing.Wait()
		stop()
		working.Wait()
		slices.Sort(seen)
		if len(seen) != writers*each || len(slices.Compact(seen)) != writers*each {
			t.Errorf("saw %d events", len(seen))
		}
	})
}

// The sequencer runs when it is woken, wakes the readers of an account, and continues where the
// last one stopped.
func TestNumberRuns(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		account, before := d.NewID(), int64(0)
		for round := range 2 { // the second one is after a restart
			l := newLog(d, node)
			stream := l.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(account)})
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := l.RunSequencer(ctx, slog.Default()); err != nil {
					t.Error(err)
				}
			})
			for i := range 3 {
				record(t, l, event.RecordParams{Account: account, Kind: event.Bounce, Data: data{i}})
				for {
					<-stream.C
					got, err := listed(t, l, account, event.Filter{After: before})
					if err != nil {
						t.Fatal(err)
					}
					if len(got) > 0 {
						if got[0].Position != before+1 || len(got) > 1 {
							t.Errorf("round %d: %+v after %d", round, got, before)
						}
						before = got[0].Position
						break
					}
				}
			}
			stop()
			wg.Wait()
			stream.Close()
		}
	})
}

// More events than one batch keep their order.
func TestNumberChunks(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		if err := d.Tx(t.Context(), func(tx *db.Tx) error {
			for i := range 1201 {
				if err := l.Record(t.Context(), tx, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{i}}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n := numberAll(t, l); n != 1201 {
			t.Fatalf("numbered %d", n)
		}
		var want, last int64
		if err := d.Each(t.Context(), everyPosition.With(), func(r db.Row) error {
			var id, position int64
			err := r.Scan(&id, &position)
			if want++; position != want || id <= last {
				t.Errorf("position %d, want %d; id %d after %d", position, want, id, last)
			}
			last = id
			return err
		}); err != nil || want != 1201 {
			t.Errorf("%d events, %v", want, err)
		}
	})
}

func BenchmarkNumber(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			d, node := leasetest.Open(b, url(b))
			l := newLog(d, node)
			for range (b.N + 499) / 500 {
				b.StopTimer()
				if err := d.Tx(b.Context(), func(tx *db.Tx) error {
					for i := range 500 {
						if err := l.Record(b.Context(), tx, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{i}}); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if n, err := l.AssignPositions(b.Context()); err != nil || n != 500 {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// The statements after the numbering are in its commit: they process every event once, by their
// stored position, whichever node numbers. The body is the same each time.
func TestFollow(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		calls := 0
		l.OnNumbering = append(l.OnNumbering, func(b *db.Batch) {
			calls++
			b.Queue(everyPosition.With()).Each(func(r db.Row) error {
				var id, position int64
				if err := r.Scan(&id, &position); err != nil {
					return err
				}
				if position == 3 {
					return errors.New("the third is too much")
				}
				return nil
			})
		})
		account := d.NewID()
		for i := range 2 {
			record(t, l, event.RecordParams{Account: account, Kind: event.Bounce, Data: data{i}})
		}
		if n, err := l.AssignPositions(t.Context()); n != 2 || err != nil || calls == 0 {
			t.Fatalf("numbered %d, %v, followed %d times", n, err, calls)
		}
		record(t, l, event.RecordParams{Account: account, Kind: event.Bounce, Data: data{2}})
		if n, err := l.AssignPositions(t.Context()); n != 0 || err == nil {
			t.Errorf("numbered %d, %v although what follows failed", n, err)
		}
		all, err := listed(t, l, account, event.Filter{})
		if err != nil || len(all) != 2 {
			t.Fatalf("%v, %v", all, err)
		}
		one, err := all[0].Body()
		again, err2 := l.Get(t.Context(), account, all[0].ID, true)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if two, err := again.Body(); err != nil || string(one) != string(two) || !strings.Contains(string(one), `"data":{"n":0}`) || strings.HasSuffix(string(one), "\n") {
			t.Errorf("%s and %s, %v", one, two, err)
		}
	})
}
