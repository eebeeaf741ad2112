// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// recordAll writes events in one transaction.
func recordAll(t *testing.T, l *event.Log, all []event.RecordParams) {
	t.Helper()
	if err := l.DB.Tx(t.Context(), func(tx *db.Tx) error {
		for _, e := range all {
			if err := l.Record(t.Context(), tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// pages reads a list to its end, by position or newest first. It returns the numbers in the events
// and how many pages were empty.
func pages(t *testing.T, l *event.Log, account db.ID, f event.Filter) (got []int, empty int) {
	t.Helper()
	for {
		p, err := l.List(t.Context(), account, f)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, numbers(t, p.Events)...)
		if len(p.Events) == 0 && p.More {
			empty++
		}
		if !p.More {
			return got, empty
		}
		if f.Before > 0 {
			f.Before = p.Last
		} else {
			f.After = p.Last
		}
	}
}

// Every combination of filters finds the matching events, in both directions and within times, and
// none of another account.
func TestFilters(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		began := time.Now()
		account, other := d.NewID(), d.NewID()
		ids := []db.ID{0, d.NewID(), d.NewID()}
		recipients := []string{"", "a@example.org", "b@example.org"}
		r := rand.New(rand.NewPCG(1, 2))
		var all []event.RecordParams
		for i := range 300 {
			e := event.RecordParams{Account: account, Kind: event.Kinds[r.IntN(len(event.Kinds)-1)], Message: ids[r.IntN(3)], Data: data{i},
				Domain: ids[r.IntN(3)], Mailbox: ids[r.IntN(3)], Recipient: recipients[r.IntN(3)],
				Tags: []string{"", "a", "b a", "a-b", "A"}[r.IntN(5)]}
			if r.IntN(3) == 0 {
				e.Account, e.Domain, e.Mailbox = other, e.Domain*2, e.Mailbox*2 // belong to one account
			}
			all = append(all, e)
		}
		recordAll(t, l, all)
		numberAll(t, l)
		kinds := [][]string{nil, {event.Bounce}, {event.RateLimitWarning}, {event.Complaint, event.Bounce, event.Complaint}, event.Kinds[:]}
		for _, k := range kinds {
			for n := range 32 * 3 {
				f := event.Filter{Kinds: k, Limit: 7}
				if n&1 > 0 {
					f.Message = ids[1]
				}
				if n&2 > 0 {
					f.Recipient = recipients[1]
				}
				if n&4 > 0 {
					f.Domain = ids[1]
				}
				if n&8 > 0 {
					f.Mailbox = ids[2]
				}
				if n&16 > 0 {
					f.Tags = []string{"b", "A"}
				}
				switch n / 32 {
				case 1:
					f.Since, f.Until = began.Add(-time.Second), time.Now().Add(time.Second)
				case 2:
					f.Until = began.Add(-time.Second)
				}
				var want []int
				for i, e := range all {
					if e.Account == account && (k == nil || slices.Contains(k, e.Kind)) && (f.Message == 0 || f.Message == e.Message) &&
						(f.Recipient == "" || f.Recipient == e.Recipient) && (f.Domain == 0 || f.Domain == e.Domain) &&
						(f.Mailbox == 0 || f.Mailbox == e.Mailbox) && (f.Tags == nil || e.Tags == "b a" || e.Tags == "A") && n/32 != 2 {
						want = append(want, i)
					}
				}
				if got, _ := pages(t, l, account, f); !slices.Equal(got, want) {
					t.Errorf("%+v: %v, want %v", f, got, want)
				}
				slices.Reverse(want)
				f.Before = math.MaxInt64
				if got, _ := pages(t, l, account, f); !slices.Equal(got, want) {
					t.Errorf("%+v: %v, want %v", f, got, want)
				}
			}
		}
	})
}

var (
	manyEvents = db.SQL(`WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < 4999)
		INSERT INTO event (id, position, account, kind, message, data, content, created_at, domain, mailbox, recipient, status)
		SELECT i + 1, i + 1, CAST($1 AS BIGINT), 'delivery_status', CAST($2 AS BIGINT), '{"n":' || i || '}', 0, i,
			CAST($3 AS BIGINT), CAST($4 AS BIGINT), 'usual@example.org', '' FROM s`)
	rareEvent = db.SQL(`UPDATE event SET kind = $2, message = $3, domain = $4, mailbox = $5, recipient = $6 WHERE id = $1 + 1`)
)

// A list of rare events has them on the first page, however many others there are.
func TestRareEvents(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account, message, domain, mailbox := d.NewID(), d.NewID(), d.NewID(), d.NewID()
		usual := event.RecordParams{Account: account, Kind: event.DeliveryStatus, Message: d.NewID(), Domain: d.NewID(), Mailbox: d.NewID(), Recipient: "usual@example.org"}
		dbtest.Exec(t, d, manyEvents.With(account, usual.Message, usual.Domain, usual.Mailbox))
		for i, e := range map[int]event.RecordParams{
			1:    {Kind: event.Complaint, Domain: domain, Mailbox: mailbox, Message: usual.Message, Recipient: usual.Recipient},
			3:    {Kind: event.Bounce, Domain: usual.Domain, Mailbox: usual.Mailbox, Message: message, Recipient: usual.Recipient},
			2500: {Kind: event.DomainVerified, Domain: usual.Domain, Mailbox: usual.Mailbox, Message: usual.Message, Recipient: "rare@example.org"},
			4998: {Kind: event.Bounce, Domain: domain, Mailbox: mailbox, Message: usual.Message, Recipient: usual.Recipient},
		} {
			dbtest.Exec(t, d, rareEvent.With(i, e.Kind, e.Message, e.Domain, e.Mailbox, e.Recipient))
		}
		for _, c := range []struct {
			f    event.Filter
			want []int
		}{
			{event.Filter{Kinds: []string{event.Complaint}}, []int{1}},
			{event.Filter{Kinds: []string{event.Bounce, event.Complaint}}, []int{1, 3, 4998}},
			{event.Filter{Kinds: []string{event.MailboxCreated, event.DomainVerified, event.Complaint}}, []int{1, 2500}},
			{event.Filter{Kinds: []string{event.MailboxCreated, event.MigrationComplete}}, nil},
			{event.Filter{Message: message}, []int{3}},
			{event.Filter{Recipient: "rare@example.org"}, []int{2500}},
			{event.Filter{Domain: domain}, []int{1, 4998}},
			{event.Filter{Domain: domain, Kinds: []string{event.Bounce}}, []int{4998}},
			{event.Filter{Domain: usual.Domain, Kinds: []string{event.Bounce, event.DomainVerified}}, []int{3, 2500}},
			{event.Filter{Mailbox: mailbox}, []int{1, 4998}},
			{event.Filter{Mailbox: usual.Mailbox, Kinds: []string{event.Complaint}}, nil},
			{event.Filter{Mailbox: usual.Mailbox, Kinds: []string{event.DomainVerified}}, []int{2500}},
		} {
			for _, before := range []int64{0, math.MaxInt64} {
				f := c.f
				f.Before = before
				p, err := l.List(t.Context(), account, f)
				got := numbers(t, p.Events)
				slices.Sort(got)
				if err != nil || p.More || !slices.Equal(got, c.want) {
					t.Errorf("%+v: %v, more: %v, %v; want %v", f, got, p.More, err, c.want)
				}
			}
		}
	})
}

// A reader that follows several kinds, or a domain, while events get their positions misses none
// and gets them in order: a page sees all kinds at one moment.
func TestFollowSeveralKinds(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account, domain := d.NewID(), d.NewID()
		const rounds, each = 60, 16
		done := make(chan error, 1)
		go func() {
			done <- func() error {
				for i := range rounds {
					if err := d.Tx(t.Context(), func(tx *db.Tx) error {
						for j := range each {
							e := event.RecordParams{Account: account, Domain: domain, Kind: event.Kinds[j%len(event.Kinds)], Data: data{i*each + j}}
							if err := l.Record(t.Context(), tx, e); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						return err
					}
					if n, err := l.AssignPositions(t.Context()); err != nil || n != each {
						return fmt.Errorf("numbered %d: %w", n, err)
					}
				}
				return nil
			}()
		}()
		filters := []event.Filter{{Kinds: event.Kinds[:]}, {Domain: domain}}
		got := make([][]int, len(filters))
		read := func() {
			for i, more := 0, true; i < len(filters); i, more = i+1, true {
				for more {
					p, err := l.List(t.Context(), account, filters[i])
					if err != nil {
						t.Fatal(err)
					}
					got[i] = append(got[i], numbers(t, p.Events)...)
					filters[i].After, more = p.Last, p.More
				}
			}
		}
		for ended := false; !ended; read() {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				ended = true // reads its last events once more
			default:
			}
		}
		for i := range got {
			if len(got[i]) != rounds*each || !slices.IsSorted(got[i]) {
				t.Errorf("%+v: %d of %d events, in order: %v", filters[i], len(got[i]), rounds*each, slices.IsSorted(got[i]))
			}
		}
	})
}
