// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/quota"
)

// fixture is a database with nodes and an account.
type fixture struct {
	*testing.T
	db      *db.DB
	account db.ID
	now     atomic.Int64 // microseconds
}

func each(t *testing.T, f func(h *fixture)) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := &fixture{T: t, db: d}
		h.set(time.Date(2026, 5, 4, 10, 30, 0, 0, time.UTC))
		h.account = h.customer("ann@example.com")
		f(h)
	})
}

var newAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, '', 'active', 0)`)

func (h *fixture) customer(email string) db.ID {
	h.Helper()
	id := h.db.NewID()
	dbtest.Exec(h, h.db, newAccount.With(id, email))
	return id
}

func (h *fixture) set(t time.Time)                { h.now.Store(t.UnixMicro()) }
func (h *fixture) Now() time.Time                 { return time.UnixMicro(h.now.Load()) }
func (h *fixture) pass(d time.Duration)           { h.set(h.Now().Add(d)) }
func (h *fixture) who() quota.Consumer            { return quota.Consumer{Account: h.account} }
func (h *fixture) rates(r quota.Rates)            { h.change(quota.AccountLimits{Rates: r}) }
func (h *fixture) change(set quota.AccountLimits) { h.changed(h.node(quota.AccountLimits{}), set) }
func (h *fixture) events() []event.Event          { return h.eventsOf(h.account) }
func (h *fixture) used(n *quota.Limiter) string {
	h.Helper()
	text := ""
	all, err := n.Usage(h.Context(), h.who())
	if err != nil {
		h.Fatal(err)
	}
	for _, u := range all {
		text += fmt.Sprintf("%d/%d ", u.Used, u.Limit)
	}
	return text
}

// node returns another node, without any state.
func (h *fixture) node(defaults quota.AccountLimits) *quota.Limiter {
	hub := &notify.Hub{}
	return &quota.Limiter{DB: h.db, Events: &event.Log{DB: h.db, Hub: hub, Now: h.Now}, Hub: hub, Defaults: defaults, Now: h.Now}
}

func (h *fixture) changed(n *quota.Limiter, set quota.AccountLimits) {
	h.Helper()
	if err := n.SetOverrides(h.Context(), h.account, set); err != nil {
		h.Fatal(err)
	}
}

var eventsOf = db.SQL(`SELECT id, kind, data FROM event WHERE account = $1`)

func (h *fixture) eventsOf(account db.ID) []event.Event {
	h.Helper()
	found, err := db.All(h.Context(), h.db, eventsOf.With(account), func(r db.Row) (e event.Event, err error) {
		var data string
		err = r.Scan(&e.ID, &e.Type, &data)
		e.Data = json.RawMessage(data)
		return e, err
	})
	if err != nil {
		h.Fatal(err)
	}
	return found
}

// send sends n messages with one recipient each.
func (h *fixture) send(on *quota.Limiter, n int) error {
	_, err := on.Reserve(h.Context(), h.who(), n, n)
	return err
}

func (h *fixture) sent(on *quota.Limiter, n int) {
	h.Helper()
	if err := h.send(on, n); err != nil {
		h.Fatalf("%d more: %v", n, err)
	}
}

func (h *fixture) refused(err error, kind fault.Kind, code string, retry time.Duration) {
	h.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != kind || f.Code != code || f.RetryAfter != retry {
		h.Errorf("got %#v, want %v %s, again in %v", err, kind, code, retry)
	}
}

// Concurrent sends on any nodes pass exactly up to the limit.
func TestRace(t *testing.T) {
	each(t, func(h *fixture) {
		for _, c := range []struct{ limit, workers, sends int }{{60, 100, 1}, {1000, 100, 15}} {
			h.pass(24 * time.Hour)
			h.rates(quota.Rates{SendsPerDay: int64(c.limit)})
			nodes := []*quota.Limiter{h.node(quota.AccountLimits{}), h.node(quota.AccountLimits{})}
			var passed atomic.Int64
			var all sync.WaitGroup
			for i := range c.workers {
				all.Go(func() {
					for range c.sends {
						err := h.send(nodes[i%2], 1)
						if err == nil {
							passed.Add(1)
						} else if !fault.Is(err, fault.RateLimited) {
							h.Error(err)
						}
					}
				})
			}
			all.Wait()
			late := 0 // drawn quota of nodes whose callers finished before the others
			for _, n := range nodes {
				for h.send(n, 1) == nil {
					late++
				}
			}
			if n := passed.Load(); n+int64(late) != int64(c.limit) || late > c.limit/32 {
				h.Errorf("%d passed of %d, by %d at once, and then %d", n, c.limit, c.workers, late)
			}
		}
	})
}

// A send queries the database only at the end of a block.
func TestBlocks(t *testing.T) {
	each(t, func(h *fixture) {
		n := h.node(quota.Defaults())
		gone, cancel := context.WithCancel(h.Context())
		cancel() // no statement runs with it
		asked := 0
		for range 20_000 {
			if _, err := n.Reserve(gone, h.who(), 1, 1); err != nil {
				asked++
				h.sent(n, 1)
			}
		}
		if asked < 5 || asked > 20 {
			h.Errorf("20,000 sends asked the database %d times", asked)
		}
		if got := h.used(n); got != "20000/1000000 20000/10000000 20000/20000000 " {
			h.Errorf("used %s", got)
		}
	})
}

func TestWindows(t *testing.T) {
	each(t, func(h *fixture) { // the time is 10:30
		h.rates(quota.Rates{SendsPerHour: 10, SendsPerDay: 25, RecipientsPerDay: 100})
		n := h.node(quota.AccountLimits{})
		h.sent(n, 10)
		h.refused(h.send(n, 1), fault.RateLimited, "sends_per_hour_exceeded", 30*time.Minute)
		h.pass(29*time.Minute + 59*time.Second)
		h.refused(h.send(n, 1), fault.RateLimited, "sends_per_hour_exceeded", time.Second)
		h.pass(time.Second)
		h.sent(n, 10)
		h.pass(time.Hour)
		h.refused(h.send(n, 6), fault.RateLimited, "sends_per_day_exceeded", 12*time.Hour)
		h.sent(n, 5)
		h.refused(h.send(n, 1), fault.RateLimited, "sends_per_day_exceeded", 12*time.Hour)
		h.pass(12 * time.Hour)
		h.sent(n, 10)
		if got := h.used(n); got != "10/10 10/25 10/100 " {
			h.Errorf("used %s", got)
		}
		h.refused(h.send(n, 11), fault.Denied, "over_sends_per_hour", 0)
		_, err := n.Reserve(h.Context(), h.who(), 1, 101)
		h.refused(err, fault.Denied, "over_recipients_per_day", 0)
		// The rows of earlier days are deleted.
		var rows int
		if err := h.db.One(h.Context(), windows.With(h.account), &rows); err != nil || rows != 3 {
			h.Errorf("%d windows are kept: %v", rows, err)
		}
	})
}

var windows = db.SQL(`SELECT COUNT(*) FROM quota_window WHERE account = $1`)

func TestAllOrNothing(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{SendsPerHour: 1000, SendsPerDay: 1000, RecipientsPerDay: 100})
		n := h.node(quota.AccountLimits{})
		spent, err := n.Reserve(h.Context(), h.who(), 2, 90)
		if err != nil {
			h.Fatal(err)
		}
		_, err = n.Reserve(h.Context(), h.who(), 5, 11)
		h.refused(err, fault.RateLimited, "recipients_per_day_exceeded", 13*time.Hour+30*time.Minute)
		if got := h.used(n); got != "2/1000 2/1000 90/100 " {
			h.Errorf("used %s", got)
		}
		spent.Release()
		spent.Release()
		if got := h.used(n); got != "0/1000 0/1000 0/100 " {
			h.Errorf("after giving back, used %s", got)
		}
		if err := n.CheckSend(h.Context(), h.who(), 5, 100); err != nil {
			h.Error(err)
		}
		if _, err = n.Reserve(h.Context(), h.who(), 5, 100); err != nil {
			h.Error(err)
		}
		h.refused(n.CheckSend(h.Context(), h.who(), 1, 1), fault.RateLimited, "recipients_per_day_exceeded", 13*time.Hour+30*time.Minute)
		// A node without any state queries the database.
		h.refused(h.node(quota.AccountLimits{}).CheckSend(h.Context(), h.who(), 1, 1), fault.RateLimited, "recipients_per_day_exceeded", 13*time.Hour+30*time.Minute)
		// Quota that is returned after its window has ended is dropped.
		h.pass(24 * time.Hour)
		spent, err = n.Reserve(h.Context(), h.who(), 1, 50)
		if err != nil {
			h.Fatal(err)
		}
		h.pass(24 * time.Hour)
		h.sent(n, 1)
		spent.Release()
		if got := h.used(n); got != "1/1000 1/1000 1/100 " {
			h.Errorf("on the next day, used %s", got)
		}
	})
}

// Unspent quota of a node becomes available to others, unless the node crashes.
func TestGivingBack(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{SendsPerDay: 1000})
		one, two := h.node(quota.AccountLimits{}), h.node(quota.AccountLimits{})
		h.sent(one, 1) // and holds a block
		if got := h.used(two); got == "1/0 1/1000 1/0 " {
			h.Errorf("one drew nothing beside: two sees %s", got)
		}
		if err := one.ReturnIdle(h.Context()); err != nil {
			h.Fatal(err)
		}
		if got := h.used(two); got == "1/0 1/1000 1/0 " {
			h.Error("it gave back what did not lie idle")
		}
		h.pass(5 * time.Second)
		if err := one.ReturnIdle(h.Context()); err != nil {
			h.Fatal(err)
		}
		if got := h.used(two); got != "1/0 1/1000 1/0 " {
			h.Errorf("two sees %s", got)
		}
		h.sent(one, 1)
		if err := one.ReturnAll(h.Context()); err != nil {
			h.Fatal(err)
		}
		h.sent(two, 998)
		h.refused(h.send(two, 1), fault.RateLimited, "sends_per_day_exceeded", 13*time.Hour+29*time.Minute+55*time.Second)

		h.pass(24 * time.Hour)
		crashed := h.node(quota.AccountLimits{})
		h.sent(crashed, 1)
		h.sent(two, 1000-1-16) // at most the first block is lost
		if err := h.send(two, 16); !fault.Is(err, fault.RateLimited) {
			h.Errorf("more than the limit: %v", err)
		}
	})
}

// One warning at 80 % of a window, over all nodes and restarts.
func TestWarning(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{SendsPerHour: 1000, SendsPerDay: 2000, RecipientsPerDay: 10})
		one, two := h.node(quota.AccountLimits{}), h.node(quota.AccountLimits{})
		only := func(n *quota.Limiter, sends, recipients int) {
			h.Helper()
			if _, err := n.Reserve(h.Context(), h.who(), sends, recipients); err != nil {
				h.Fatal(err)
			}
		}
		for range 799 {
			only(one, 1, 0)
		}
		if got := h.events(); len(got) != 0 {
			h.Fatalf("warned before: %s", got[0].Data)
		}
		only(one, 1, 0)
		var all sync.WaitGroup
		for _, n := range []*quota.Limiter{one, two, h.node(quota.AccountLimits{})} {
			for range 5 {
				all.Go(func() { only(n, 1, 0) })
			}
		}
		all.Wait()
		found := h.events()
		if len(found) != 1 || found[0].Type != event.RateLimitWarning ||
			string(found[0].Data) != `{"name":"sends_per_hour","window":"hour","limit":1000,"used":800,"resets_at":"2026-05-04T11:00:00.000Z","api_key_id":null}` {
			h.Fatalf("events: %v %s", found, found[0].Data)
		}
		only(two, 1, 7)
		only(two, 1, 0)
		if got := h.events(); len(got) != 1 {
			h.Errorf("%d warnings of 7 recipients of 10", len(got))
		}
		only(two, 1, 2) // past the mark in one step
		only(one, 1, 1)
		if got := h.events(); len(got) != 2 {
			h.Errorf("%d warnings", len(got))
		}
		h.pass(time.Hour) // the daily limits continue
		only(one, 785, 0)
		only(two, 100, 0)
		if got := h.events(); len(got) != 4 {
			h.Errorf("%d warnings", len(got))
		}
	})
}

// Mail to role addresses does not use the account's limits, and is not blocked when they are
// exhausted. It has its own limit, over all nodes.
func TestRoleMail(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{SendsPerHour: 5, SendsPerDay: 5, RecipientsPerDay: 5})
		role := quota.RoleMailConsumer(h.account)
		nodes := []*quota.Limiter{h.node(quota.AccountLimits{}), h.node(quota.AccountLimits{})}
		h.sent(nodes[0], 5)
		h.refused(h.send(nodes[1], 1), fault.RateLimited, "sends_per_day_exceeded", 13*time.Hour+30*time.Minute)
		warned := len(h.events())
		take := func() (n int32) {
			var all sync.WaitGroup
			var took atomic.Int32
			for i := range 200 {
				all.Go(func() {
					_, err := nodes[i%2].Reserve(h.Context(), role, 1, 3)
					if err == nil {
						took.Add(1)
					} else if !fault.Is(err, fault.RateLimited) {
						h.Error(err)
					}
				})
			}
			all.Wait()
			return took.Load()
		}
		for hour, want := range []int32{100, 100, 100, 100, 100, 0} {
			if n := take(); n != want {
				h.Errorf("in hour %d %d went, want %d", hour, n, want)
			}
			h.pass(time.Hour)
		}
		h.pass(18 * time.Hour)
		if n := take(); n != 100 {
			h.Errorf("the next day %d went", n)
		}
		h.sent(nodes[1], 5)
		if n := len(h.events()) - warned; n != 3 { // the three limits of the account
			h.Errorf("%d warnings", n)
		}
		if got := h.used(nodes[0]); got != "5/5 5/5 5/5 " {
			h.Errorf("used %s", got)
		}
	})
}

func TestKeys(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{SendsPerDay: 100})
		n := h.node(quota.AccountLimits{})
		key := quota.Consumer{Account: h.account, Key: 7, KeyRates: quota.Rates{SendsPerHour: 10}}
		other := quota.Consumer{Account: h.account, Key: 8}
		for range 10 {
			if _, err := n.Reserve(h.Context(), key, 1, 1); err != nil {
				h.Fatal(err)
			}
		}
		_, err := n.Reserve(h.Context(), key, 1, 1)
		h.refused(err, fault.RateLimited, "sends_per_hour_exceeded", 30*time.Minute)
		if _, err := n.Reserve(h.Context(), other, 90, 90); err != nil {
			h.Error(err)
		}
		_, err = n.Reserve(h.Context(), other, 1, 1)
		h.refused(err, fault.RateLimited, "sends_per_day_exceeded", 13*time.Hour+30*time.Minute)
		_, err = n.Reserve(h.Context(), key, 1, 1) // reports the limit that lasts longer
		h.refused(err, fault.RateLimited, "sends_per_day_exceeded", 13*time.Hour+30*time.Minute)
		gauges, err := n.Statuses(h.Context(), key)
		if err != nil || len(gauges) != 2 || gauges[0] != (quota.Status{Name: "sends_per_day", Limit: 100, Window: 24 * time.Hour, Reset: 13*time.Hour + 30*time.Minute}) ||
			gauges[1] != (quota.Status{Name: "sends_per_hour", Key: 7, Limit: 10, Window: time.Hour, Reset: 30 * time.Minute}) {
			h.Errorf("%+v, %v", gauges, err)
		}
		// Other accounts are not affected.
		if _, err := n.Reserve(h.Context(), quota.Consumer{Account: h.customer("bob@example.com")}, 500, 500); err != nil {
			h.Error(err)
		}
		var ofKey int
		for _, e := range h.events() {
			var w quota.Warning
			if err := json.Unmarshal(e.Data, &w); err != nil {
				h.Fatal(err)
			}
			if w.APIKey != nil && *w.APIKey == 7 && w.Used == 8 {
				ofKey++
			}
		}
		if ofKey != 1 {
			h.Errorf("%d warnings of the key's own limit", ofKey)
		}
	})
}

func TestRequests(t *testing.T) {
	each(t, func(h *fixture) {
		h.rates(quota.Rates{RequestsPerSecond: 4, Burst: 10})
		n := h.node(quota.AccountLimits{})
		ask := func(w quota.Consumer) ([]quota.Status, error) { return n.CountRequest(h.Context(), w) }
		for i := range 10 {
			got, err := ask(h.who())
			if err != nil || len(got) != 1 || got[0].Remaining != int64(9-i) || got[0].Limit != 10 || got[0].Window != 3*time.Second {
				h.Fatalf("request %d: %+v, %v", i+1, got, err)
			}
		}
		got, err := ask(h.who())
		h.refused(err, fault.RateLimited, "too_many_requests", 250*time.Millisecond)
		if len(got) != 1 || got[0].Remaining != 0 || got[0].Reset != 250*time.Millisecond {
			h.Errorf("%+v", got)
		}
		h.pass(time.Second)
		key := quota.Consumer{Account: h.account, Key: 7, KeyRates: quota.Rates{RequestsPerSecond: 1}}
		if got, err := ask(key); err != nil || len(got) != 2 || got[1].Key != 7 || got[1].Remaining != 0 {
			h.Errorf("%+v, %v", got, err)
		}
		_, err = ask(key) // does not use the account's limit
		h.refused(err, fault.RateLimited, "too_many_requests", time.Second)
		for range 3 {
			if _, err := ask(h.who()); err != nil {
				h.Error(err)
			}
		}
		h.pass(-time.Hour) // a clock set back
		_, err = ask(h.who())
		h.refused(err, fault.RateLimited, "too_many_requests", 250*time.Millisecond)
	})
}

func TestSettings(t *testing.T) {
	each(t, func(h *fixture) {
		ctx := h.Context()
		n, other := h.node(quota.Defaults()), h.node(quota.Defaults())
		if got, err := n.AccountLimits(ctx, h.account); err != nil || got != quota.Defaults() {
			h.Errorf("%+v, %v", got, err)
		}
		h.sent(other, 100)
		set := quota.Uniform(quota.Unchanged)
		set.SendsPerHour, set.StorageMB = 50, quota.Unlimited
		h.changed(n, set)
		set = quota.Uniform(quota.Unchanged)
		set.RequestsPerSecond = 3
		h.changed(n, set)
		want := quota.Defaults()
		want.SendsPerHour, want.StorageMB, want.RequestsPerSecond, want.Burst = 50, 0, 3, 0
		if got, err := n.AccountLimits(ctx, h.account); err != nil || got != want {
			h.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if got, err := n.Overrides(ctx, h.account); err != nil || got.Burst != quota.Default || got.SendsPerHour != 50 {
			h.Errorf("set are %+v, %v", got, err)
		}
		// A lowered limit takes effect at once, also for drawn quota.
		h.refused(h.send(n, 1), fault.RateLimited, "sends_per_hour_exceeded", 30*time.Minute)
		other.Invalidate(h.account)
		h.refused(h.send(other, 1), fault.RateLimited, "sends_per_hour_exceeded", 30*time.Minute)
		// Without a signal it takes some seconds.
		h.changed(n, quota.Uniform(quota.Default))
		h.pass(5 * time.Second)
		h.sent(other, 1)
		set = quota.Uniform(quota.Unchanged)
		set.Burst, set.SendsPerDay = -3, quota.MaxValue+1
		if err := n.SetOverrides(ctx, h.account, set); !fault.Is(err, fault.Invalid) || len(err.(*fault.Error).Fields) != 2 { //nolint:errorlint,forcetypeassert // exactly this type
			h.Errorf("nonsense: %v", err)
		}
		if err := quota.CheckKeyRates(quota.Rates{RequestsPerSecond: 5, SendsPerDay: 5}, quota.Rates{SendsPerDay: 5}); err != nil {
			h.Error(err)
		}
		if err := quota.CheckKeyRates(quota.Rates{Burst: 6, SendsPerDay: 6}, quota.Rates{RequestsPerSecond: 5, SendsPerDay: 5}); !fault.Is(err, fault.Invalid) || len(err.(*fault.Error).Fields) != 2 { //nolint:errorlint,forcetypeassert // exactly this type
			h.Errorf("above the account: %v", err)
		}
	})
}
