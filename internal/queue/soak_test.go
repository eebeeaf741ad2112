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
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// scale is the size of a soak test: small in an ordinary run, as its name says in `make soak`.
type scale struct {
	rows    int // waiting rows
	sends   int // messages per round of traffic
	drain   int // waiting deliveries delivered per round
	ahead   int // further deliveries that a queue leases, the same for both
	rounds  int
	callers int
	verify  bool // whether to compare the rates: with few deliveries they mean nothing
}

func soakScale() scale {
	if servertest.SoakSize(0, 1) == 1 {
		return scale{rows: 1_000_000, sends: 10_000, drain: 50_000, ahead: 20_000, rounds: 7, callers: 64, verify: true}
	}
	return scale{rows: 2_000, sends: 200, drain: 400, ahead: 400, rounds: 2, callers: 8}
}

const (
	backlogged = 1000 // destinations of the waiting rows
	lively     = 100  // destinations of the other traffic
	least      = 0.8  // minimum rate, as a share of an empty queue's
)

// TestMillionWaiting accepts and delivers mail while a million deliveries wait for a thousand
// unreachable destinations. It then delivers the waiting mail as the destinations come back. Both
// must reach four fifths of the rate of an empty queue. The two queues alternate, so that a slow
// minute of the machine affects both.
func TestMillionWaiting(t *testing.T) {
	needtest.Full(t, "a long queue")
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
			y.pile(size.drain, size.callers) // for the next round
			return []time.Duration{took}
		})
	})
}

// other creates a second database of the same engine.
func other(t *testing.T, url string) string {
	if strings.HasPrefix(url, "postgres") {
		return dbtest.Postgres(t)
	}
	return dbtest.SQLite(t)
}

// compare measures both queues for n pieces of the same work, alternately, and fails the test if
// the full one took too much longer in total.
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
		if size.verify && ratio < least {
			t.Errorf("%s: only %.2f of the rate of an empty queue", name, ratio)
		}
	}
	// Processor time excludes other work of the machine.
	t.Logf("processor time: %v when empty, %v with what waits", empty.spent.Round(time.Millisecond), full.spent.Round(time.Millisecond))
}

// yard is a database with a running queue. Its clock does not move, so that an unreachable
// destination stays in backoff until deliver is called.
type yard struct {
	*fixture
	dead    atomic.Bool // whether the destinations of waiting rows are unreachable
	left    atomic.Int64
	reached chan bool     // left has become 0
	spent   time.Duration // processor time of the measured work
}

func newYard(t *testing.T, url string) *yard {
	d, n := leasetest.Open(t, url)
	y := &yard{reached: make(chan bool, 1)}
	y.dead.Store(true)
	y.fixture = newFixture(t, d, n, &deliveryAgent{parallel: 16, answer: func(_ context.Context, c *queue.Transaction) []queue.Outcome {
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

// pile accepts mail for the unreachable destinations, and returns when all of it waits.
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

// rest waits until no attempt is running. The remaining leased deliveries are for destinations in
// backoff.
func (y *yard) rest() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s := y.queue.Stats(); s.Sessions > 0 || s.InFlight > 0; s = y.queue.Stats() {
		<-tick.C
	}
}

// traffic accepts messages for destinations that deliver at once, and returns the durations of
// accepting and of delivering.
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

// spend measures the processor time of this process until the returned function is called.
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

// deliver makes the dead destinations reachable until n waiting deliveries were delivered, and
// returns how long that took.
func (y *yard) deliver(n int) time.Duration {
	y.left.Store(int64(n))
	y.dead.Store(false)
	done := y.spend()
	begun := time.Now()
	y.later(24 * time.Hour) // longer than every backoff
	<-y.reached
	took := time.Since(begun)
	done()
	y.dead.Store(true)
	y.rest()
	return took
}

var openDeliveriesQuery = db.SQL(`SELECT COUNT(*) FROM delivery WHERE state IN ('scheduled', 'queued', 'deferred')`)

// rows counts the waiting deliveries.
func (y *yard) rows() (n int) {
	y.t.Helper()
	if err := y.db.One(context.Background(), openDeliveriesQuery.With(), &n); err != nil {
		y.t.Fatal(err)
	}
	return n
}
