// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// chunkRows bounds how many rows change hands in one transaction.
	chunkRows = 1000
	// expiredLeaseWatch is how long an ended tenure is watched: a transaction that was
	// under way when it ended may still commit rows in its name.
	expiredLeaseWatch = 10 * time.Minute
	// reconcileAfter is how long after a commit of unknown outcome the rows are
	// compared with the memory.
	reconcileAfter = time.Minute
)

var (
	// With + 0 no index is asked for the rows, see claim.
	releaseLeaseQuery = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE (message, n) IN (
			SELECT message, n FROM delivery WHERE tenure IS NOT NULL AND tenure = $1 ORDER BY message, n LIMIT $2)
		AND tenure + 0 = $1`)
	leasedKeysQuery = db.SQL(`SELECT message, n FROM delivery WHERE tenure IS NOT NULL AND tenure = $1
		AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	releaseOneQuery = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE message = $1 AND n = $2 AND tenure = $3`)
)

// adoptFlags releases what ended nodes, and this one's former lives, had in hand.
func (q *Queue) takeOver(ctx context.Context, now time.Time) error {
	ended, err := q.o.DB.ExpiredLeases(ctx)
	if err != nil {
		return err
	}
	// Another node may have buried some of them.
	maps.DeleteFunc(q.expiredLeases, func(id db.ID, _ time.Time) bool { return !slices.Contains(ended, id) })
	for _, id := range ended {
		if mine, _ := q.o.Node.Lease(); id == mine {
			continue // the node is about to begin another
		}
		if err := q.releaseLease(ctx, id); err != nil {
			return err
		}
		since, known := q.expiredLeases[id]
		if !known {
			q.expiredLeases[id] = now
		} else if now.Sub(since) >= expiredLeaseWatch {
			if err := q.o.DB.DeleteLease(ctx, id); err != nil {
				return err
			}
			delete(q.expiredLeases, id)
		}
	}
	return nil
}

func (q *Queue) releaseLease(ctx context.Context, tenure db.ID) error {
	total := int64(0)
	for {
		n, err := q.o.DB.Exec(ctx, releaseLeaseQuery.With(tenure, chunkRows))
		if err != nil {
			return err
		}
		if total += n; n < chunkRows {
			break
		}
	}
	if total > 0 {
		q.o.Log.Info("deliveries of an ended node were released", "count", total)
	}
	return nil
}

// releaseOwn releases what this node still has in hand when its queue ends.
func (q *Queue) releaseOwn() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	tenure, _ := q.o.Node.Lease()
	return q.releaseLease(ctx, tenure)
}

// markUncertain notes that a commit may have left rows in this node's name that it does
// not know of. q.mu is held.
func (q *Queue) markUncertain() {
	q.uncertainLast = q.o.Now()
	if q.uncertainSince.IsZero() {
		q.uncertainSince = q.uncertainLast
	}
}

// reconcile releases rows that carry this node's name and that it does not
// know of, after a commit whose outcome was unknown.
func (q *Queue) reconcile(ctx context.Context, now time.Time) error {
	q.mu.Lock()
	due := !q.uncertainSince.IsZero() && now.Sub(q.uncertainSince) >= reconcileAfter
	q.reconciling = due // so that the claims under way, which are waited for, are the last
	claiming := q.claims > 0
	tenure, ok := q.usableLease()
	q.mu.Unlock()
	if !due || claiming {
		return nil
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.reconciling = false
		q.resumeAll()
	}()
	if !ok {
		return nil
	}
	for at := (deliveryKey{0, -1}); ; {
		rows, err := db.All(ctx, q.o.DB, leasedKeysQuery.With(tenure, at.message, at.n, chunkRows), func(r db.Row) (p deliveryKey, err error) {
			return p, r.Scan(&p.message, &p.n)
		})
		if err != nil {
			return err
		}
		if err := q.releaseUnknown(ctx, tenure, rows); err != nil {
			return err
		}
		if len(rows) < chunkRows {
			break
		}
		at = rows[len(rows)-1]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uncertainSince = time.Time{}
	if now.Sub(q.uncertainLast) < reconcileAfter {
		q.uncertainSince = q.uncertainLast
	}
	return nil
}

func (q *Queue) releaseUnknown(ctx context.Context, tenure db.ID, rows []deliveryKey) error {
	for _, at := range rows {
		q.mu.Lock()
		known := q.leased[at] != nil
		q.mu.Unlock()
		if known {
			continue
		}
		q.o.Log.Warn("a delivery was in hand that nobody knew of", "message", at.message, "n", at.n)
		_, err := q.o.DB.Exec(ctx, releaseOneQuery.With(at.message, at.n, tenure))
		if err != nil {
			return err
		}
	}
	return nil
}
