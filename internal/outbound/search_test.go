// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	plant = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, reference, tags)
		VALUES ($1, $2, $3, $4, '', '', $5, $6, '', $7, $8, FALSE, FALSE, 1, 0, $9, $9, '', '', 0, $10)`)
	plantDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at,
			lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at)
		VALUES ($1, $2, $3, $4, 'to', 'x.example', $5, $6, $6, NULL, 0, 0, 0, '', '', '', $7)`)
	bookmark = db.SQL(`SELECT position FROM outbound_index_progress WHERE pass = $1`)
)

const farAhead = 4_000_000_000_000_000 // a time after all messages of the test, in microseconds

// planted is a message and what the test expects of it.
type planted struct {
	id, domain, mailbox                         db.ID
	from, subject, thread, order, colour, state string
	tags                                        string
	to                                          []string
	created                                     time.Time
}

// garden is a set of messages planted in the database.
type garden struct {
	t       *testing.T
	s       *servertest.Server
	account db.ID
	random  *rand.Rand
	all     []planted
}

func (g *garden) pick(of ...string) string { return of[g.random.IntN(len(of))] }

// grow plants a message with an id of the given time.
func (g *garden) grow(at time.Time) {
	p := planted{
		id: db.MinIDAt(at) + db.ID(g.random.IntN(4000)), created: at, domain: db.ID(5 + g.random.IntN(2)), mailbox: db.ID(g.random.IntN(3)),
		from:    g.pick("ann@shop.example", "Bob <BOB@shop.example>", "cy@other.example"),
		subject: g.pick("Order ", "Re: your ORDER ", "Invoice ") + g.pick("shipped", "paid", "lost") + fmt.Sprint(" #", g.random.IntN(40)),
		thread:  g.pick("a", "b", "c/d"), order: fmt.Sprint(g.random.IntN(30)), colour: g.pick("red", "blue"),
		state: g.pick("delivered", "delivered", "queued", "bounced", "deferred", "scheduled"),
		tags:  g.pick("", "a", "a b", "b c", "A", "d"),
	}
	for range 1 + g.random.IntN(2) {
		p.to = append(p.to, fmt.Sprintf("%s%d@%s.example", g.pick("u", "U"), g.random.IntN(25), g.pick("x", "y")))
	}
	metadata := fmt.Sprintf(`{"order":%s,"colour":"%s"}`, p.order, p.colour)
	if p.colour == "blue" {
		metadata = fmt.Sprintf(`{"order":%s}`, p.order)
	}
	statements := []db.Statement{plant.With(p.id, g.account, p.domain, p.mailbox, p.from, p.subject, p.thread, metadata, db.Micros(at), p.tags)}
	for n, to := range p.to {
		statements = append(statements, plantDelivery.With(p.id, n, g.account, to, p.state, farAhead, db.Micros(at)))
	}
	dbtest.Exec(g.t, g.s.DB, statements...)
	g.all = append(g.all, p)
	slices.SortFunc(g.all, func(a, b planted) int { return int(min(max(b.id-a.id, -1), 1)) })
}

// question is a filter with its expected meaning.
type question struct {
	what   string
	filter index.Filter
	right  func(p planted) bool
}

func (g *garden) questions() []question {
	oneOf := func(list []string, want string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.HasSuffix(strings.ToLower(s), want) })
	}
	middle := g.all[len(g.all)/2].created
	has := func(p planted, words ...string) bool {
		subject := strings.Fields(strings.ToLower(strings.NewReplacer(":", "", "#", "").Replace(p.subject)))
		return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(subject, w) })
	}
	type f = index.Filter
	return []question{
		{"all", f{}, func(planted) bool { return true }},
		{"recipient", f{Recipients: []string{"U7@X.example"}}, func(p planted) bool { return oneOf(p.to, "u7@x.example") }},
		{"recipients of a domain", f{Recipients: []string{"@y.example"}}, func(p planted) bool { return oneOf(p.to, "@y.example") }},
		{"from", f{From: []string{"bob@SHOP.example"}}, func(p planted) bool { return strings.Contains(p.from, "BOB") }},
		{"from a domain", f{From: []string{"other.example"}}, func(p planted) bool { return strings.HasPrefix(p.from, "cy") }},
		{"subject", f{Subject: "order PAID"}, func(p planted) bool { return has(p, "order", "paid") }},
		{"a rare word", f{Subject: "39"}, func(p planted) bool { return has(p, "39") }},
		{"half a word", f{Subject: "ord"}, func(planted) bool { return false }},
		{"metadata", f{Metadata: map[string]string{"order": "7"}}, func(p planted) bool { return p.order == "7" }},
		{"two of metadata", f{Metadata: map[string]string{"order": "7", "colour": "red"}}, func(p planted) bool { return p.order == "7" && p.colour == "red" }},
		{"a key of metadata", f{MetadataKeys: []string{"colour"}}, func(p planted) bool { return p.colour == "red" }},
		{"a tag", f{Tags: []string{"b"}}, func(p planted) bool { return strings.Contains(p.tags, "b") }},
		{"two tags", f{Tags: []string{"a", "b", "z"}}, func(p planted) bool { return strings.ContainsAny(p.tags, "ab") }},
		{"tags of a domain", f{Tags: []string{"A", "d"}, Domains: []db.ID{6}}, func(p planted) bool { return (p.tags == "A" || p.tags == "d") && p.domain == 6 }},
		{"an unused tag", f{Tags: []string{"z"}}, func(planted) bool { return false }},
		{"thread", f{Thread: "c/d"}, func(p planted) bool { return p.thread == "c/d" }},
		{"mailbox", f{Mailboxes: []db.ID{2}}, func(p planted) bool { return p.mailbox == 2 }},
		{"domain", f{Domains: []db.ID{6}}, func(p planted) bool { return p.domain == 6 }},
		{"bounced", f{Statuses: []queue.State{queue.Bounced}}, func(p planted) bool { return p.state == "bounced" }},
		{"queued", f{Statuses: []queue.State{queue.Queued}}, func(p planted) bool { return p.state == "queued" }},
		{"sending", f{Statuses: []queue.State{queue.Sending}}, func(planted) bool { return false }},
		{"since", f{Since: middle}, func(p planted) bool { return !p.created.Before(middle) }},
		{"until", f{Until: middle}, func(p planted) bool { return p.created.Before(middle) }},
		{"all at once", f{Domains: []db.ID{5}, Recipients: []string{"x.example"}, From: []string{"shop.example"}, Subject: "shipped", Statuses: []queue.State{queue.Delivered}, MetadataKeys: []string{"colour", "order"},
			Thread: "a", Since: middle.Add(-time.Hour), Until: middle.Add(time.Hour)}, func(p planted) bool {
			return p.domain == 5 && oneOf(p.to, "@x.example") && strings.Contains(strings.ToLower(p.from), "@shop") && has(p, "shipped") && p.state == "delivered" &&
				p.colour == "red" && p.thread == "a" && !p.created.Before(middle.Add(-time.Hour)) && p.created.Before(middle.Add(time.Hour))
		}},
		{"two dense ones", f{From: []string{"cy@other.example"}, Statuses: []queue.State{queue.Deferred}, Domains: []db.ID{6}}, func(p planted) bool {
			return strings.HasPrefix(p.from, "cy") && p.state == "deferred" && p.domain == 6
		}},
	}
}

// ask compares all pages of every question, in both directions, with the expected messages.
func (g *garden) ask(when string) {
	g.t.Helper()
	for _, q := range g.questions() {
		var want []db.ID
		for _, p := range g.all {
			if q.right(p) {
				want = append(want, p.id)
			}
		}
		for _, limit := range []int{7, 100} {
			if got := g.pages(q.filter, db.Page{Limit: limit}); !slices.Equal(got, want) {
				g.t.Fatalf("%s: %s by %d: %d messages, want %d", when, q.what, limit, len(got), len(want))
			}
			if got := g.pages(q.filter, db.Page{Limit: limit, Before: 1}); !slices.Equal(got, want) {
				g.t.Fatalf("%s: %s by %d, backwards: %d messages, want %d", when, q.what, limit, len(got), len(want))
			}
		}
	}
}

// pages reads all pages; the result is newest first in either direction.
func (g *garden) pages(f index.Filter, page db.Page) (ids []db.ID) {
	g.t.Helper()
	for {
		found, err := g.s.Outbox.Index.Find(g.t.Context(), g.account, f, page)
		if err != nil {
			g.t.Fatal(err)
		}
		var some []db.ID
		for _, m := range found.Messages {
			some = append(some, m.ID)
		}
		if page.Before != 0 {
			ids = append(some, ids...)
			page.Before = found.Next
		} else {
			ids = append(ids, some...)
			page.After = found.Next
		}
		if !found.More {
			return ids
		}
	}
}

// index runs a pass until it has seen a message, with the clock moved forward by later.
func (g *garden) index(pass int, last db.ID, later time.Duration) {
	g.t.Helper()
	for {
		var upTo db.ID
		if err := g.s.DB.One(g.t.Context(), bookmark.With(pass), &upTo); err != nil {
			g.t.Fatal(err)
		}
		if upTo >= last {
			return
		}
		if _, err := g.s.Outbox.Index.RunBatch(g.t.Context(), pass, time.Now().Add(later)); err != nil {
			g.t.Fatal(err)
		}
	}
}

// Find returns exactly the matching messages, before, while and after the terms are written; the
// service's own indexer runs meanwhile.
func TestFind(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.Create(t.Context(), "garden@example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		g := &garden{t: t, s: s, account: acc.ID, random: rand.New(rand.NewPCG(1, 2))}
		now := time.Now().Truncate(time.Microsecond)
		for i := range 300 {
			g.grow(now.Add(-3*time.Hour + time.Duration(i)*20*time.Second))
		}
		for i := range 30 { // in their order: the first pass may come by, if that takes long
			g.grow(now.Add(time.Duration(i-29) * time.Second / 5))
		}
		g.ask("at once")
		g.index(0, g.all[60].id, 0)
		g.ask("indexed")

		// Some are committed late, when the first pass has seen a later one.
		now = time.Now().Truncate(time.Microsecond)
		g.grow(now)
		g.index(0, g.all[0].id, time.Minute)
		for i := range 30 {
			g.grow(now.Add(-time.Duration(1+i) * time.Second))
		}
		g.index(1, g.all[0].id, 5*time.Minute)
		g.ask("looked at again")
		if ids := (&garden{t: t, s: s, account: acc.ID + 1}).pages(index.Filter{From: []string{"shop.example"}}, db.Page{}); len(ids) > 0 {
			t.Errorf("a stranger finds %v", ids)
		}
	})
}

// All faults of a filter are reported at once.
func TestFindFaults(t *testing.T) {
	many := map[string]string{}
	for i := range 11 {
		many[fmt.Sprint(i)] = "x"
	}
	f := index.Filter{Recipients: []string{"a b@c"}, From: []string{"@"}, Subject: "- !", Metadata: many, MetadataKeys: []string{strings.Repeat("x", 2000)}, Tags: []string{"a b"}, Thread: "a\nb"}
	if got, want := fmt.Sprint(f.Check()), ""; got == want {
		t.Error("nothing is wrong")
	}
	var o outbound.Outbox
	if _, err := o.Index.Find(context.Background(), 1, f, db.Page{}); err == nil {
		t.Error("it was looked for")
	}
	var fields []string
	for _, bad := range faultsOf(t, f.Check()) {
		fields = append(fields, bad.Path+" "+bad.Code)
	}
	want := []string{"recipient invalid_address", "from invalid_address", "subject no_words", "metadata too_many", "metadata_key too_long", "tag invalid_tag", "thread_id invalid_thread_id"}
	if !slices.Equal(fields, want) {
		t.Errorf("got %q, want %q", fields, want)
	}
}

func faultsOf(t *testing.T, err error) []fault.FieldError {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Fatalf("got %v", err)
	}
	return f.Fields
}
