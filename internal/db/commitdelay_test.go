// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// Few callers who write over and over share each commit, and nobody is waited for
// who stayed away.
func TestCallersComeTogether(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := dbtest.Open(t, url)
		key := d.NewID()
		enough := make(chan time.Time)
		var late atomic.Bool // the next to come come late
		looks := 0
		d.WaitFor(key, func() time.Time {
			looks++ // when jobs have come, when they are carried out, and when that has ended
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
		// together has n jobs come while another's batch is being carried out,
		// and waits for the end of that.
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
		told(write()) // who comes an hour later does not wait for the others
		late.Store(false)
		three()
		alone := write()
		enough <- time.Time{} // it waited for the two
		told(alone)
		told(write()) // nobody is known any more

		told(together(1)[0]) // after a wait in vain there is none
		second := together(1)
		enough <- time.Time{} // then again
		told(second[0])
		for range 3 { // and then three times none
			told(together(1)[0])
		}
		second = together(1)
		enough <- time.Time{}
		told(second[0])

		for _, done := range together(8) { // a crowd needs none
			told(done)
		}
	})
}

// A lane that waits for callers ends without them, and what came is carried out.
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
