// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

var (
	// pass simulates the passing of time for the leases.
	pass          = db.SQL(`UPDATE lease SET expires_at = expires_at - $1 WHERE expires_at > 0`)
	passLeaderJob = db.SQL(`UPDATE leader_job SET expires_at = expires_at - $1`)
	expired       = db.SQL(`SELECT id FROM lease WHERE expires_at <= {now} ORDER BY id`)
	left          = db.SQL(`SELECT expires_at - {now} FROM lease WHERE id = $1`)
)

// testClock is a clock that the test sets.
type testClock struct{ at atomic.Pointer[time.Time] }

func newClock() *testClock {
	c := &testClock{}
	now := time.Now()
	c.at.Store(&now)
	return c
}

func (c *testClock) now() time.Time { return *c.at.Load() }

func (c *testClock) forward(d time.Duration) {
	now := c.now().Add(d)
	c.at.Store(&now)
}

// both advances this clock and the database's.
func (c *testClock) both(t *testing.T, d *db.DB, by time.Duration) {
	t.Helper()
	c.forward(by)
	passes(t, d, by)
}

func passes(t *testing.T, d *db.DB, by time.Duration) {
	t.Helper()
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), pass.With(by.Microseconds()))
		if err == nil {
			_, err = tx.Exec(t.Context(), passLeaderJob.With(by.Microseconds()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func openWithClock(t *testing.T, url string) (*db.DB, *testClock) {
	t.Helper()
	c := newClock()
	d, err := db.Open(t.Context(), db.Options{URL: url, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, c
}

func join(t *testing.T, d *db.DB, name, holder string) *lease.Node {
	t.Helper()
	n, err := lease.Join(t.Context(), d, lease.Options{Name: name, Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ended(t *testing.T, d *db.DB) []db.ID {
	t.Helper()
	ids, err := db.All(t.Context(), d, expired.With(), db.ScanID)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestLease(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, first := leasetest.Open(t, url)
		if _, err := lease.Join(t.Context(), d, lease.Options{Name: "test", Holder: "another folder"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second process of one name joined: %v", err)
		}
		neighbour, _ := openWithClock(t, url)
		other := join(t, neighbour, "other", "another folder")
		if other.Number == first.Number {
			t.Fatalf("both are node %d", first.Number)
		}
		id := d.NewID()
		next, clock := openWithClock(t, url)
		clock.forward(time.Millisecond)        // no process starts within the millisecond of an id
		again := join(t, next, "test", "test") // the same folder's next process
		if later := next.NewID(); later <= id {
			t.Errorf("the next process makes %d, not after %d", later, id)
		}
		was, _ := first.Lease()
		now, ok := again.Lease()
		if ids := ended(t, d); !ok || now == was || again.Number != first.Number || len(ids) != 1 || ids[0] != was {
			t.Errorf("ended %v, want %v; now %v, %v", ids, was, now, ok)
		}
		if err := again.Renew(t.Context()); err != nil {
			t.Errorf("the living one was buried: %v", err)
		}
	})
}

// A process that has locked the folder of a SQLite database is the only one, under any earlier node
// name. With a shared database, a copied folder proves nothing.
func TestLeaseRenamed(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, first := leasetest.Open(t, url)
		was, _ := first.Lease()
		join(t, d, "another name", "test")
		if ids := ended(t, d); slices.Contains(ids, was) != (d.Engine() == db.SQLite) {
			t.Errorf("ended: %v", ids)
		}
	})
}

// A node that can't renew its lease stops before others may take over. They keep its work even if
// it comes back.
func TestLeaseLost(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		was, ok := n.Lease()
		if !ok {
			t.Fatal("a new node may start nothing")
		}
		clock.both(t, d, lease.DefaultDuration*2/3-time.Second)
		if _, ok := n.Lease(); !ok {
			t.Error("stopped too early")
		}
		clock.both(t, d, time.Second)
		if _, ok := n.Lease(); ok || !n.OwnsLease(was) {
			t.Error("after two thirds of the lease it still starts things, or does not finish what it began")
		}
		if ids := ended(t, d); len(ids) != 0 {
			t.Errorf("others may take over before the lease is over: %v", ids)
		}
		if _, err := lease.Join(t.Context(), d, lease.Options{Name: "one", Holder: "another folder"}); !fault.Is(err, fault.Conflict) {
			t.Errorf("another process took the name before the lease was over: %v", err)
		}
		clock.both(t, d, lease.DefaultDuration/3+time.Second)
		if ids := ended(t, d); len(ids) != 1 || ids[0] != was || n.OwnsLease(was) {
			t.Errorf("nobody may take over: %v; and the node finishes things: %v", ids, n.OwnsLease(was))
		}
		if err := n.Renew(t.Context()); err == nil {
			t.Error("the loss of the lease was not told")
		}
		if now, ok := n.Lease(); !ok || now == was || n.OwnsLease(was) || !n.OwnsLease(now) {
			t.Errorf("lease %v, %v after %v was lost", now, ok, was)
		}
		if ids := ended(t, d); len(ids) != 1 || ids[0] != was {
			t.Errorf("the lost lease is valid again: %v", ids)
		}
	})
}

// A replaced process can't get its name back.
func TestLeaseReplaced(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		clock.both(t, d, lease.DefaultDuration+time.Second)
		successor, _ := dbtestJoin(t, url)
		if err := n.Renew(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if _, ok := n.Lease(); ok {
			t.Error("both run under one name")
		}
		if err := successor.Renew(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process ends if another has taken its name meanwhile: both would generate the same ids.
func TestKeepReplaced(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := openWithClock(t, url)
		n, err := lease.Join(t.Context(), d, lease.Options{Name: "one", Holder: "folder", Duration: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		passes(t, d, lease.DefaultDuration) // the process was paused
		other, _ := openWithClock(t, url)
		join(t, other, "one", "another folder")
		if err := n.MaintainLease(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if id, ok := n.Lease(); ok || n.OwnsLease(id) {
			t.Error("both run under one name")
		}
	})
}

// dbtestJoin joins as another process with the node name "one".
func dbtestJoin(t *testing.T, url string) (*lease.Node, *testClock) {
	d, clock := openWithClock(t, url)
	return join(t, d, "one", "another folder"), clock
}

// A lease is measured on the database's clock; that of this machine may be
// wrong by hours.
func TestLeaseClocks(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		clock.forward(-6 * time.Hour)
		n := join(t, d, "slow", "folder")
		id, ok := n.Lease()
		var micros int64
		if err := d.One(t.Context(), left.With(id), &micros); err != nil || !ok {
			t.Fatal(err, ok)
		}
		if got := time.Duration(micros) * time.Microsecond; got > lease.DefaultDuration || got < lease.DefaultDuration-10*time.Second {
			t.Errorf("the lease lasts %v", got)
		}
		passes(t, d, lease.DefaultDuration+time.Second) // and this machine was paused
		if ids := ended(t, d); len(ids) != 1 {
			t.Errorf("ended: %v", ids)
		}
	})
}

// A node whose clock is weeks ahead would expire the queue at once; if it is weeks behind, others
// would expire its rows. Such a node does not join, and starts no work as long as its clock is
// wrong.
func TestLeaseClockAstray(t *testing.T) {
	for side, off := range map[string]time.Duration{"ahead of": 31 * 24 * time.Hour, "behind": -31 * 24 * time.Hour} {
		d, clock := openWithClock(t, dbtest.Postgres(t)) // SQLite has no clock of its own
		clock.forward(off)
		if _, err := lease.Join(t.Context(), d, lease.Options{Name: "one", Holder: "folder"}); err == nil || !strings.Contains(err.Error(), "hours "+side) {
			t.Errorf("%s: it joined: %v", side, err)
		}
		clock.forward(-off)
		n := join(t, d, "one", "folder")
		clock.forward(off)
		if err := n.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), side) {
			t.Errorf("%s: it was renewed: %v", side, err)
		}
		if id, ok := n.Lease(); ok || n.OwnsLease(id) {
			t.Errorf("%s: it goes on", side)
		}
		clock.forward(-off)
		if err := n.Renew(t.Context()); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		if _, ok := n.Lease(); !ok {
			t.Errorf("%s: it does not go on although its clock is right", side)
		}
	}
}

// Ids that a process generated with a clock that was ahead are not generated again by the next
// process, after the clock is corrected.
func TestIDsAfterAClockAhead(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		clock.forward(6 * time.Hour)
		d.NewID()
		clock.forward(-6 * time.Hour) // while the process runs
		d.NewID()
		if err := n.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 10_000 {
			d.NewID()
		}
		last := d.NewID()
		next, _ := openWithClock(t, url)
		join(t, next, "one", "folder")
		if id := next.NewID(); id <= last {
			t.Errorf("%d after %d: its time is %s, after %s", id, last, id.Time(), last.Time())
		}
	})
}

// A renewal extends the lease, in the process and in the database.
func TestLeaseRenew(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		was, _ := n.Lease()
		for range 5 {
			clock.both(t, d, lease.DefaultDuration/2)
			if err := n.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now, ok := n.Lease(); !ok || now != was {
				t.Fatalf("lease %v, %v; want %v", now, ok, was)
			}
		}
	})
}

// MaintainLease releases the lease when the node stops: first in the process, then in the database.
func TestKeepLeaves(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := n.MaintainLease(ctx); err != nil {
			t.Fatal(err)
		}
		id, ok := n.Lease()
		if ids := ended(t, d); ok || len(ids) != 1 || ids[0] != id {
			t.Errorf("may start something: %v; ended %v, want %v", ok, ids, id)
		}
		join(t, d, "one", "another folder") // at once
	})
}

func TestLeaderJob(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		first, other := join(t, d, "first", "folder"), join(t, d, "other", "another folder")
		isLeader := func(err error) bool {
			if err != nil && !errors.Is(err, lease.ErrNotLeader) {
				t.Fatal(err)
			}
			return err == nil
		}
		alone := func(n *lease.Node) bool { return isLeader(n.AcquireLeaderJob(t.Context(), "numbering")) }
		asGuard := func(n *lease.Node) bool {
			return isLeader(d.Write(t.Context(), 0, &db.Mutation{Guard: func(b *db.Batch) { n.GuardLeaderJob(b, "numbering") }}))
		}
		for name, has := range map[string]func(*lease.Node) bool{"alone": alone, "guard": asGuard} {
			holder, waits := first, other
			if has(other) {
				holder, waits = other, first
			}
			if !has(holder) || has(waits) || !has(holder) {
				t.Errorf("%s: the duty is not one node's alone", name)
			}
			clock.both(t, d, lease.DefaultDuration+time.Second) // without a renewal
			if has(holder) || has(waits) {
				t.Errorf("%s: a node without a lease has a duty", name)
			}
			if err := waits.Renew(t.Context()); err == nil {
				t.Errorf("%s: the loss was not told", name)
			}
			if !has(waits) {
				t.Errorf("%s: nobody took the duty over", name)
			}
			if err := holder.Renew(t.Context()); err == nil {
				t.Errorf("%s: the loss was not told", name)
			}
			if has(holder) || !has(waits) {
				t.Errorf("%s: the former holder took it back", name)
			}
		}
	})
}

var (
	oldNode = db.SQL(`INSERT INTO node (id, name, seen_at) SELECT COALESCE(MAX(id), 0) + 1, $1, {now} - $2 FROM node`)
	nodeIs  = db.SQL(`SELECT name FROM node WHERE id = $1`)
	nodeOf  = db.SQL(`UPDATE node SET name = $2 WHERE id = $1`)
)

// Where each process has its own name, as in containers, the numbers of nodes that have long been
// absent are assigned again.
func TestNodeNumbersRunOut(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := openWithClock(t, url)
		living := join(t, d, "living", "living")
		if err := d.Tx(t.Context(), func(tx *db.Tx) error {
			for i := range 1022 {
				ago := 48 * time.Hour
				if i >= 2 { // it may be alive
					ago = time.Hour
				}
				if _, err := tx.Exec(t.Context(), oldNode.With(fmt.Sprint("old ", i), ago.Microseconds())); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		numbers := map[int64]bool{living.Number: true}
		var last *lease.Node
		for range 2 {
			last = join(t, d, fmt.Sprint("new ", len(numbers)), "new")
			numbers[last.Number] = true
		}
		if len(numbers) != 3 || !numbers[2] || !numbers[3] {
			t.Errorf("numbers %v", numbers)
		}
		if again := join(t, d, "new 1", "new"); !numbers[again.Number] {
			t.Errorf("by the same name it is number %d", again.Number)
		}
		if _, err := lease.Join(t.Context(), d, lease.Options{Name: "one more", Holder: "more"}); err == nil {
			t.Error("the number of a node that may live was given again")
		}
		var name string
		if err := d.One(t.Context(), nodeIs.With(living.Number), &name); err != nil || name != "living" {
			t.Errorf("%q, %v", name, err)
		}
		// A node that was frozen for days notices that another has its number.
		dbtest.Exec(t, d, nodeOf.With(living.Number, "another"))
		if err := living.Renew(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if _, ok := living.Lease(); ok {
			t.Error("both make the same ids")
		}
	})
}

// Two nodes that start at the same time, as containers do, get different numbers.
func TestNodeNumbersGivenAtOnce(t *testing.T) {
	url := dbtest.Postgres(t)
	d, _ := openWithClock(t, url)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		for i := range 1023 {
			if _, err := tx.Exec(t.Context(), oldNode.With(fmt.Sprint("old ", i), (48*time.Hour).Microseconds())); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var second *lease.Node
	if err := d.Tx(t.Context(), func(tx *db.Tx) (err error) {
		if _, err = tx.Exec(t.Context(), nodeOf.With(1, "first")); err == nil { // is about to get it
			second, err = lease.Join(t.Context(), d, lease.Options{Name: "second", Holder: "second"})
		}
		return err
	}); err != nil || second.Number != 2 {
		t.Errorf("%+v, %v", second, err)
	}
}

var (
	ownPID    = db.SQL(`SELECT pg_backend_pid()`)
	waitingOn = db.SQL(`SELECT COUNT(*) FROM pg_stat_activity WHERE CAST($1 AS INTEGER) = ANY(pg_blocking_pids(pid))`)
)

// The same holds for numbers that were never assigned.
func TestNodesAddedAtOnce(t *testing.T) {
	d, _ := openWithClock(t, dbtest.Postgres(t))
	type answer struct {
		*lease.Node
		error
	}
	joined := make(chan answer, 1)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), oldNode.With("first", 0)); err != nil { // is about to get it
			return err
		}
		go func() {
			n, err := lease.Join(t.Context(), d, lease.Options{Name: "second", Holder: "second"})
			joined <- answer{n, err}
		}()
		var pid, waits int
		if err := tx.One(t.Context(), ownPID.With(), &pid); err != nil {
			return err
		}
		for waits == 0 && len(joined) == 0 {
			if err := d.One(t.Context(), waitingOn.With(pid), &waits); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := <-joined; got.error != nil || got.Number != 2 {
		t.Errorf("%+v, %v", got.Node, got.error)
	}
}

// waiting waits until n goroutines wait for the writer.
func waiting(n int) {
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		found := 0
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "[select") && strings.Contains(stack, "sqliteEngine).lockWriter(") {
				found++
			}
		}
		if found >= n {
			return
		}
	}
}

// On SQLite, where all wait for the one writer, a renewal gets it next.
func TestRenewBeforeACrowd(t *testing.T) {
	var before, first atomic.Int32 // transactions that ran, and those of them before the renewal
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.SQLite(t), Now: func() time.Time {
		first.CompareAndSwap(-1, before.Load())
		return time.Now()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	n := join(t, d, "one", "here")
	const crowd = 20
	began, let, done := make(chan bool), make(chan bool), make(chan error)
	go func() {
		done <- d.Tx(context.Background(), func(*db.Tx) error {
			began <- true
			<-let
			return nil
		})
	}()
	<-began
	for range crowd {
		go func() {
			done <- d.Tx(context.Background(), func(*db.Tx) error {
				before.Add(1)
				return nil
			})
		}()
	}
	waiting(crowd)
	first.Store(-1)
	go func() { done <- n.Renew(t.Context()) }()
	waiting(crowd + 1)
	close(let)
	for range crowd + 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := first.Load(); n != 0 {
		t.Errorf("%d of %d others came first", n, crowd)
	}
}

// Many ordinary transactions don't delay the renewal of the lease.
func TestRenewInACrowd(t *testing.T) {
	d, _ := openWithClock(t, dbtest.Postgres(t))
	n := join(t, d, "one", "here")
	began, let, done := make(chan bool), make(chan bool), make(chan error)
	crowd := max(16, runtime.NumCPU())
	for range crowd {
		go func() {
			first := true
			done <- d.Tx(context.Background(), func(*db.Tx) error {
				if first {
					first = false
					began <- true
				}
				<-let
				return nil
			})
		}()
	}
	for range crowd {
		<-began
	}
	if err := n.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	close(let)
	for range crowd {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestNodes(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		leasetest.Open(t, url)
		look, err := db.OpenInspector(t.Context(), db.InspectOptions{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close() //nolint:errcheck // it only reads
		nodes, err := lease.Nodes(t.Context(), look)
		if err != nil || len(nodes) != 1 || nodes[0].Name != "test" || !nodes[0].Live || nodes[0].Holder != "test" || nodes[0].LastSeen.IsZero() {
			t.Errorf("nodes %+v, %v", nodes, err)
		}
	})
}
