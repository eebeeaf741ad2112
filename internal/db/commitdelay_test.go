// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A few callers that write repeatedly share each commit, and the batcher does not wait for callers
// that stopped.
func TestCallersComeTogether(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		key := d.NewID()
		enough := make(chan time.Time)
		var late atomic.Bool // the next callers come late
		looks := 0
		d.WaitFor(key, func() time.Time {
			looks++ // when jobs have come, when the batch begins, and when it ends
			if looks%3 == 1 && late.Load() {
				return time.Unix(3600, 0)
			}
			return time.Unix(0, 0)
		}, enough)
		told := func(done <-chan error) {
			t.Helper()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		write := func() <-chan error { return d.Enqueue(key, &db.Mutation{Apply: add(d.NewID())}) }
		// together queues n jobs while another's batch is being committed, and
		// waits for the end of that batch.
		together := func(n int) []<-chan error {
			t.Helper()
			begun, end := make(chan struct{}), make(chan struct{})
			first := d.Enqueue(key, &db.Mutation{Guard: func(*db.Batch) { close(begun); <-end }})
			<-begun
			var rest []<-chan error
			for range n {
				rest = append(rest, write())
			}
			close(end)
			told(first)
			return rest
		}

		three := func() {
			t.Helper()
			others := together(2)
			told(d.Enqueue(key, &db.Mutation{Guard: func(*db.Batch) {
				for _, done := range others {
					if len(done) > 0 {
						t.Error("two of three callers had a commit of their own")
					}
				}
			}, Apply: add(d.NewID())}))
			for _, done := range others {
				told(done)
			}
		}
		three()
		late.Store(true)
		told(write()) // a caller an hour later does not wait for the others
		late.Store(false)
		three()
		alone := write()
		enough <- time.Time{} // it waited for the two
		told(alone)
		told(write()) // no caller is expected any more

		told(together(1)[0]) // after a timeout there is no wait
		second := together(1)
		enough <- time.Time{} // then one wait again
		told(second[0])
		for range 3 { // and then three batches without one
			told(together(1)[0])
		}
		second = together(1)
		enough <- time.Time{}
		told(second[0])

		for _, done := range together(8) { // many callers need no wait
			told(done)
		}
	})
}

// A batcher that waits for callers can be closed, and commits the jobs that it has.
func TestCloseEndsTheWait(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, err := db.Open(t.Context(), db.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		key := d.NewID()
		d.WaitFor(key, func() time.Time { return time.Unix(0, 0) }, nil)
		begun, end := make(chan struct{}), make(chan struct{})
		first := d.Enqueue(key, &db.Mutation{Guard: func(*db.Batch) { close(begun); <-end }})
		<-begun
		second := d.Enqueue(key, &db.Mutation{Apply: add(d.NewID())})
		close(end)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}
