// SPDX-License-Identifier: Apache-2.0

package stat

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/tag"
)

const (
	// TagRetention is how long daily counts of tags are kept.
	TagRetention = 750 * Day
	// MaxTagsPerDay is how many tags of an account are counted on a day: the first ones that occur.
	// Two jobs that count new tags at the same moment may exceed it.
	MaxTagsPerDay = 1000
	// maxTagRows is about how many rows of tags one commit changes.
	maxTagRows = 2000
)

var (
	dayTagsQuery      = db.SQL(`SELECT tag FROM stat_tag_day WHERE account = $1 AND day = $2 ORDER BY tag LIMIT 1000`)
	insertDayTagQuery = db.SQL(`INSERT INTO stat_tag_day (account, day, tag) VALUES ($1, $2, $3) ON CONFLICT (account, day, tag) DO NOTHING`)
	taggedEventsQuery = db.SQL(`SELECT position, account, domain, created_at, kind, status, tags FROM event
		WHERE position IS NOT NULL AND position > $1 AND position <= $2 AND kind IN ('delivery_status', 'unsubscribe') AND tags <> '' ORDER BY position`)
	addTagEventsQuery = db.SQL(`INSERT INTO stat_tag (account, tag, domain, span, period, delivered, deferred, bounced, complained, suppressed, failed, cancelled, unsubscribed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (account, tag, domain, span, period) DO UPDATE SET
			delivered = stat_tag.delivered + excluded.delivered, deferred = stat_tag.deferred + excluded.deferred,
			bounced = stat_tag.bounced + excluded.bounced, complained = stat_tag.complained + excluded.complained,
			suppressed = stat_tag.suppressed + excluded.suppressed, failed = stat_tag.failed + excluded.failed,
			cancelled = stat_tag.cancelled + excluded.cancelled, unsubscribed = stat_tag.unsubscribed + excluded.unsubscribed`)
	addTagAcceptedQuery = db.SQL(`INSERT INTO stat_tag_accepted (account, tag, domain, span, period, messages, recipients) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (account, tag, domain, span, period) DO UPDATE SET
			messages = stat_tag_accepted.messages + excluded.messages, recipients = stat_tag_accepted.recipients + excluded.recipients`)

	tagEventCountsQuery = db.SQL(`SELECT period, delivered, deferred, bounced, complained, suppressed, failed, cancelled, unsubscribed, 0 FROM stat_tag
		WHERE account = $1 AND tag = $6 AND domain = $2 AND span = $3 AND period >= $4 AND period < $5 ORDER BY period`)
	tagAcceptedCountsQuery = db.SQL(`SELECT period, messages, recipients FROM stat_tag_accepted
		WHERE account = $1 AND tag = $6 AND domain = $2 AND span = $3 AND period >= $4 AND period < $5 ORDER BY period`)

	pruneDayTagsQuery = db.SQL(`DELETE FROM stat_tag_day WHERE (account, day, tag) IN
		(SELECT account, day, tag FROM stat_tag_day WHERE day < $1 ORDER BY day LIMIT $2)`)
	pruneTagEventsQuery = db.SQL(`DELETE FROM stat_tag WHERE (account, tag, domain, span, period) IN
		(SELECT account, tag, domain, span, period FROM stat_tag WHERE span = $3 AND period < $1 ORDER BY span, period LIMIT $2)`)
	pruneTagAcceptedQuery = db.SQL(`DELETE FROM stat_tag_accepted WHERE (account, tag, domain, span, period) IN
		(SELECT account, tag, domain, span, period FROM stat_tag_accepted WHERE span = $3 AND period < $1 ORDER BY span, period LIMIT $2)`)
)

// accountDay is a day of an account.
type accountDay struct {
	account db.ID
	day     int64 // begin in microseconds
}

func newAccountDay(account db.ID, at time.Time) accountDay {
	return accountDay{account, at.UTC().Truncate(Day).UnixMicro()}
}

// DayTags are the tags that are counted on days: stored (true), or to be stored (false).
type DayTags map[accountDay]map[string]bool

// load reads the stored tags of a day, once.
func (d DayTags) load(ctx context.Context, r db.Reader, k accountDay) error {
	if d[k] != nil {
		return nil
	}
	stored := map[string]bool{}
	err := r.Each(ctx, dayTagsQuery.With(k.account, k.day), func(r db.Row) error {
		var t string
		err := r.Scan(&t)
		stored[t] = true
		return err
	})
	d[k] = stored
	return err
}

// add adds a tag, unless the day has MaxTagsPerDay others. It reports whether the tag is counted.
func (d DayTags) add(k accountDay, t string) bool {
	if _, known := d[k][t]; known {
		return true
	}
	if len(d[k]) >= MaxTagsPerDay {
		return false
	}
	d[k][t] = false
	return true
}

// addStatements stores the new tags that occur in keys.
func (d DayTags) addStatements(b *db.Batch, keys []tagKey) {
	type entry struct {
		accountDay
		tag string
	}
	fresh := map[entry]bool{}
	for _, k := range keys {
		day := newAccountDay(k.account, db.Time(k.period))
		if !d[day][k.tag] {
			fresh[entry{day, k.tag}] = true
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(fresh), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.day, b.day), cmp.Compare(a.tag, b.tag))
	}) {
		b.Queue(insertDayTagQuery.With(e.account, e.day, e.tag))
	}
}

// TagsOf returns which tags of messages are counted.
func (s *Stats) TagsOf(ctx context.Context, messages []AcceptedMessage) (DayTags, error) {
	d := DayTags{}
	for _, m := range messages {
		for _, t := range m.Tags {
			k := newAccountDay(m.Account, m.At)
			if err := d.load(ctx, s.DB, k); err != nil {
				return nil, err
			}
			d.add(k, t)
		}
	}
	return d, nil
}

// tagKey identifies a row of counts of a tag.
type tagKey struct {
	countKey
	tag string
}

func compareTagKeys(a, b tagKey) int {
	return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.tag, b.tag), cmp.Compare(a.domain, b.domain),
		cmp.Compare(a.span, b.span), cmp.Compare(a.period, b.period))
}

// tagKeys returns the rows in which something with a tag counts.
func tagKeys(account, domain db.ID, at time.Time, t string) (keys []tagKey) {
	for _, span := range []time.Duration{Hour, Day} {
		for _, domain := range slices.Compact([]db.ID{0, domain}) {
			keys = append(keys, tagKey{countKey{account, domain, span, at.UTC().Truncate(span).UnixMicro()}, t})
		}
	}
	return keys
}

func countAcceptedTags(b *db.Batch, messages []AcceptedMessage, tags DayTags) {
	type sum struct{ messages, recipients int }
	sums := map[tagKey]sum{}
	for _, m := range messages {
		for _, t := range m.Tags {
			if _, ok := tags[newAccountDay(m.Account, m.At)][t]; !ok {
				continue
			}
			for _, k := range tagKeys(m.Account, m.Domain, m.At, t) {
				n := sums[k]
				sums[k] = sum{n.messages + 1, n.recipients + m.Recipients}
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), compareTagKeys)
	tags.addStatements(b, keys)
	for _, k := range keys {
		b.Queue(addTagAcceptedQuery.With(k.account, k.tag, k.domain, k.span.Microseconds(), k.period, sums[k].messages, sums[k].recipients))
	}
}

// taggedEvents are the counts of events about messages with tags.
type taggedEvents struct {
	days   DayTags
	counts map[tagKey]Counts
}

// readTaggedEvents counts the events between two positions whose messages have tags. It may count
// fewer, to keep the commit small: end is the position of the last one.
func (s *Stats) readTaggedEvents(ctx context.Context, from, to int64) (e taggedEvents, end int64, err error) {
	e = taggedEvents{DayTags{}, map[tagKey]Counts{}}
	type taggedEvent struct {
		position           int64
		account, domain    db.ID
		at                 time.Time
		kind, status, tags string
	}
	events, err := db.All(ctx, s.DB, taggedEventsQuery.With(from, to), func(r db.Row) (v taggedEvent, err error) {
		return v, r.Scan(&v.position, &v.account, &v.domain, db.TimeScanner(&v.at), &v.kind, &v.status, &v.tags)
	})
	if err != nil {
		return e, 0, err
	}
	end = from
	for _, v := range events {
		if len(e.counts) >= maxTagRows {
			return e, end, nil
		}
		k := newAccountDay(v.account, v.at)
		if err := e.days.load(ctx, s.DB, k); err != nil {
			return e, 0, err
		}
		for _, t := range tag.Split(v.tags) {
			if !e.days.add(k, t) {
				continue
			}
			for _, row := range tagKeys(v.account, v.domain, v.at, t) {
				c := e.counts[row]
				c.addEvent(v.kind, v.status)
				e.counts[row] = c
			}
		}
		end = v.position
	}
	return e, to, nil
}

// addStatements adds the statements that count the events.
func (e *taggedEvents) addStatements(b *db.Batch) {
	keys := slices.SortedFunc(maps.Keys(e.counts), compareTagKeys)
	e.days.addStatements(b, keys)
	for _, k := range keys {
		c := e.counts[k]
		b.Queue(addTagEventsQuery.With(k.account, k.tag, k.domain, k.span.Microseconds(), k.period,
			c.Delivered, c.Deferred, c.Bounced, c.Complained, c.Suppressed, c.Failed, c.Cancelled, c.Unsubscribed))
	}
}

// addEvent counts an event of a kind and with a status.
func (f *Counts) addEvent(kind, status string) {
	if kind == event.Unsubscribe {
		f.Unsubscribed++
		return
	}
	switch status {
	case "delivered":
		f.Delivered++
	case "deferred":
		f.Deferred++
	case "bounced":
		f.Bounced++
	case "complained":
		f.Complained++
	case "suppressed":
		f.Suppressed++
	case "failed":
		f.Failed++
	case "cancelled":
		f.Cancelled++
	}
}

// PruneTags deletes, in one commit, at most limit counts of tags: those of days that began before a
// time, TagRetention ago, and those of hours older than HourlyRetention. It returns the number of
// deleted rows; 0: there are no more.
func (s *Stats) PruneTags(ctx context.Context, before time.Time, limit int) (n int, err error) {
	hours := before.Add(TagRetention - HourlyRetention)
	err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		n = 0
		for _, q := range []db.Statement{
			pruneTagEventsQuery.With(db.Micros(hours), limit/5+1, Hour.Microseconds()),
			pruneTagAcceptedQuery.With(db.Micros(hours), limit/5+1, Hour.Microseconds()),
			pruneTagEventsQuery.With(db.Micros(before), limit/5+1, Day.Microseconds()),
			pruneTagAcceptedQuery.With(db.Micros(before), limit/5+1, Day.Microseconds()),
			pruneDayTagsQuery.With(db.Micros(before), limit/5+1),
		} {
			deleted, err := tx.Exec(ctx, q)
			if err != nil {
				return err
			}
			n += int(deleted)
		}
		return nil
	})
	return n, err
}
