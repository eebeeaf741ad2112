// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/retention"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func keeper(d *db.DB, n *lease.Node, tasks ...retention.Task) *retention.Pruner {
	return &retention.Pruner{DB: d, Node: n, Tasks: tasks, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)}
}

// store is a stub of stored data.
type store struct {
	left   int
	before time.Time
	limits []int
	err    error
}

func (s *store) prune(_ context.Context, before time.Time, limit int) (int, error) {
	s.before, s.limits = before, append(s.limits, limit)
	n := min(s.left, limit)
	s.left -= n
	return n, s.err
}

// Expired data is deleted, task by task, in bounded steps. A failing task, or one that keeps data
// for ever, does not stop the others.
func TestRound(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		broken, ever, many := &store{left: 5, err: errors.New("broken")}, &store{left: 5}, &store{left: 5000}
		k := keeper(d, node, retention.Task{Name: "broken", MaxAge: time.Hour, Prune: broken.prune}, retention.Task{Name: "ever", Prune: ever.prune},
			retention.Task{Name: "many", MaxAge: 48 * time.Hour, Prune: many.prune})
		total, err := k.RunOnce(t.Context())
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Error(err)
		}
		if want := map[string]int{"broken": 5, "many": 5000}; !maps.Equal(total, want) {
			t.Errorf("deleted %v", total)
		}
		if len(ever.limits) > 0 || many.left > 0 || !many.before.Equal(now.Add(-48*time.Hour)) {
			t.Errorf("%v, %+v", ever, many)
		}
		for _, n := range many.limits {
			if n < 1 || n > 500 {
				t.Errorf("%d rows in one commit", n)
			}
		}
	})
}

// One node at a time deletes, and another continues when it has stopped.
func TestOneNode(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, first := leasetest.Open(t, url)
		second, err := lease.Join(t.Context(), d, lease.Options{Name: "second", Holder: "folder"})
		if err != nil {
			t.Fatal(err)
		}
		rest := &store{left: 100}
		task := retention.Task{Name: "rest", MaxAge: time.Hour, Prune: rest.prune}
		ctx, crash := context.WithCancel(t.Context())
		interrupted := task
		interrupted.Prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			n, err := task.Prune(ctx, before, 3)
			crash()
			return n, err
		}
		if total, err := keeper(d, first, interrupted).RunOnce(ctx); !errors.Is(err, context.Canceled) || total["rest"] != 3 {
			t.Errorf("deleted %v, %v", total, err)
		}
		k := keeper(d, second, task)
		if total, err := k.RunOnce(t.Context()); err != nil || len(total) > 0 {
			t.Errorf("beside the first one: %v, %v", total, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := first.MaintainLease(ended); err != nil { // releases the lease
			t.Fatal(err)
		}
		if total, err := k.RunOnce(t.Context()); err != nil || total["rest"] != 97 {
			t.Errorf("after it: %v, %v", total, err)
		}
	})
}
