// SPDX-License-Identifier: Apache-2.0

package stat_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/tag"
)

// tagged is a set of counts by tag, and the expected ones.
type tagged struct {
	*stat.Stats
	t      *testing.T
	log    *event.Log
	now    time.Time
	ledger map[string]ledger // by tag
}

func newTagged(t *testing.T, url string) *tagged {
	d, node := leasetest.Open(t, url)
	s := &tagged{Stats: stat.New(d, slog.New(slog.DiscardHandler)), t: t, now: start, ledger: map[string]ledger{}}
	s.log = &event.Log{DB: d, Node: node, Hub: &notify.Hub{}, Now: func() time.Time { return s.now }}
	return s
}

func (s *tagged) want(tags []string, account, domain db.ID, f func(*stat.Counts)) {
	for _, word := range tags {
		if s.ledger[word] == nil {
			s.ledger[word] = ledger{}
		}
		s.ledger[word].add(account, domain, s.now, f)
	}
}

// record writes events in one transaction and numbers them.
func (s *tagged) record(events ...event.RecordParams) {
	s.t.Helper()
	if err := s.DB.Tx(s.t.Context(), func(tx *db.Tx) error {
		for _, e := range events {
			if err := s.log.Record(s.t.Context(), tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	for n := 1; n > 0; {
		var err error
		if n, err = s.log.AssignPositions(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *tagged) count() {
	s.t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.CountNext(s.t.Context()); err != nil {
			s.t.Error(err)
			return
		}
	}
}

func (s *tagged) accept(messages ...stat.AcceptedMessage) {
	s.t.Helper()
	tags, err := s.TagsOf(s.t.Context(), messages)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.DB.Write(s.t.Context(), 0, &db.Mutation{Apply: func(b *db.Batch) { s.CountAccepted(b, messages, tags) }}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *tagged) total(q stat.Query) stat.Counts {
	s.t.Helper()
	q.From, q.To = start.Add(-time.Hour), s.now.Add(time.Hour)
	_, total, err := s.Read(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	return total
}

// Events and accepted messages count for each of their tags, once, whichever of several counters
// takes them.
func TestCountTags(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := newTagged(t, url)
		random := rand.New(rand.NewPCG(1, 2))
		accounts, domains := []db.ID{1, 2}, []db.ID{5, 6}
		words := []string{"a", "A", "b_c", "b.c", "unused"}
		for range 12 {
			s.now = s.now.Add(time.Duration(random.Int64N(int64(5 * time.Hour))))
			var events []event.RecordParams
			var messages []stat.AcceptedMessage
			for range 60 {
				account, domain := accounts[random.IntN(2)], domains[random.IntN(2)]
				tags := words[random.IntN(2) : 2+random.IntN(3)]
				status := []string{"delivered", "deferred", "bounced", "complained", "suppressed", "failed", "cancelled", "queued"}[random.IntN(8)]
				e := event.RecordParams{Account: account, Domain: domain, Kind: event.DeliveryStatus, Status: status, Tags: tag.Join(tags), Data: struct{}{}}
				switch random.IntN(6) {
				case 0:
					e.Kind = event.Bounce // recorded with a delivery_status
				case 1:
					e.Kind, e.Status = event.Unsubscribe, ""
					s.want(tags, account, domain, func(f *stat.Counts) { f.Unsubscribed++ })
				default:
					s.want(tags, account, domain, states[status])
				}
				events = append(events, e)
				messages = append(messages, stat.AcceptedMessage{Account: account, Domain: domain, At: s.now, Recipients: 2, Tags: tags})
				s.want(tags, account, domain, func(f *stat.Counts) { f.Messages++; f.Accepted += 2 })
			}
			s.accept(messages...)
			s.record(events...)
			var both sync.WaitGroup
			both.Go(s.count)
			both.Go(s.count)
			both.Wait()
		}
		for _, word := range words {
			for _, account := range accounts {
				for _, domain := range []db.ID{0, 5, 6} {
					for _, span := range []time.Duration{stat.Hour, stat.Day} {
						periods, _, err := s.Read(t.Context(), stat.Query{Account: account, Domain: domain, Tag: word, Interval: span, From: start, To: s.now.Add(time.Second)})
						if err != nil {
							t.Fatal(err)
						}
						for _, p := range periods {
							if want := s.ledger[word][fmt.Sprint(account, domain, span, p.Start)]; p.Counts != want {
								t.Errorf("%s of %d, domain %d, %v at %v: %+v, want %+v", word, account, domain, span, p.Start, p.Counts, want)
							}
						}
					}
				}
			}
		}
	})
}

// Of many tags an account's first ones of a day are counted, in full.
func TestManyTags(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := newTagged(t, url)
		name := func(n int) string { return fmt.Sprint("order-", n) }
		message := func(n int) stat.AcceptedMessage {
			return stat.AcceptedMessage{Account: 1, Domain: 5, At: s.now, Recipients: 1, Tags: []string{name(n), "all"}}
		}
		var events []event.RecordParams
		for n := range 1200 {
			events = append(events, event.RecordParams{Account: 1, Domain: 5, Kind: event.DeliveryStatus, Status: "delivered", Tags: name(n) + " all", Data: struct{}{}})
		}
		s.record(events...)
		s.count()
		var messages []stat.AcceptedMessage
		for n := range 1200 {
			messages = append(messages, message(n))
		}
		s.accept(messages...)
		for tag, want := range map[string]stat.Counts{
			"all": {Messages: 1200, Accepted: 1200, Delivered: 1200}, name(0): {Messages: 1, Accepted: 1, Delivered: 1},
			name(998): {Messages: 1, Accepted: 1, Delivered: 1}, name(999): {}, name(1199): {},
		} {
			if got := s.total(stat.Query{Account: 1, Tag: tag, Interval: stat.Day}); got != want {
				t.Errorf("%s: %+v, want %+v", tag, got, want)
			}
		}
		if got := s.total(stat.Query{Account: 1, Interval: stat.Day}); got.Delivered != 1200 || got.Messages != 1200 {
			t.Errorf("without a tag: %+v", got)
		}
		// Another account, and the next day, have tags of their own.
		s.accept(stat.AcceptedMessage{Account: 2, Domain: 7, At: s.now, Recipients: 1, Tags: []string{name(1199)}})
		s.now = s.now.Add(stat.Day)
		s.accept(message(1199))
		for account := range db.ID(2) {
			if got := s.total(stat.Query{Account: account + 1, Tag: name(1199), Interval: stat.Day}); got.Messages != 1 {
				t.Errorf("account %d: %+v", account+1, got)
			}
		}
	})
}

var tagRows = db.SQL(`SELECT (SELECT COUNT(*) FROM stat_tag) + (SELECT COUNT(*) FROM stat_tag_accepted), (SELECT COUNT(*) FROM stat_tag_day)`)

// Hours of tags are kept as long as other hours, days for TagRetention.
func TestPruneTags(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := newTagged(t, url)
		for n := range 40 {
			s.now = start.Add(time.Duration(n) * 25 * stat.Day)
			s.record(event.RecordParams{Account: 1, Domain: 5, Kind: event.DeliveryStatus, Status: "delivered", Tags: "a b", Data: struct{}{}})
			s.accept(stat.AcceptedMessage{Account: 1, Domain: 5, At: s.now, Recipients: 1, Tags: []string{"a", "b"}})
		}
		s.count()
		for n := 1; n > 0; {
			var err error
			if n, err = s.PruneTags(t.Context(), s.now.Add(-stat.TagRetention), 20); err != nil || n > 25 {
				t.Fatal(n, err)
			}
		}
		for span, want := range map[time.Duration]int64{stat.Hour: int64(stat.HourlyRetention/(25*stat.Day)) + 1, stat.Day: int64(stat.TagRetention / (25 * stat.Day))} {
			for _, domain := range []db.ID{0, 5} {
				got := s.total(stat.Query{Account: 1, Domain: domain, Tag: "a", Interval: span})
				if got.Delivered != want || got.Messages != want {
					t.Errorf("%v, domain %d: %+v, want %d", span, domain, got, want)
				}
			}
		}
		var counts, days int
		if err := s.DB.One(t.Context(), tagRows.With(), &counts, &days); err != nil || days != 2*30 || counts != 2*2*2*(4+30) {
			t.Errorf("%d rows of counts, %d of days, %v", counts, days, err)
		}
	})
}
