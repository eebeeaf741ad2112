// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
)

const (
	// retryRequestTTL is how long a retry request is remembered.
	retryRequestTTL = time.Hour
	// allDestinations, as the destination of a retry request, means all destinations.
	allDestinations = ""
	// maxRetryRequests is the maximum of destinations that one request names. More become a
	// request for all.
	maxRetryRequests = 200
)

var (
	retryRequestsQuery      = db.SQL(`SELECT destination, at FROM retry_request WHERE at > $1 ORDER BY at DESC LIMIT $2`)
	insertRetryRequestQuery = db.SQL(`INSERT INTO retry_request (destination, at) VALUES ($1, $2) ON CONFLICT (destination) DO UPDATE SET at = excluded.at`)
	pruneRetryRequestsQuery = db.SQL(`DELETE FROM retry_request WHERE at < $1`)
)

// RequestDestinationRetry makes all nodes try destinations now, even those in backoff. The nodes
// learn of it when they poll, or are woken by notify.Hold.
func RequestDestinationRetry(ctx context.Context, d *db.DB, destinations []string, now time.Time) error {
	if slices.Sort(destinations); len(destinations) > maxRetryRequests {
		destinations = []string{allDestinations}
	}
	return d.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, pruneRetryRequestsQuery.With(db.Micros(now.Add(-retryRequestTTL)))); err != nil {
			return err
		}
		for _, name := range destinations {
			if _, err := tx.Exec(ctx, insertRetryRequestQuery.With(name, db.Micros(now))); err != nil {
				return err
			}
		}
		return nil
	})
}

// applyRetryRequests retries the destinations that operators requested.
func (q *Queue) applyRetryRequests(ctx context.Context, now time.Time) error {
	heard := map[string]int64{}
	err := q.o.DB.Each(ctx, retryRequestsQuery.With(db.Micros(now.Add(-retryRequestTTL)), lease.BatchRows), func(r db.Row) error {
		var name string
		var at int64
		err := r.Scan(&name, &at)
		heard[name] = at
		return err
	})
	if err != nil {
		return err
	}
	before := q.retryRequests
	maps.DeleteFunc(before, func(name string, at int64) bool { return heard[name] != at })
	if len(heard) > len(before) && q.o.ResetBackoff != nil {
		q.o.ResetBackoff()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, at := range heard {
		if before[name] == at {
			continue
		}
		if name == allDestinations {
			q.dispatch.RetryAllDestinations()
		} else {
			q.dispatch.RetryDestination(name)
		}
	}
	q.retryRequests = heard
	return nil
}
