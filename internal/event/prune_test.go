// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

func pruneAll(t *testing.T, l *event.Log, before time.Time, limit int) (total int) {
	t.Helper()
	for {
		n, err := l.Prune(t.Context(), before, limit)
		if err != nil {
			t.Fatal(err)
		}
		if n > limit {
			t.Errorf("%d in one commit", n)
		}
		if total += n; n == 0 {
			return total
		}
	}
}

// Old events are deleted, a few at a time. New events, those without a position, and the last one
// stay, and no position is assigned twice.
func TestPrune(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		l.Now = func() time.Time { return now }
		for i := range 30 {
			now = now.Add(time.Hour)
			record(t, l, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{i}})
		}
		if n := pruneAll(t, l, now.Add(time.Hour), 100); n != 0 {
			t.Errorf("%d events without a position were pruned", n)
		}
		numberAll(t, l)
		if n := pruneAll(t, l, now.Add(-10*time.Hour), 7); n != 19 {
			t.Errorf("pruned %d", n)
		}
		list := func() []event.Event {
			all, err := listed(t, l, 1, event.Filter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		all := list()
		if ns := numbers(t, all); !slices.Equal(ns, []int{19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29}) || all[0].Position != 20 {
			t.Errorf("left are %v from %d", ns, all[0].Position)
		}
		// Even if all events are old, the last one stays to keep the position.
		now = now.Add(1000 * time.Hour)
		if n := pruneAll(t, l, now, 7); n != 10 {
			t.Errorf("pruned %d", n)
		}
		l = newLog(d, node) // and after a restart
		l.Now = func() time.Time { return now }
		record(t, l, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{30}})
		numberAll(t, l)
		if all := list(); len(all) != 2 || all[0].Position != 30 || all[1].Position != 31 {
			t.Errorf("left are %+v", all)
		}
	})
}

// While two nodes record, number and prune events concurrently, positions rise without gaps or
// repetitions.
func TestPruneWhileNumbering(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		logs := []*event.Log{newLog(d, node), newLog(d, node)}
		ctx, stop := context.WithCancel(t.Context())
		var pruning sync.WaitGroup
		pruning.Go(func() { // its lease is 15 seconds, and the machine may be busy
			if err := node.MaintainLease(ctx); err != nil {
				t.Error(err)
			}
		})
		for _, l := range logs {
			pruning.Go(func() {
				for ctx.Err() == nil {
					if _, err := l.Prune(ctx, time.Now().Add(time.Hour), 5); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		last := int64(0)
		for i := range 300 {
			l := logs[i%2]
			record(t, l, event.RecordParams{Account: 1, Kind: event.Bounce, Data: data{i}})
			if n := numberAll(t, l); n != 1 {
				t.Fatalf("numbered %d", n)
			}
			newest, err := listed(t, l, 1, event.Filter{Before: 1 << 62, Limit: 1})
			if err != nil || len(newest) != 1 || newest[0].Position != last+1 || numbers(t, newest)[0] != i {
				t.Fatalf("after %d came %+v, %v", last, newest, err)
			}
			last++
		}
		stop()
		pruning.Wait()
		if n := pruneAll(t, logs[0], time.Now().Add(time.Hour), 100); n > 5 {
			t.Logf("%d were left", n)
		}
		var left int64
		if err := d.One(t.Context(), countEvents.With(), &left); err != nil || left != 1 {
			t.Errorf("%d events, %v", left, err)
		}
	})
}

var countEvents = db.SQL(`SELECT COUNT(*) FROM event`)
