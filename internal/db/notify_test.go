// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A server that stops answering right after a connection begins does not block a batcher.
func TestSilentServer(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	d, err := db.Open(t.Context(), db.Options{URL: proxy.URL, IdleTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // nothing to lose
	id := d.NewID()
	proxy.SilenceNext.Store(1)
	if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil || !stored(t, d, id) {
		t.Error(err)
	}
	if proxy.SilenceNext.Load() > 0 {
		t.Error("no connection was silent")
	}
}

// Nodes receive each other's notifications. After a connection was lost, or died silently, missed
// is called.
func TestListen(t *testing.T) {
	target := dbtest.Postgres(t)
	proxy := dbtest.StartProxy(t, target)
	teller := dbtest.Open(t, target)
	d, err := db.Open(t.Context(), db.Options{URL: proxy.URL, IdleTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	heard, missed, ended := make(chan string, 100), make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- d.Listen(ctx, func(payload string) { heard <- payload }, func() { missed <- struct{}{} })
	}()
	tell := func(what string) {
		t.Helper()
		if err := teller.Notify(t.Context(), what); err != nil {
			t.Fatal(err)
		}
		for what != <-heard { // all tests share the channel
		}
	}
	<-missed
	tell(fmt.Sprint(d.NewID()))
	for _, lose := range []func(){proxy.Cut, proxy.SilenceOpen} {
		// An idle connection in the pool is lost as well.
		if err := d.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		lose()
		<-missed
		tell(fmt.Sprint(d.NewID()))
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
