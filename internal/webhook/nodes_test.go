// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/webhook"
)

var (
	endLease    = db.SQL(`UPDATE lease SET expires_at = 0 WHERE id = $1`)
	batcherFree = db.SQL(`SELECT COUNT(*) FROM webhook_dispatch WHERE lease IS NULL`)
)

// pair creates two nodes of one service: on PostgreSQL as two processes would.
func pair(t *testing.T, url string) (one, two *fixture) {
	t.Helper()
	one = build(t, url)
	second := one.db
	if one.db.Engine() == db.Postgres {
		var err error
		if second, err = db.Open(t.Context(), db.Options{URL: url}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Close() })
	}
	node, err := lease.Join(t.Context(), second, lease.Options{Name: "second", Holder: "folder"})
	if err != nil {
		t.Fatal(err)
	}
	two = furnish(t, second, node)
	two.account = one.account
	return one, two
}

// When a node's lease expires, another node continues its deliveries, and later outcomes of the
// first one no longer count.
func TestTakeOver(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		one, two := pair(t, url)
		hold, open := make(chan struct{}), make(chan struct{})
		r := listen(t, func(w http.ResponseWriter, r request) {
			if r.n == 1 {
				close(hold)
				<-open
			}
		})
		w, _ := one.create(r.URL)
		one.record(event.Bounce, 5)
		one.cutOff = true
		one.run()
		<-hold
		leaseID, _ := one.node.Lease()
		dbtest.Exec(t, one.db, endLease.With(leaseID))
		two.run()
		bodies := map[string][]byte{}
		for range 5 {
			got := r.next()
			bodies[got.Header.Get("X-Event-ID")] = got.body
			two.outcome()
		}
		close(open)
		late := r.next()
		if !bytes.Equal(bodies[late.Header.Get("X-Event-ID")], late.body) || len(bodies) != 5 {
			t.Error("sent again with another id or body")
		}
		if o := <-one.told; o.err == nil {
			t.Error("the node without a lease wrote an outcome")
		}
		for id := range bodies {
			n, err := db.ParseID(id)
			if err != nil {
				t.Fatal(err)
			}
			if d, attempts := two.delivery(w.ID, n); d.State != webhook.Delivered || len(attempts) != 1 {
				t.Errorf("%+v, %+v", d, attempts)
			}
		}
		one.stop()
	})
}

// A node that stops leaves all webhooks to others.
func TestLeave(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		one, two := pair(t, url)
		hold, open := make(chan struct{}), make(chan struct{})
		r := listen(t, func(w http.ResponseWriter, r request) {
			if r.n == 1 {
				close(hold)
				<-open
			}
		})
		one.create(r.URL)
		one.record(event.Bounce, 300)
		one.run()
		<-hold
		var ending sync.WaitGroup
		ending.Go(one.stop)
		close(open) // running attempts may end
		ending.Wait()
		sent := r.n.Load()
		var free int
		if err := one.db.One(t.Context(), batcherFree.With(), &free); err != nil || free != 1 {
			t.Fatalf("%d lanes are free, %v", free, err)
		}
		two.run()
		for range 300 - sent {
			two.outcome()
		}
		if n := r.n.Load(); n != 300 {
			t.Errorf("%d requests", n)
		}
	})
}

// With two sequencers and many writers, each event creates one delivery for each webhook.
func TestFollowOnce(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		one, two := pair(t, url)
		const hooks, writers, each = 3, 4, 60
		var made []db.ID
		for range hooks {
			w, _ := one.create("https://127.0.0.1:9999/")
			made = append(made, w.ID)
		}
		var writing, numbering sync.WaitGroup
		for w := range writers {
			h := [2]*fixture{one, two}[w%2]
			writing.Go(func() {
				for range each {
					h.record(event.Bounce, 1)
				}
			})
		}
		done := make(chan struct{})
		for _, h := range []*fixture{one, two} {
			numbering.Go(func() {
				for last := false; ; {
					n, err := h.log.AssignPositions(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if n == 0 && last {
						return
					}
					select {
					case <-done:
						last = true
					default:
					}
				}
			})
		}
		writing.Wait()
		close(done)
		numbering.Wait()
		one.newest() // events that the node without the leader job left
		two.newest()
		for _, id := range made {
			if n := one.count(id, ""); n != writers*each {
				t.Errorf("%d deliveries of %d events", n, writers*each)
			}
		}
	})
}

// On PostgreSQL each statement sees what others have committed before it. A webhook that changes
// while its deliveries are created keeps those already created.
func TestChangedWhileFollowed(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		h := build(t, url)
		r := listen(t, nil)
		w, _ := h.create(r.URL, event.Bounce)
		// The change comes right after the statement that creates deliveries.
		change := "UPDATE webhook SET kinds = ' complaint ', revision = revision + 1;"
		if h.db.Engine() == db.SQLite {
			dbtest.Exec(t, h.db, db.SQL("CREATE TRIGGER change AFTER INSERT ON webhook_delivery BEGIN "+change+" END").With())
		} else {
			dbtest.Exec(t, h.db, db.SQL("CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN "+
				strings.ReplaceAll(change, "'", "''")+" RETURN NULL; END'").With(),
				db.SQL("CREATE TRIGGER change AFTER INSERT ON webhook_delivery FOR EACH STATEMENT EXECUTE FUNCTION change()").With())
		}
		h.record(event.Bounce, 1)
		h.newest()
		if is := h.hook(w.ID); is.Kinds[0] != event.Complaint {
			t.Fatalf("it was not changed: %v", is.Kinds)
		}
		due := 0
		if err := h.db.One(t.Context(), db.SQL("SELECT COUNT(*) FROM webhook_dispatch WHERE due_at > 0").With(), &due); err != nil || due != 1 {
			t.Fatalf("nobody comes for what waits: %d, %v", due, err)
		}
		h.run()
		r.next()
		h.outcome()
	})
}
