// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/queue"
)

// scale is how much a soak test does: little in an ordinary run, and what its
// name says in `make soak`.
type scale struct {
	rows    int // that wait
	sends   int // of a round of traffic
	drain   int // of what waits, delivered in a round
	rounds  int
	callers int
	judge   bool // whether the rates are compared: of few they say nothing
}

func soakScale() scale {
	if os.Getenv("MAILSTEAD_SOAK") != "" {
		return scale{rows: 1_000_000, sends: 10_000, drain: 20_000, rounds: 7, callers: 64, judge: true}
	}
	return scale{rows: 2_000, sends: 200, drain: 400, rounds: 2, callers: 8}
}

const (
	backlogged = 1000 // destinations that the waiting rows are for
	lively     = 100  // destinations of the traffic beside
	least      = 0.8  // of an empty queue's rate
)

// TestMillionWaiting takes and delivers mail while a million deliveries wait
// for a thousand destinations that can't be reached, and then, as those come
// back, delivers what waited: at four fifths of the rate of an empty queue at
// least. Both queues take turns, so that a slow minute of the machine hits both
// alike.
func TestMillionWaiting(t *testing.T) {
	size := soakScale()
	dbtest.EachURL(t, func(t *testing.T, url string) {
		empty, full := newYard(t, url), newYard(t, other(t, url))
		begun := time.Now()
		full.pile(size.rows, size.callers)
		t.Logf("%d rows were laid down in %v", size.rows, time.Since(begun).Round(time.Second))

		compare(t, size, []string{"accepted", "delivered"}, empty, full, func(y *yard) []float64 { return y.traffic(size) })
		if n := full.rows(); n != size.rows {
			t.Errorf("%d rows wait, not %d", n, size.rows)
		}
		compare(t, size, []string{"delivered of what waited"}, empty, full, func(y *yard) []float64 {
			if y == empty {
				y.pile(size.drain, size.callers)
			}
			return []float64{y.deliver(size.drain)}
		})
		if n := empty.rows(); n != 0 {
			t.Errorf("%d rows wait where none should", n)
		}
	})
}

// other is a second database of the same engine.
func other(t *testing.T, url string) string {
	if strings.HasPrefix(url, "postgres") {
		return dbtest.Postgres(t)
	}
	return dbtest.SQLite(t)
}

// compare measures both in turns, and fails the test if the medians of what
// the full one does, as parts of what the empty one does, are too small.
func compare(t *testing.T, size scale, names []string, empty, full *yard, measure func(*yard) []float64) {
	t.Helper()
	rates := [2][][]float64{make([][]float64, len(names)), make([][]float64, len(names))}
	ratios := make([][]float64, len(names))
	measure(empty) // once to warm up
	measure(full)
	for round := range size.rounds {
		var now [2][]float64
		for turn := range 2 {
			which := (turn + round) % 2
			now[which] = measure([]*yard{empty, full}[which])
		}
		for i := range names {
			ratios[i] = append(ratios[i], now[1][i]/now[0][i])
			for which := range 2 {
				rates[which][i] = append(rates[which][i], now[which][i])
			}
		}
	}
	for i, name := range names {
		ratio := median(ratios[i])
		t.Logf("%s: %.0f/s when empty, %.0f/s with what waits: %.2f (%.2f)", name, median(rates[0][i]), median(rates[1][i]), ratio, ratios[i])
		if size.judge && ratio < least {
			t.Errorf("%s: only %.2f of the rate of an empty queue", name, ratio)
		}
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// yard is a database with a queue at work on it. Its clock stands, so that a
// destination which could not be reached stays put off until deliver says
// otherwise.
type yard struct {
	*house
	dead    atomic.Bool // whether the destinations of what waits can't be reached
	left    atomic.Int64
	reached chan bool // left has become 0
}

func newYard(t *testing.T, url string) *yard {
	d, n := dbtest.Open(t, url)
	y := &yard{reached: make(chan bool, 1)}
	y.dead.Store(true)
	y.house = newHouse(t, d, n, &courier{parallel: 16, answer: func(_ context.Context, c *queue.Consignment) []queue.Outcome {
		if strings.HasPrefix(c.To[0].Destination, "back") && y.dead.Load() {
			return nil
		}
		return []queue.Outcome{delivered}
	}})
	y.queue.OnSettled(func(d *queue.Delivery) {
		if queue.StateOf(d).Final() && y.left.Add(-1) == 0 {
			y.reached <- true
		}
	})
	y.run()
	return y
}

// each calls f for 0 to n-1, from many goroutines.
func (y *yard) each(n, callers int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}

// pile accepts mail for the destinations that can't be reached, and returns
// when all of it waits.
func (y *yard) pile(rows, callers int) {
	y.t.Helper()
	const together = 40
	y.each(rows/together, callers, func(i int) {
		var rcpts []queue.Recipient
		for k := range together {
			rcpts = append(rcpts, to(fmt.Sprintf("someone@back%d.test", (i*together+k)%backlogged))...)
		}
		m := y.message()
		m.ExpiresAt = y.clock.Now().AddDate(1, 0, 0)
		if err := y.try(m, rcpts); err != nil {
			y.t.Error(err)
		}
	})
	y.rest()
}

// rest waits until no courier is at work. What is still in hand is for
// destinations that are put off.
func (y *yard) rest() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s := y.queue.Stats(); s.Runs > 0 || s.Carried > 0; s = y.queue.Stats() {
		<-tick.C
	}
}

// traffic accepts messages for destinations that take them at once, and
// returns how many a second were accepted, and delivered.
func (y *yard) traffic(size scale) []float64 {
	y.left.Store(int64(size.sends))
	begun := time.Now()
	y.each(size.sends, size.callers, func(i int) {
		if err := y.try(y.message(), to(fmt.Sprintf("ok@d%d.test", i%lively))); err != nil {
			y.t.Error(err)
		}
	})
	accepted := time.Since(begun)
	<-y.reached
	n := float64(size.sends)
	return []float64{n / accepted.Seconds(), n / time.Since(begun).Seconds()}
}

// deliver lets the dead destinations come back until so many deliveries of
// what waits were made, and returns how many a second that were.
func (y *yard) deliver(n int) float64 {
	y.left.Store(int64(n))
	y.dead.Store(false)
	begun := time.Now()
	y.later(24 * time.Hour) // beyond every wait
	<-y.reached
	rate := float64(n) / time.Since(begun).Seconds()
	y.dead.Store(true)
	y.rest()
	return rate
}

var openRows = db.SQL(`SELECT COUNT(*) FROM delivery WHERE state IN ('scheduled', 'queued', 'deferred')`)

// rows counts what waits.
func (y *yard) rows() (n int) {
	y.t.Helper()
	if err := y.db.One(context.Background(), openRows.With(), &n); err != nil {
		y.t.Fatal(err)
	}
	return n
}
