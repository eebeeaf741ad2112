// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"errors"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

func openAt(t *testing.T, url string, wait time.Duration) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), db.Options{URL: url, OutageWait: wait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// unbounded is shorter than the next limit that would end a wait, which is a minute.
const unbounded = 40 * time.Second

func tries(d *db.DB) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"a read":        func(ctx context.Context) error { return d.One(ctx, anything.With(), new(int64)) },
		"a write":       func(ctx context.Context) error { return d.Write(ctx, d.NewID(), &db.Mutation{Apply: add(d.NewID())}) },
		"a transaction": func(ctx context.Context) error { return d.Tx(ctx, func(*db.Tx) error { return nil }) },
	}
}

// Reads and writes don't wait long for a server that does not answer, over existing or new
// connections, even when many wait.
func TestSilentForLong(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d := openAt(t, proxy.URL, time.Second)
	for _, begin := range []func(){func() {}, proxy.Cut} { // with connections, and without
		proxy.Silent.Store(true)
		begin()
		ctx, cancel := context.WithTimeout(t.Context(), unbounded)
		var all sync.WaitGroup
		for what, try := range tries(d) {
			for range 700 {
				all.Go(func() {
					err := try(ctx)
					var f *fault.Error
					if !errors.As(err, &f) || f.Kind != fault.Unavailable || f.RetryAfter <= 0 {
						t.Errorf("%s: %v", what, err)
					}
				})
			}
		}
		all.Wait()
		if ctx.Err() != nil {
			t.Error("some waited for longer")
		}
		cancel()
		proxy.Cut() // end requests that wait for an answer
		proxy.Silent.Store(false)
		for what, try := range tries(d) {
			if err := try(t.Context()); err != nil {
				t.Errorf("%s when it is back: %v", what, err)
			}
		}
	}
}

// A failover causes no error, though the server refuses connections for longer than a few tries.
func TestFailover(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d := openAt(t, proxy.URL, time.Minute)
	for what, try := range tries(d) {
		before := proxy.Refused.Load()
		proxy.Down.Store(true)
		proxy.Cut()
		ended := make(chan error)
		go func() { ended <- try(t.Context()) }()
		for proxy.Refused.Load() < before+12 {
			select {
			case err := <-ended:
				t.Fatalf("%s ended early: %v", what, err)
			default:
				runtime.Gosched()
			}
		}
		proxy.Down.Store(false)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

var slow = db.SQL(`SELECT 1 FROM pg_sleep(1.5)`)

// A slow statement is not treated as a server that is down.
func TestSlowStatement(t *testing.T) {
	d := openAt(t, dbtest.Postgres(t), 200*time.Millisecond)
	if err := d.One(t.Context(), slow.With(), new(int)); err != nil {
		t.Errorf("a read: %v", err)
	}
	err := d.Tx(t.Context(), func(tx *db.Tx) error { return tx.One(t.Context(), slow.With(), new(int)) })
	if err != nil {
		t.Errorf("a transaction: %v", err)
	}
	id := d.NewID()
	err = d.Write(t.Context(), id, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(slow.With()).One(new(int)) }, Apply: add(id)})
	if err != nil || !stored(t, d, id) {
		t.Errorf("a write: %v", err)
	}
}

// When another server has taken over, connections to the silent old one are dropped.
func TestTakenOver(t *testing.T) {
	u := dbtest.Postgres(t)
	proxy := dbtest.StartProxy(t, u)
	d := openAt(t, proxy.URL, time.Second)
	for what, try := range tries(d) {
		if err := try(t.Context()); err != nil {
			t.Fatal(err)
		}
		proxy.SilenceOpen()
		exec(t, connect(t, u), "TRUNCATE server_incarnation")
		ctx, cancel := context.WithTimeout(t.Context(), unbounded)
		if err := try(ctx); !fault.Is(err, fault.Unavailable) && err != nil || ctx.Err() != nil {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		if err := try(t.Context()); err != nil {
			t.Errorf("%s, the second time: %v", what, err)
		}
	}
}

// A cancelled caller does not count as an outage.
func TestCallerGone(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d := openAt(t, proxy.URL, time.Minute)
	proxy.Down.Store(true)
	proxy.Cut()
	for what, try := range tries(d) {
		if what == "a write" { // waits in a batch, and does not end with its caller
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		before, ended := proxy.Refused.Load(), make(chan error)
		go func() { ended <- try(ctx) }()
		for proxy.Refused.Load() == before {
			runtime.Gosched()
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Once the server has been down for longer than outageWait, callers wait less. Before that it may be
// back in a moment.
func TestAwayForLong(t *testing.T) {
	const wait = 10 * time.Second
	now := time.Now()
	for _, c := range []struct {
		away, want time.Duration
	}{{-1, wait}, {0, wait}, {wait - time.Second, wait}, {wait + time.Second, wait / 5}} {
		if got := db.Until(wait, c.away, now).Sub(now); got != c.want {
			t.Errorf("away for %s: waits for %s, not %s", c.away, got, c.want)
		}
	}
	if got := db.Until(wait, -1, now.Add(-time.Hour)); got.Before(now.Add(wait / 10)) {
		t.Error("what waited for its turn gets no try")
	}
}

// A read that is cut off midway fails with a fault.Unavailable, but the server does not count as
// down.
func TestCutMidway(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d := openAt(t, proxy.URL, time.Minute)
	err := d.Each(t.Context(), manyRows.With(), func(db.Row) error { proxy.Cut(); return nil })
	if !fault.Is(err, fault.Unavailable) || d.Away() {
		t.Errorf("%v; away: %v", err, d.Away())
	}
}

// A job that waits behind others is withdrawn after outageWait, and not committed afterwards.
func TestTakenBack(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d := openAt(t, proxy.URL, time.Second)
	id := d.NewID()
	proxy.Silent.Store(true)
	proxy.Cut()
	var all sync.WaitGroup
	ids := make([]db.ID, 600)
	for i := range ids {
		ids[i] = d.NewID()
		all.Go(func() {
			if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(ids[i])}); !fault.Is(err, fault.Unavailable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	proxy.Cut()
	proxy.Silent.Store(false)
	if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(ids, func(id db.ID) bool { return stored(t, d, id) }) {
		t.Error("a write that failed was carried out")
	}
}

// Callers that wait while all connections are in use get one, however long they wait, as long as
// the server answers.
func TestBusyPool(t *testing.T) {
	d := openAt(t, dbtest.Postgres(t), 200*time.Millisecond)
	var all sync.WaitGroup
	for range 24 { // more than there are connections
		all.Go(func() {
			if err := d.One(t.Context(), slow.With(), new(int)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if d.Away() {
		t.Error("a busy pool counts as an outage")
	}
}

var failOnce = db.SQL(`SELECT fail_once()`)

// createFailOnce creates the function of failOnce. Every other call fails, after half a second.
func createFailOnce(t *testing.T, url, failure string) {
	t.Helper()
	admin := connect(t, url)
	exec(t, admin, `CREATE SEQUENCE once`)
	exec(t, admin, `CREATE FUNCTION fail_once() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_sleep(0.5);
		IF nextval('once') % 2 = 1 THEN `+failure+`; END IF;
		RETURN 1;
	END $$`)
}

// A transaction that the server rolls back in favor of another is repeated, also if it took longer
// than a caller waits for a server that is down.
func TestRetryAfterLong(t *testing.T) {
	u := dbtest.Postgres(t)
	d := openAt(t, u, 200*time.Millisecond)
	createFailOnce(t, u, `RAISE EXCEPTION 'once more' USING ERRCODE = '40001'`)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error { return tx.One(t.Context(), failOnce.With(), new(int)) }); err != nil {
		t.Errorf("a transaction: %v", err)
	}
	id := d.NewID()
	err := d.Write(t.Context(), id, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(failOnce.With()).One(new(int)) }, Apply: add(id)})
	if err != nil || !stored(t, d, id) {
		t.Errorf("a write: %v", err)
	}
}

// A connection that was lost late is replaced, also after the time that a caller waits for a server
// that is down: the process was suspended for longer, and the server ended its transactions.
func TestLostWhileSuspended(t *testing.T) {
	u := dbtest.Postgres(t)
	d := openAt(t, u, 200*time.Millisecond)
	createFailOnce(t, u, `PERFORM pg_terminate_backend(pg_backend_pid())`)
	if err := d.Tx(t.Context(), func(tx *db.Tx) error { return tx.One(t.Context(), failOnce.With(), new(int)) }); err != nil {
		t.Errorf("a transaction: %v", err)
	}
	if err := d.One(t.Context(), failOnce.With(), new(int)); err != nil {
		t.Errorf("a read: %v", err)
	}
	id := d.NewID()
	err := d.Write(t.Context(), id, &db.Mutation{Guard: func(b *db.Batch) { b.Queue(failOnce.With()).One(new(int)) }, Apply: add(id)})
	if err != nil || !stored(t, d, id) {
		t.Errorf("a write: %v", err)
	}
}

// A server of several that says nothing does not hide the one that answers.
func TestProbeOfSeveralServers(t *testing.T) {
	target := dbtest.Postgres(t)
	proxy := dbtest.StartProxy(t, target)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", q.Get("host")+","+direct.Query().Get("host"))
	u.RawQuery = q.Encode()
	d := openAt(t, u.String(), 3*time.Second)
	proxy.Silent.Store(true)
	if err := d.Probe(); err != nil || d.Away() {
		t.Errorf("%v; away: %v", err, d.Away())
	}
}
