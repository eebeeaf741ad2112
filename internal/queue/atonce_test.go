// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

var (
	manyHolds = db.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO queue_hold (id, kind, target, reason, created_at) SELECT i, 'destination', 'h' || CAST(i AS TEXT) || '.test', '', 0 FROM n`)
	holdsN   = db.SQL(`SELECT COUNT(*) FROM queue_hold`)
	remarksN = db.SQL(`SELECT COUNT(*) FROM remark`)
)

// Active holds, and remarks on a delivery, never exceed their limits, even with concurrent calls.
func TestLimitsAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n, err := lease.Join(t.Context(), d, lease.Options{Name: "one", Holder: "one"})
		if err != nil {
			t.Fatal(err)
		}
		h := newFixture(t, d, n, script()) // it does not run
		ctx := t.Context()
		m := h.send("x@a.test")
		dbtest.Exec(t, d, manyHolds.With(997))
		o := h.operator(true)
		var held, news atomic.Int64
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				_, err := o.Hold(ctx, admin.Command{Filter: admin.Filter{Destination: fmt.Sprintf("more%d.test", i)}})
				var f *fault.Error
				switch {
				case err == nil:
					held.Add(1)
				case !errors.As(err, &f) || f.Code != "too_many_holds":
					t.Error(err)
				}
			})
			all.Go(func() {
				new, err := h.queue.AddRemark(ctx, m, 0, queue.StageDelay, fmt.Sprintf("<%d@a.test>", i), queue.Report{Code: 451, Text: "later"})
				if err != nil {
					t.Error(err)
				}
				if new {
					news.Add(1)
				}
			})
		}
		all.Wait()
		var holds, remarks int64
		if err := errors.Join(d.One(ctx, holdsN.With(), &holds), d.One(ctx, remarksN.With(), &remarks)); err != nil {
			t.Fatal(err)
		}
		if held.Load() != 3 || holds != 1000 {
			t.Errorf("%d holds were made where 3 had a place; there are %d", held.Load(), holds)
		}
		if news.Load() != 20 || remarks != 20 {
			t.Errorf("%d remarks were news; there are %d", news.Load(), remarks)
		}
	})
}
