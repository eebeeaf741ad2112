// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

// DestinationStatus counts the open deliveries of a destination.
type DestinationStatus struct {
	Destination   string
	Waiting       int  // waiting deliveries, due or not
	MoreWaiting   bool // more than Waiting
	Held          int
	MoreHeld      bool
	Leased        int       // currently leased by nodes
	OldestAt      time.Time // acceptance time of the oldest counted delivery
	NextAttemptAt time.Time // of waiting deliveries; zero if there are none, in the past if one is due
	// Deferred reports whether no waiting delivery is due, and at least one was attempted or put
	// off.
	Deferred bool
	// The last reply that deferred a delivery; zero for none.
	Code      int
	Enhanced  string
	Reply     string
	Remote    string
	RepliedAt time.Time
	Hold      *queue.Hold // active hold of the destination; nil for none
}

const (
	// maxCount is the highest count of a destination's deliveries. It keeps each statement short,
	// however many deliveries wait.
	maxCount = 10_000
	// lastReplyRows is how many of the latest deliveries are searched for the last reply.
	lastReplyRows = 20
	// maxLeasedRows is the maximum of leased deliveries to read.
	maxLeasedRows = 200_000
)

// The queries write equality as a range, and the order begins with its column: only the index that
// leads with the column has that order. For held deliveries SQLite would otherwise take the index
// on lease, which contains all of them.
var (
	nextHeldDestinationQuery = db.SQL(`SELECT destination FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND destination > $1
		ORDER BY destination, message, n LIMIT 1`)
	countWaitingQuery = db.SQL(`SELECT COUNT(*), COALESCE(MIN(message), 0), COALESCE(MIN(due_at), 0) FROM (SELECT message, due_at FROM delivery
		WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination >= $1 AND destination <= $1
		ORDER BY destination, due_at LIMIT $2) AS counted`)
	countHeldQuery = db.SQL(`SELECT COUNT(*), COALESCE(MIN(message), 0) FROM (SELECT message FROM delivery
		{sqlite}INDEXED BY delivery_held
		WHERE lease = 0 AND state IN ('scheduled', 'queued', 'deferred') AND destination = $1 ORDER BY message LIMIT $2) AS counted`)
	lastRepliesQuery = db.SQL(`SELECT attempts, code, enhanced, reply, remote_host, updated_at FROM delivery
		WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred') AND destination >= $1 AND destination <= $1
		ORDER BY destination DESC, due_at DESC, message DESC, n DESC LIMIT $2`)
)

// Destinations returns the status of the destinations after one, by name, at most limit. next is
// the name to continue after, "" at the end. If only is not "", the result has only that
// destination. Each statement reads a bounded number of rows by an index and locks nothing.
func (q *Queue) Destinations(ctx context.Context, only, after string, limit int) (list []DestinationStatus, next string, err error) {
	leased, err := q.countLeased(ctx)
	if err != nil {
		return nil, "", err
	}
	holds, err := queue.ReadHolds(ctx, q.DB)
	if err != nil {
		return nil, "", err
	}
	names := []string{only}
	if only == "" {
		if names, next, err = q.nextDestinations(ctx, after, limit, leased, holds); err != nil {
			return nil, "", err
		}
	}
	for _, name := range names {
		out, err := q.destinationStatus(ctx, name)
		if err != nil {
			return nil, "", err
		}
		if h := leased[name]; h != nil {
			out.Leased = h.count
			if out.OldestAt.IsZero() || h.oldest.Before(out.OldestAt) {
				out.OldestAt = h.oldest
			}
		}
		for i := range holds {
			if holds[i].Kind == queue.HoldDestination && holds[i].Target == name {
				out.Hold = &holds[i]
			}
		}
		if out.Waiting+out.Held+out.Leased > 0 || out.Hold != nil {
			list = append(list, out)
		}
	}
	return list, next, nil
}

type leasedCount struct {
	count  int
	oldest time.Time
}

// countLeased counts the leased deliveries by destination.
func (q *Queue) countLeased(ctx context.Context) (map[string]*leasedCount, error) {
	all := map[string]*leasedCount{}
	at := listCursor{Index: indexLeased}
	for rows := 0; at.Index == indexLeased && rows < maxLeasedRows; rows += pageRows {
		some, next, err := q.readPage(ctx, &Filter{}, at, pageRows)
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			h := all[e.Destination]
			if h == nil {
				h = &leasedCount{oldest: e.AcceptedAt}
				all[e.Destination] = h
			}
			h.count++
			if e.AcceptedAt.Before(h.oldest) {
				h.oldest = e.AcceptedAt
			}
		}
		at = next
	}
	return all, nil
}

// nextDestinations returns the next destinations that have open deliveries or an active hold.
func (q *Queue) nextDestinations(ctx context.Context, after string, limit int, leased map[string]*leasedCount, holds []queue.Hold) (names []string, next string, err error) {
	waiting, held := after, after
	ask := true
	for {
		if ask || waiting == after {
			if waiting, _, err = queue.NextWaitingDestination(ctx, q.DB, after); err != nil {
				return nil, "", err
			}
		}
		if ask || held == after {
			err := q.DB.One(ctx, nextHeldDestinationQuery.With(after), &held)
			if errors.Is(err, db.ErrNoRow) {
				held = ""
			} else if err != nil {
				return nil, "", err
			}
		}
		ask = false
		name := ""
		take := func(candidate string) {
			if candidate > after && (name == "" || candidate < name) {
				name = candidate
			}
		}
		take(waiting)
		take(held)
		for candidate := range leased {
			take(candidate)
		}
		for _, h := range holds {
			if h.Kind == queue.HoldDestination {
				take(h.Target)
			}
		}
		switch {
		case name == "":
			return names, "", nil
		case len(names) == limit:
			return names, after, nil
		}
		names = append(names, name)
		after = name
	}
}

// destinationStatus counts the waiting and held deliveries of a destination.
func (q *Queue) destinationStatus(ctx context.Context, name string) (DestinationStatus, error) {
	out := DestinationStatus{Destination: name}
	var waiting, held db.ID
	var due int64
	if err := q.DB.One(ctx, countWaitingQuery.With(name, maxCount+1), &out.Waiting, &waiting, &due); err != nil {
		return out, err
	}
	if err := q.DB.One(ctx, countHeldQuery.With(name, maxCount+1), &out.Held, &held); err != nil {
		return out, err
	}
	out.Waiting, out.MoreWaiting = min(out.Waiting, maxCount), out.Waiting > maxCount
	out.Held, out.MoreHeld = min(out.Held, maxCount), out.Held > maxCount
	for _, id := range []db.ID{waiting, held} {
		if id != 0 && (out.OldestAt.IsZero() || id.Time().Before(out.OldestAt)) {
			out.OldestAt = id.Time()
		}
	}
	if out.Waiting == 0 {
		return out, nil
	}
	out.NextAttemptAt = db.Time(due)
	tried := false
	err := q.DB.Each(ctx, lastRepliesQuery.With(name, lastReplyRows), func(r db.Row) error {
		var code, attempts int
		var enhanced, reply, remote string
		var updated int64
		if err := r.Scan(&attempts, &code, &enhanced, &reply, &remote, &updated); err != nil {
			return err
		}
		if at := db.Time(updated); reply != "" && at.After(out.RepliedAt) {
			out.Code, out.Enhanced, out.Reply, out.Remote, out.RepliedAt = code, enhanced, reply, remote, at
		}
		tried = tried || attempts > 0 || reply != ""
		return nil
	})
	out.Deferred = tried && out.NextAttemptAt.After(q.Now())
	return out, err
}
