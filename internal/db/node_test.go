// SPDX-License-Identifier: Apache-2.0

package db_test

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
)

var (
	// pass lets time go by on the database's clock, as the leases see it.
	pass     = db.SQL(`UPDATE tenure SET expires_at = expires_at - $1 WHERE expires_at > 0`)
	passDuty = db.SQL(`UPDATE duty SET expires_at = expires_at - $1`)
	left     = db.SQL(`SELECT expires_at - {now} FROM tenure WHERE id = $1`)
)

// clock is a clock that the test moves.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock {
	c := &clock{}
	now := time.Now()
	c.at.Store(&now)
	return c
}

func (c *clock) now() time.Time { return *c.at.Load() }

func (c *clock) forward(d time.Duration) {
	now := c.now().Add(d)
	c.at.Store(&now)
}

// both lets time go by here and at the database.
func (c *clock) both(t *testing.T, d *db.DB, by time.Duration) {
	t.Helper()
	c.forward(by)
	passes(t, d, by)
}

func passes(t *testing.T, d *db.DB, by time.Duration) {
	t.Helper()
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), pass.With(by.Microseconds()))
		if err == nil {
			_, err = tx.Exec(t.Context(), passDuty.With(by.Microseconds()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func openWithClock(t *testing.T, url string) (*db.DB, *clock) {
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

func join(t *testing.T, d *db.DB, name, holder string) *db.Node {
	t.Helper()
	n, err := d.Join(t.Context(), name, holder)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ended(t *testing.T, d *db.DB) []db.ID {
	t.Helper()
	ids, err := d.Ended(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestTenure(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, first := dbtest.Open(t, url)
		if _, err := d.Join(t.Context(), "test", "another folder"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second process of one name joined: %v", err)
		}
		other := join(t, d, "other", "another folder")
		if other.Number == first.Number {
			t.Fatalf("both are node %d", first.Number)
		}
		again := join(t, d, "test", "test") // the same folder's next process
		was, _ := first.Tenure()
		now, ok := again.Tenure()
		if ids := ended(t, d); !ok || now == was || again.Number != first.Number || len(ids) != 1 || ids[0] != was {
			t.Errorf("ended %v, want %v; now %v, %v", ids, was, now, ok)
		}
		if err := d.Bury(t.Context(), now); err != nil { // it lives: nothing happens
			t.Error(err)
		}
		if err := d.Bury(t.Context(), was); err != nil {
			t.Error(err)
		}
		if ids := ended(t, d); len(ids) != 0 {
			t.Errorf("still ended: %v", ids)
		}
		if err := again.Renew(t.Context()); err != nil {
			t.Errorf("the living one was buried: %v", err)
		}
	})
}

// Whoever has the folder of an SQLite database is alone, whatever its former
// process was called. Of a shared database a copied folder proves nothing.
func TestTenureRenamed(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, first := dbtest.Open(t, url)
		was, _ := first.Tenure()
		join(t, d, "another name", "test")
		if ids := ended(t, d); slices.Contains(ids, was) != (d.Engine() == db.SQLite) {
			t.Errorf("ended: %v", ids)
		}
	})
}

// A node that can't renew stops before others may take over, and what it held
// is theirs even if it comes back.
func TestTenureLost(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		was, ok := n.Tenure()
		if !ok {
			t.Fatal("a new node may start nothing")
		}
		clock.both(t, d, db.Lease*2/3-time.Second)
		if _, ok := n.Tenure(); !ok {
			t.Error("stopped too early")
		}
		clock.both(t, d, time.Second)
		if _, ok := n.Tenure(); ok || !n.Holds(was) {
			t.Error("after two thirds of the lease it still starts things, or does not finish what it began")
		}
		if ids := ended(t, d); len(ids) != 0 {
			t.Errorf("others may take over before the lease is over: %v", ids)
		}
		if _, err := d.Join(t.Context(), "one", "another folder"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another process took the name before the lease was over: %v", err)
		}
		clock.both(t, d, db.Lease/3+time.Second)
		if ids := ended(t, d); len(ids) != 1 || ids[0] != was || n.Holds(was) {
			t.Errorf("nobody may take over: %v; and the node finishes things: %v", ids, n.Holds(was))
		}
		if err := n.Renew(t.Context()); err == nil {
			t.Error("the loss of the lease was not told")
		}
		if now, ok := n.Tenure(); !ok || now == was || n.Holds(was) || !n.Holds(now) {
			t.Errorf("tenure %v, %v after %v was lost", now, ok, was)
		}
		if ids := ended(t, d); len(ids) != 1 || ids[0] != was {
			t.Errorf("the lost tenure lives again: %v", ids)
		}
	})
}

// A replaced process can't get its name back.
func TestTenureReplaced(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		clock.both(t, d, db.Lease+time.Second)
		successor, _ := dbtestJoin(t, url)
		if err := n.Renew(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if _, ok := n.Tenure(); ok {
			t.Error("both run under one name")
		}
		if err := successor.Renew(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A process whose name another has taken meanwhile ends: both would make the
// same ids.
func TestKeepReplaced(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, err := db.Open(t.Context(), db.Options{URL: url, Lease: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		n := join(t, d, "one", "folder")
		passes(t, d, db.Lease) // it was held up
		other, _ := openWithClock(t, url)
		join(t, other, "one", "another folder")
		if err := n.Keep(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if id, ok := n.Tenure(); ok || n.Holds(id) {
			t.Error("both run under one name")
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// All nodes of a database have one secret key.
func TestSameKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for range 2 {
			if err := d.SameKey(t.Context(), "one"); err != nil {
				t.Error(err)
			}
			if err := d.SameKey(t.Context(), "another"); !fault.Is(err, fault.Conflict) {
				t.Errorf("a node with another key: %v", err)
			}
		}
	})
}

// dbtestJoin is another process that runs under the name "one".
func dbtestJoin(t *testing.T, url string) (*db.Node, *clock) {
	d, clock := openWithClock(t, url)
	return join(t, d, "one", "another folder"), clock
}

// A lease is measured on the database's clock; that of this machine may be
// wrong by hours.
func TestTenureClocks(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		clock.forward(-6 * time.Hour)
		n := join(t, d, "slow", "folder")
		id, ok := n.Tenure()
		var micros int64
		if err := d.One(t.Context(), left.With(id), &micros); err != nil || !ok {
			t.Fatal(err, ok)
		}
		if got := time.Duration(micros) * time.Microsecond; got > db.Lease || got < db.Lease-10*time.Second {
			t.Errorf("the lease lasts %v", got)
		}
		passes(t, d, db.Lease+time.Second) // and this machine stood still
		if ids := ended(t, d); len(ids) != 1 {
			t.Errorf("ended: %v", ids)
		}
	})
}

// By a clock that is weeks ahead all that waits would expire at once, by others
// what one writes that is weeks behind: who has it does not begin, and starts
// nothing while it is so.
func TestTenureClockAstray(t *testing.T) {
	for side, off := range map[string]time.Duration{"ahead of": 31 * 24 * time.Hour, "behind": -31 * 24 * time.Hour} {
		d, clock := openWithClock(t, dbtest.Postgres(t)) // SQLite has no clock of its own
		clock.forward(off)
		if _, err := d.Join(t.Context(), "one", "folder"); err == nil || !strings.Contains(err.Error(), "hours "+side) {
			t.Errorf("%s: it joined: %v", side, err)
		}
		clock.forward(-off)
		n := join(t, d, "one", "folder")
		clock.forward(off)
		if err := n.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), side) {
			t.Errorf("%s: it was renewed: %v", side, err)
		}
		if id, ok := n.Tenure(); ok || n.Holds(id) {
			t.Errorf("%s: it goes on", side)
		}
		clock.forward(-off)
		if err := n.Renew(t.Context()); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		if _, ok := n.Tenure(); !ok {
			t.Errorf("%s: it does not go on although its clock is right", side)
		}
	}
}

// What a process has made with a clock that was ahead, the next one does not
// make again once the clock is right.
func TestIDsAfterAClockAhead(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		clock.forward(6 * time.Hour)
		d.NewID()
		clock.forward(-6 * time.Hour) // while it runs
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

// Renewing lengthens the lease, here and there.
func TestTenureRenew(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		was, _ := n.Tenure()
		for range 5 {
			clock.both(t, d, db.Lease/2)
			if err := n.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			if now, ok := n.Tenure(); !ok || now != was {
				t.Fatalf("tenure %v, %v; want %v", now, ok, was)
			}
		}
	})
}

// Keep ends the tenure when the node leaves: first here, then for the others.
func TestKeepLeaves(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := openWithClock(t, url)
		n := join(t, d, "one", "folder")
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := n.Keep(ctx); err != nil {
			t.Fatal(err)
		}
		id, ok := n.Tenure()
		if ids := ended(t, d); ok || len(ids) != 1 || ids[0] != id {
			t.Errorf("may start something: %v; ended %v, want %v", ok, ids, id)
		}
		join(t, d, "one", "another folder") // at once
	})
}

func TestDuty(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		first, other := join(t, d, "first", "folder"), join(t, d, "other", "another folder")
		asTx := func(n *db.Node) (has bool) {
			if err := d.Tx(t.Context(), func(tx *db.Tx) error {
				var err error
				has, err = n.Duty(t.Context(), tx, "numbering")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return has
		}
		notMine := errors.New("not mine")
		asGuard := func(n *db.Node) bool {
			err := d.Write(t.Context(), 0, &db.Job{Guard: func(b *db.Batch) { n.HoldDuty(b, "numbering", notMine) }})
			if err != nil && !errors.Is(err, notMine) {
				t.Fatal(err)
			}
			return err == nil
		}
		for name, has := range map[string]func(*db.Node) bool{"tx": asTx, "guard": asGuard} {
			holder, waits := first, other
			if has(other) {
				holder, waits = other, first
			}
			if !has(holder) || has(waits) || !has(holder) {
				t.Errorf("%s: the duty is not one node's alone", name)
			}
			clock.both(t, d, db.Lease+time.Second) // nobody renews
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

// Where each process has a name of its own, as in containers, the numbers of
// those long gone are given again.
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
		var last *db.Node
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
		if _, err := d.Join(t.Context(), "one more", "more"); err == nil {
			t.Error("the number of a node that may live was given again")
		}
		var name string
		if err := d.One(t.Context(), nodeIs.With(living.Number), &name); err != nil || name != "living" {
			t.Errorf("%q, %v", name, err)
		}
		// One that was frozen for days notices that its number is another's.
		dbtest.Exec(t, d, nodeOf.With(living.Number, "another"))
		if err := living.Renew(t.Context()); !fault.Is(err, fault.Conflict) {
			t.Errorf("got %v", err)
		}
		if _, ok := living.Tenure(); ok {
			t.Error("both make the same ids")
		}
	})
}

// Of two that are started at once, as containers are, each gets a number.
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
	var second *db.Node
	if err := d.Tx(t.Context(), func(tx *db.Tx) (err error) {
		if _, err = tx.Exec(t.Context(), nodeOf.With(1, "first")); err == nil { // is about to get it
			second, err = d.Join(t.Context(), "second", "second")
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

// So do those for which there are numbers that nobody had.
func TestNodesAddedAtOnce(t *testing.T) {
	d, _ := openWithClock(t, dbtest.Postgres(t))
	type answer struct {
		*db.Node
		error
	}
	joined := make(chan answer, 1)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), oldNode.With("first", 0)); err != nil { // is about to get it
			return err
		}
		go func() {
			n, err := d.Join(t.Context(), "second", "second")
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

// waiting waits until n goroutines wait for their turn to write.
func waiting(n int) {
	for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
		found := 0
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "[select") && strings.Contains(stack, "sqliteEngine).takeTurn(") {
				found++
			}
		}
		if found >= n {
			return
		}
	}
}

// On SQLite, where all wait for the one writer, the lease is renewed as soon as
// that is free.
func TestRenewBeforeACrowd(t *testing.T) {
	var before, first atomic.Int32 // how many of the crowd were let in, and how many of them before the renewal
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

// A crowd of ordinary transactions does not keep the lease from being renewed.
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
