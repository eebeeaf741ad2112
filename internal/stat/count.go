// SPDX-License-Identifier: Apache-2.0

package stat

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// countBatch is how many events are counted in a commit (the 1000 of uncountedQuery), which
	// limits how long the writer is busy.
	countBatch = 1000
	// gatherInterval is how long numbered events are gathered: all events of an hour and a domain
	// change one row. Read counts them meanwhile.
	gatherInterval = time.Second
	// pollInterval is how often a node looks for events that a stopped node left uncounted.
	pollInterval = time.Minute
)

var (
	uncountedQuery = db.SQL(`SELECT u.position, (SELECT COALESCE(MAX(position), u.position) FROM (SELECT position FROM event
			WHERE position IS NOT NULL AND position > u.position ORDER BY position LIMIT 1000) AS next)
		FROM stat_position u WHERE u.id = 1`)
	// advanceQuery decides which of two nodes that read the same position counts.
	advanceQuery = db.SQL(`UPDATE stat_position SET position = $2 WHERE id = 1 AND position = $1 RETURNING id`)
	// countEventsQuery adds the events to the counts of their hour and day, for their domain and
	// for all domains. It first sums them by hour and domain, which are few. It locks rows in key
	// order, as all writers do.
	countEventsQuery = db.SQL(`WITH fresh AS MATERIALIZED (SELECT account, domain, created_at - created_at % 3600000000 AS hour,
				SUM(CASE WHEN status = 'delivered' THEN 1 ELSE 0 END) AS delivered, SUM(CASE WHEN status = 'deferred' THEN 1 ELSE 0 END) AS deferred,
				SUM(CASE WHEN status = 'bounced' THEN 1 ELSE 0 END) AS bounced, SUM(CASE WHEN status = 'complained' THEN 1 ELSE 0 END) AS complained,
				SUM(CASE WHEN status = 'suppressed' THEN 1 ELSE 0 END) AS suppressed, SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) AS failed,
				SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled, SUM(CASE WHEN kind = 'unsubscribe' THEN 1 ELSE 0 END) AS unsubscribed,
				SUM(CASE WHEN kind = 'inbound_email' THEN 1 ELSE 0 END) AS inbound
			FROM event
			WHERE position IS NOT NULL AND position > $1 AND position <= $2 AND kind IN ('delivery_status', 'unsubscribe', 'inbound_email')
			GROUP BY 1, 2, 3),
		form (span, own) AS (VALUES (CAST(3600000000 AS BIGINT), CAST(0 AS BIGINT)), (3600000000, 1), (86400000000, 0), (86400000000, 1))
		INSERT INTO stat (account, domain, span, period, delivered, deferred, bounced, complained, suppressed, failed, cancelled, unsubscribed, inbound)
		SELECT n.account, n.domain * f.own, f.span, n.hour - n.hour % f.span, SUM(n.delivered), SUM(n.deferred), SUM(n.bounced), SUM(n.complained),
			SUM(n.suppressed), SUM(n.failed), SUM(n.cancelled), SUM(n.unsubscribed), SUM(n.inbound)
		FROM fresh n CROSS JOIN form f WHERE f.own = 0 OR n.domain <> 0
		GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
		ON CONFLICT (account, domain, span, period) DO UPDATE SET
			delivered = stat.delivered + excluded.delivered, deferred = stat.deferred + excluded.deferred,
			bounced = stat.bounced + excluded.bounced, complained = stat.complained + excluded.complained,
			suppressed = stat.suppressed + excluded.suppressed, failed = stat.failed + excluded.failed,
			cancelled = stat.cancelled + excluded.cancelled, unsubscribed = stat.unsubscribed + excluded.unsubscribed,
			inbound = stat.inbound + excluded.inbound`)

	addAcceptedQuery = db.SQL(`INSERT INTO stat_accepted (account, domain, span, period, messages, recipients) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (account, domain, span, period) DO UPDATE SET
			messages = stat_accepted.messages + excluded.messages, recipients = stat_accepted.recipients + excluded.recipients`)

	pruneHoursQuery = db.SQL(`DELETE FROM stat WHERE (account, domain, span, period) IN
		(SELECT account, domain, span, period FROM stat WHERE span = 3600000000 AND period < $1 ORDER BY span, period LIMIT $2)`)
	pruneAcceptedQuery = db.SQL(`DELETE FROM stat_accepted WHERE (account, domain, span, period) IN
		(SELECT account, domain, span, period FROM stat_accepted WHERE span = 3600000000 AND period < $1 ORDER BY span, period LIMIT $2)`)
)

// New returns a Stats for the events and messages of d. Run counts.
func New(d *db.DB, log *slog.Logger) *Stats {
	return &Stats{DB: d, log: log, wake: make(chan struct{}, 1)}
}

// Wake reports that events got positions. Use it in event.Log.AfterNumbering.
func (s *Stats) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run counts events until ctx ends. Every node runs it.
func (s *Stats) Run(ctx context.Context) error {
	notify.Repeat(ctx, s.wake, func(ctx context.Context) (time.Duration, error) {
		for {
			more, err := s.CountNext(ctx)
			if err != nil || !more {
				_ = notify.Sleep(ctx, gatherInterval) // Repeat checks ctx
				return pollInterval, err
			}
		}
	}, func(err error) { s.log.Error("counting events failed", "error", err) })
	return nil
}

var errAlreadyCounted = errors.New("another node has counted these events")

// CountNext counts the next events, in a commit of its own. more reports whether there may be
// others.
func (s *Stats) CountNext(ctx context.Context) (more bool, err error) {
	var from, to int64
	if err := s.DB.One(ctx, uncountedQuery.With(), &from, &to); err != nil || from == to {
		return false, err
	}
	tagged, end, err := s.readTaggedEvents(ctx, from, to)
	if err != nil {
		return false, err
	}
	err = s.DB.Write(ctx, 0, &db.Mutation{
		Guard: func(b *db.Batch) { b.Queue(advanceQuery.With(from, end)).OrFail(errAlreadyCounted) },
		Apply: func(b *db.Batch) {
			b.Queue(countEventsQuery.With(from, end))
			tagged.addStatements(b)
		},
	})
	if errors.Is(err, errAlreadyCounted) {
		return true, nil
	}
	return err == nil && (end < to || to-from >= countBatch), err
}

// AcceptedMessage is an accepted message to count.
type AcceptedMessage struct {
	Account, Domain db.ID
	At              time.Time
	Recipients      int
	Tags            []string
}

// countKey identifies a row of counts.
type countKey struct {
	account, domain db.ID
	span            time.Duration
	period          int64
}

// CountAccepted queues the counting of accepted messages. The caller's commit ensures that each is
// counted once. tags is what TagsOf returned for these and possibly other messages.
func (s *Stats) CountAccepted(b *db.Batch, messages []AcceptedMessage, tags DayTags) {
	type sum struct{ messages, recipients int }
	sums := map[countKey]sum{}
	for _, m := range messages {
		for _, span := range []time.Duration{Hour, Day} {
			for _, domain := range slices.Compact([]db.ID{0, m.Domain}) {
				k := countKey{m.Account, domain, span, m.At.UTC().Truncate(span).UnixMicro()}
				n := sums[k]
				sums[k] = sum{n.messages + 1, n.recipients + m.Recipients}
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b countKey) int {
		return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.domain, b.domain), cmp.Compare(a.span, b.span), cmp.Compare(a.period, b.period))
	})
	for _, k := range keys {
		b.Queue(addAcceptedQuery.With(k.account, k.domain, k.span.Microseconds(), k.period, sums[k].messages, sums[k].recipients))
	}
	countAcceptedTags(b, messages, tags)
}

// Prune deletes, in one commit, at most limit hourly rows of both tables whose hour began before a
// time. It returns the number of deleted rows; 0: there are no more.
func (s *Stats) Prune(ctx context.Context, before time.Time, limit int) (n int, err error) {
	err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		n = 0
		for _, q := range []*db.Query{pruneHoursQuery, pruneAcceptedQuery} {
			deleted, err := tx.Exec(ctx, q.With(db.Micros(before), limit/2+1))
			if err != nil {
				return err
			}
			n += int(deleted)
		}
		return nil
	})
	return n, err
}
