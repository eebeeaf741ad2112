// SPDX-License-Identifier: Apache-2.0

// Package stat counts the mail of an account by hour and by day, per domain and in total. Events
// are counted soon after they got their positions, accepted messages in the commit that makes them
// findable. Each is counted exactly once, even after failures. Read adds the few events that are
// not counted yet, unless it reads the counts of a tag. Reading a year of counts costs no more for a million messages a day.
//
// An event or a message counts in the hour in which a node recorded or accepted it, by that node's
// clock, in UTC. Daily counts are kept for ever, those of tags for TagRetention, and hourly counts
// for HourlyRetention.
package stat

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// The lengths of periods.
const (
	Hour = time.Hour
	Day  = 24 * time.Hour
)

// HourlyRetention is how long hourly counts are kept.
const HourlyRetention = 90 * Day

// Counts are numbers of messages and recipients. All but Messages and Inbound count recipients: a
// message to three counts as three accepted. A delivery may count in several states, as it may be
// deferred, delivered, and bounced later.
type Counts struct {
	Messages     int64 // accepted messages
	Accepted     int64 // recipients of accepted messages
	Delivered    int64
	Deferred     int64 // deferred at least once
	Bounced      int64
	Complained   int64
	Suppressed   int64
	Failed       int64
	Cancelled    int64
	Unsubscribed int64
	Inbound      int64 // messages filed in a mailbox
}

func (f *Counts) add(g Counts) {
	f.Messages += g.Messages
	f.Accepted += g.Accepted
	f.Delivered += g.Delivered
	f.Deferred += g.Deferred
	f.Bounced += g.Bounced
	f.Complained += g.Complained
	f.Suppressed += g.Suppressed
	f.Failed += g.Failed
	f.Cancelled += g.Cancelled
	f.Unsubscribed += g.Unsubscribed
	f.Inbound += g.Inbound
}

// BounceRate returns the share of bounced deliveries, 0 to 1, among delivered and bounced ones. ok
// is false if there are none.
func (f Counts) BounceRate() (rate float64, ok bool) {
	return ratio(f.Bounced, f.Delivered+f.Bounced)
}

// ComplaintRate returns the number of complaints per delivered message. ok is false if nothing was
// delivered.
func (f Counts) ComplaintRate() (rate float64, ok bool) { return ratio(f.Complained, f.Delivered) }

func ratio(n, of int64) (float64, bool) {
	if of == 0 {
		return 0, false
	}
	return float64(n) / float64(of), true
}

// Stats counts events and accepted messages, and reads the counts.
type Stats struct {
	DB   *db.DB
	log  *slog.Logger
	wake chan struct{} // buffered, for one signal
}

// Query selects counts of an account.
type Query struct {
	Account  db.ID
	Domain   db.ID         // 0 for all of its domains
	Tag      string        // "" for all messages, with or without tags
	Interval time.Duration // Hour or Day
	From, To time.Time     // periods that begin in this range; the first one contains From
}

// Start returns the start of the first period.
func (q Query) Start() time.Time { return q.From.UTC().Truncate(q.Interval) }

// PeriodCount returns the number of periods.
func (q Query) PeriodCount() int {
	length := q.To.Sub(q.Start()) // 292 years at most
	n := max(0, length/q.Interval)
	if length%q.Interval > 0 {
		n++
	}
	return int(n)
}

// Period is an hour or a day with its counts.
type Period struct {
	Start time.Time
	Counts
}

var (
	eventCountsQuery = db.SQL(`SELECT period, delivered, deferred, bounced, complained, suppressed, failed, cancelled, unsubscribed, inbound FROM stat
		WHERE account = $1 AND domain = $2 AND span = $3 AND period >= $4 AND period < $5
		UNION ALL SELECT created_at - created_at % $3, CASE WHEN status = 'delivered' THEN 1 ELSE 0 END, CASE WHEN status = 'deferred' THEN 1 ELSE 0 END,
			CASE WHEN status = 'bounced' THEN 1 ELSE 0 END, CASE WHEN status = 'complained' THEN 1 ELSE 0 END,
			CASE WHEN status = 'suppressed' THEN 1 ELSE 0 END, CASE WHEN status = 'failed' THEN 1 ELSE 0 END,
			CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END, CASE WHEN kind = 'unsubscribe' THEN 1 ELSE 0 END,
			CASE WHEN kind = 'inbound_email' THEN 1 ELSE 0 END FROM event
		WHERE account = $1 AND (domain = $2 OR $2 = 0) AND position IS NOT NULL AND position > (SELECT position FROM stat_position WHERE id = 1)
			AND created_at >= $4 AND created_at < $5 AND kind IN ('delivery_status', 'unsubscribe', 'inbound_email')`)
	acceptedCountsQuery = db.SQL(`SELECT period, messages, recipients FROM stat_accepted
		WHERE account = $1 AND domain = $2 AND span = $3 AND period >= $4 AND period < $5 ORDER BY period`)
)

// Read returns every period of the query, including empty ones, and their total. The caller must
// limit PeriodCount.
func (s *Stats) Read(ctx context.Context, q Query) (periods []Period, total Counts, err error) {
	begin := q.Start()
	periods = make([]Period, q.PeriodCount())
	for i := range periods {
		periods[i].Start = begin.Add(time.Duration(i) * q.Interval)
	}
	at := func(period int64) *Counts { // the queries return no other periods
		return &periods[db.Time(period).Sub(begin)/q.Interval].Counts
	}
	eventCounts, acceptedCounts := eventCountsQuery, acceptedCountsQuery
	args := []any{q.Account, q.Domain, q.Interval.Microseconds(), begin.UnixMicro(), begin.Add(time.Duration(len(periods)) * q.Interval).UnixMicro()}
	if q.Tag != "" {
		eventCounts, acceptedCounts, args = tagEventCountsQuery, tagAcceptedCountsQuery, append(args, q.Tag)
	}
	err = s.DB.Each(ctx, eventCounts.With(args...), func(r db.Row) error {
		var period int64
		var f Counts
		err := r.Scan(&period, &f.Delivered, &f.Deferred, &f.Bounced, &f.Complained, &f.Suppressed, &f.Failed, &f.Cancelled, &f.Unsubscribed, &f.Inbound)
		if err == nil {
			at(period).add(f)
		}
		return err
	})
	if err != nil {
		return nil, total, err
	}
	err = s.DB.Each(ctx, acceptedCounts.With(args...), func(r db.Row) error {
		var period int64
		var f Counts
		err := r.Scan(&period, &f.Messages, &f.Accepted)
		if err == nil {
			at(period).add(f)
		}
		return err
	})
	for _, p := range periods {
		total.add(p.Counts)
	}
	return periods, total, err
}
