// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// scale is how much a soak test does: little in an ordinary run, and what its
// name says in `make soak`.
type scale struct {
	rows    int // that wait
	sends   int // of a round of traffic
	drain   int // of what waits, delivered in a round
	ahead   int // what a queue takes in hand beyond that, so that both do
	rounds  int
	callers int
	judge   bool // whether the rates are compared: of few they say nothing
}

func soakScale() scale {
	if servertest.SoakSize(0, 1) == 1 {
		return scale{rows: 1_000_000, sends: 10_000, drain: 50_000, ahead: 20_000, rounds: 7, callers: 64, judge: true}
	}
	return scale{rows: 2_000, sends: 200, drain: 400, ahead: 400, rounds: 2, callers: 8}
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

		compare(t, size, []string{"accepted", "delivered"}, size.sends, empty, full, func(y *yard) []time.Duration { return y.traffic(size) })
		if n := full.rows(); n != size.rows {
			t.Errorf("%d rows wait, not %d", n, size.rows)
		}
		empty.pile(size.drain+size.ahead, size.callers)
		compare(t, size, []string{"delivered of what waited"}, size.drain, empty, full, func(y *yard) []time.Duration {
			took := y.deliver(size.drain)
			y.pile(size.drain, size.callers) // for the next time
			return []time.Duration{took}
		})
	})
}

// other is a second database of the same engine.
func other(t *testing.T, url string) string {
	if strings.HasPrefix(url, "postgres") {
		return dbtest.Postgres(t)
	}
	return dbtest.SQLite(t)
}

// compare measures how long both take for n pieces of the same work, in turns,
// and fails the test if all that the full one did took too much longer.
func compare(t *testing.T, size scale, names []string, n int, empty, full *yard, measure func(*yard) []time.Duration) {
	t.Helper()
	measure(empty) // once to warm up
	measure(full)
	yards, took := [2]*yard{empty, full}, [2][][]time.Duration{}
	empty.spent, full.spent = 0, 0
	for round := range size.rounds {
		for turn := range yards {
			which := (turn + round) % 2
			took[which] = append(took[which], measure(yards[which]))
		}
	}
	for i, name := range names {
		var all [2]time.Duration
		var parts []string
		for round := range size.rounds {
			e, f := took[0][round][i], took[1][round][i]
			all[0], all[1] = all[0]+e, all[1]+f
			parts = append(parts, fmt.Sprintf("%.2f", e.Seconds()/f.Seconds()))
		}
		rate := func(d time.Duration) float64 { return float64(n*size.rounds) / d.Seconds() }
		ratio := all[0].Seconds() / all[1].Seconds()
		t.Logf("%s: %.0f/s when empty, %.0f/s with what waits: %.2f of it (%s)", name, rate(all[0]), rate(all[1]), ratio, strings.Join(parts, " "))
		if size.judge && ratio < least {
			t.Errorf("%s: only %.2f of the rate of an empty queue", name, ratio)
		}
	}
	// What else the machine had to do does not show in this.
	t.Logf("processor time: %v when empty, %v with what waits", empty.spent.Round(time.Millisecond), full.spent.Round(time.Millisecond))
}

// yard is a database with a queue at work on it. Its clock stands, so that a
// destination which could not be reached stays put off until deliver says
// otherwise.
type yard struct {
	*house
	dead    atomic.Bool // whether the destinations of what waits can't be reached
	left    atomic.Int64
	reached chan bool     // left has become 0
	spent   time.Duration // of the processors, by what was measured
}

func newYard(t *testing.T, url string) *yard {
	d, n := dbtest.Open(t, url)
	y := &yard{reached: make(chan bool, 1)}
	y.dead.Store(true)
	y.house = newHouse(t, d, n, &courier{parallel: 16, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
		if strings.HasPrefix(c.Deliveries[0].Destination, "back") && y.dead.Load() {
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
	for s := y.queue.Stats(); s.Sessions > 0 || s.InFlight > 0; s = y.queue.Stats() {
		<-tick.C
	}
}

// traffic accepts messages for destinations that take them at once, and
// returns how long accepting took, and delivering.
func (y *yard) traffic(size scale) []time.Duration {
	defer y.spend()()
	y.left.Store(int64(size.sends))
	begun := time.Now()
	y.each(size.sends, size.callers, func(i int) {
		if err := y.try(y.message(), to(fmt.Sprintf("ok@d%d.test", i%lively))); err != nil {
			y.t.Error(err)
		}
	})
	accepted := time.Since(begun)
	<-y.reached
	return []time.Duration{accepted, time.Since(begun)}
}

// spend adds up the processor time of this process until what it returns is
// called.
func (y *yard) spend() (done func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			y.t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { y.spent += used() - before }
}

// deliver lets the dead destinations come back until so many deliveries of
// what waits were made, and returns how long that took.
func (y *yard) deliver(n int) time.Duration {
	y.left.Store(int64(n))
	y.dead.Store(false)
	done := y.spend()
	begun := time.Now()
	y.later(24 * time.Hour) // beyond every wait
	<-y.reached
	took := time.Since(begun)
	done()
	y.dead.Store(true)
	y.rest()
	return took
}

var openByMessageQuery = db.SQL(`SELECT COUNT(*) FROM delivery WHERE state IN ('scheduled', 'queued', 'deferred')`)

// rows counts what waits.
func (y *yard) rows() (n int) {
	y.t.Helper()
	if err := y.db.One(context.Background(), openByMessageQuery.With(), &n); err != nil {
		y.t.Fatal(err)
	}
	return n
}
