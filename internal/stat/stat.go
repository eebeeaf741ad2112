// SPDX-License-Identifier: Apache-2.0

// Package stat counts what happens to the mail of an account, by hour and by
// day, for each domain and for all of them together. What events tell is counted
// soon after they got their positions, and what was accepted in the commit that
// makes it findable; each exactly once, whatever ends or breaks. Read adds the
// few events that are not counted yet, and to read figures of a year costs no
// more for a million messages a day.
//
// An hour is counted where the event was recorded, or the message accepted, by
// the clock of the node that did so, in UTC. Days are kept for ever, hours for
// HourlyRetention.
package stat

import (
	"context"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// The lengths of a period.
const (
	Hour = time.Hour
	Day  = 24 * time.Hour
)

// HourlyRetention is how long hours are kept.
const HourlyRetention = 90 * Day

// StatusUnsubscribed is the status of an event by which a recipient's unsubscribing is
// counted.
const StatusUnsubscribed = "unsubscribed"

// Counts say how often what happened. All but Messages count recipients: a
// message to three is accepted three times. A delivery may be counted in several
// states, as it may be deferred, delivered, and bounced later all the same.
type Counts struct {
	Messages     int64 // that were accepted
	Accepted     int64 // their recipients
	Delivered    int64
	Deferred     int64 // at least once
	Bounced      int64
	Complained   int64
	Suppressed   int64
	Failed       int64
	Cancelled    int64
	Unsubscribed int64
	Inbound      int64 // messages that were filed in a mailbox
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

// BounceRate is the share, 0 to 1, that bounced of what came to an answer:
// delivered or bounced. ok is false if nothing did.
func (f Counts) BounceRate() (rate float64, ok bool) {
	return ratio(f.Bounced, f.Delivered+f.Bounced)
}

// ComplaintRate is how many complaints came for each delivery. ok is false if
// nothing was delivered.
func (f Counts) ComplaintRate() (rate float64, ok bool) { return ratio(f.Complained, f.Delivered) }

func ratio(n, of int64) (float64, bool) {
	if of == 0 {
		return 0, false
	}
	return float64(n) / float64(of), true
}

// Stats counts, and tells what was counted.
type Stats struct {
	DB   *db.DB
	log  *slog.Logger
	wake chan struct{} // has room for one
}

// Query chooses figures of an account.
type Query struct {
	Account  db.ID
	Domain   db.ID         // 0 for all of its domains
	Interval time.Duration // Hour or Day
	From, To time.Time     // the periods that begin in between; From counts with the period that it is in
}

// Start is when the first period begins.
func (q Query) Start() time.Time { return q.From.UTC().Truncate(q.Interval) }

// PeriodCount is how many there are.
func (q Query) PeriodCount() int {
	length := q.To.Sub(q.Start()) // 292 years at most
	n := max(0, length/q.Interval)
	if length%q.Interval > 0 {
		n++
	}
	return int(n)
}

// Period is an hour or a day.
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
			CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END, CASE WHEN status = 'unsubscribed' THEN 1 ELSE 0 END,
			CASE WHEN kind = 'inbound_email' THEN 1 ELSE 0 END FROM event
		WHERE account = $1 AND (domain = $2 OR $2 = 0) AND position IS NOT NULL AND position > (SELECT position FROM stat_upto WHERE id = 1)
			AND created_at >= $4 AND created_at < $5 AND kind IN ('delivery_status', 'inbound_email')`)
	acceptedCountsQuery = db.SQL(`SELECT period, messages, recipients FROM stat_accepted
		WHERE account = $1 AND domain = $2 AND span = $3 AND period >= $4 AND period < $5 ORDER BY period`)
)

// Read returns every period that was asked for, also those in which nothing
// happened, and all of them together. The caller bounds Periods.
func (s *Stats) Read(ctx context.Context, q Query) (periods []Period, total Counts, err error) {
	begin := q.Start()
	periods = make([]Period, q.PeriodCount())
	for i := range periods {
		periods[i].Start = begin.Add(time.Duration(i) * q.Interval)
	}
	at := func(period int64) *Counts { // the queries find no others
		return &periods[db.Time(period).Sub(begin)/q.Interval].Counts
	}
	args := []any{q.Account, q.Domain, q.Interval.Microseconds(), begin.UnixMicro(), begin.Add(time.Duration(len(periods)) * q.Interval).UnixMicro()}
	err = s.DB.Each(ctx, eventCountsQuery.With(args...), func(r db.Row) error {
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
	err = s.DB.Each(ctx, acceptedCountsQuery.With(args...), func(r db.Row) error {
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
