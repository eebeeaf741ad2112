// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var (
	home = netip.MustParseAddr("2001:db8::1")
	ann  = audit.Actor{Kind: audit.ActorUser, ID: 7, Name: "ann@example.com", IP: home}
)

const account, other = db.ID(100), db.ID(200)

func list(t *testing.T, l *audit.Log, of db.ID) []audit.Entry {
	t.Helper()
	all, _, err := l.List(t.Context(), of, db.Page{Limit: db.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLog(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		l := &audit.Log{DB: d, Now: func() time.Time { return now }}
		ctx := t.Context()
		if err := l.Write(ctx, audit.Entry{Account: account, Actor: ann, Description: "Did one thing."}); err != nil {
			t.Fatal(err)
		}
		p, err := l.Begin(ctx, audit.Entry{Account: account, Actor: ann, Action: "setThing", Object: "1", Description: "Set a thing."})
		if err != nil {
			t.Fatal(err)
		}
		if e := list(t, l, account)[0]; e.State != audit.StatePending || e.Description != "Set a thing." || e.Action != "setThing" || e.Object != "1" || e.Actor != ann || !e.At.Equal(db.Time(db.Micros(now))) {
			t.Errorf("begun: %+v", e)
		}
		long := "Copied “" + strings.Repeat("a", 600) + "é"
		if err := p.Done(ctx, long, "2"); err != nil {
			t.Fatal(err)
		}
		if e := list(t, l, account)[0]; e.State != audit.StateDone || !strings.HasPrefix(long, e.Description) || len(e.Description) != 500 || e.Object != "2" {
			t.Errorf("done: %+v", e)
		}
		for _, end := range []func(*audit.PendingEntry) error{
			func(p *audit.PendingEntry) error { return p.Discard(ctx) }, func(p *audit.PendingEntry) error { return p.Fail(ctx) },
		} {
			p, err := l.Begin(ctx, audit.Entry{Account: account, Actor: ann, Description: "Tried."})
			if err == nil {
				err = end(p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if all := list(t, l, account); len(all) != 3 || all[0].State != audit.StateFailed || all[0].Description != "Tried." {
			t.Errorf("after one that was dropped and one that failed: %+v", all)
		}
		if all := list(t, l, other); len(all) != 0 {
			t.Errorf("another account has %+v", all)
		}
		if n, err := l.Prune(ctx, now.Add(time.Second), 2); n != 2 || err != nil {
			t.Error(n, err)
		}
		if n, err := l.Prune(ctx, now.Add(time.Second), 2); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

// Reads of one object make one entry an hour, and denied attempts are bounded, even when many come
// at the same time.
func TestBounded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		l := &audit.Log{DB: d, Now: func() time.Time { return now }}
		read := func(object string, who audit.Actor) {
			t.Helper()
			if err := l.RecordRead(t.Context(), audit.Entry{Account: account, Actor: who, Action: "mail.read", Object: object, Description: "Read a message."}); err != nil {
				t.Fatal(err)
			}
		}
		bob := audit.Actor{Kind: audit.ActorUser, ID: 8, Name: "bob@example.com", IP: home}
		for range 3 {
			read("1", ann)
			read("2", ann)
			read("1", bob)
		}
		if all := list(t, l, account); len(all) != 3 {
			t.Errorf("%d entries: %+v", len(all), all)
		}
		now = now.Add(2 * time.Hour) // existing entries are older than an hour
		read("1", ann)
		if all := list(t, l, account); len(all) != 4 {
			t.Errorf("two hours later %d entries", len(all))
		}
		now = time.Now()
		var tries sync.WaitGroup
		const nodes = 8
		for n := range nodes {
			tries.Go(func() {
				for range 50 {
					if err := l.RecordDenied(t.Context(), audit.Entry{Account: other, Actor: audit.Actor{Kind: audit.ActorAnonymous, Name: "x"}, Action: "sign-in", Description: strings.Repeat("x", n)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		tries.Wait()
		// On PostgreSQL, concurrent statements may count the same rows, and all insert theirs.
		if all := list(t, l, other); len(all) < 20 || len(all) > 20+nodes {
			t.Errorf("%d refused attempts are noted", len(all))
		}
		denied := audit.Entry{Account: other, Actor: audit.Actor{Kind: audit.ActorAnonymous, Name: "x"}, Action: "sign-in", Object: "another", Description: "Failed."}
		if err := l.RecordDenied(t.Context(), denied); err != nil {
			t.Fatal(err)
		}
		if all := list(t, l, other); all[0].Object != "another" {
			t.Error("attempts on one person hide those on another")
		}
	})
}
