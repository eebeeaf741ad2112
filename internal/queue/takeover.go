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
	// chunkRows is the maximum of rows that one transaction claims or releases.
	chunkRows = 1000
	// expiredLeaseWatch is how long an expired lease is watched: a transaction that was open when
	// it expired may still commit rows with that lease.
	expiredLeaseWatch = 10 * time.Minute
	// reconcileAfter is how long after a commit of unknown outcome the rows are compared with the
	// memory.
	reconcileAfter = time.Minute
)

var (
	// The + 0 keeps the outer query from using an index, see claimQuery.
	releaseLeaseQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE (message, n) IN (
			SELECT message, n FROM delivery WHERE lease IS NOT NULL AND lease = $1 ORDER BY message, n LIMIT $2)
		AND lease + 0 = $1`)
	leasedKeysQuery = db.SQL(`SELECT message, n FROM delivery WHERE lease IS NOT NULL AND lease = $1
		AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	releaseOneQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE message = $1 AND n = $2 AND lease = $3`)
)

// takeOver releases the deliveries of expired leases, also of this node's earlier ones.
func (q *Queue) takeOver(ctx context.Context, now time.Time) error {
	ended, err := lease.Expired(ctx, q.o.DB)
	if err != nil {
		return err
	}
	// Another node may have deleted some of them.
	maps.DeleteFunc(q.expiredLeases, func(id db.ID, _ time.Time) bool { return !slices.Contains(ended, id) })
	for _, id := range ended {
		if mine, _ := q.o.Node.Lease(); id == mine {
			continue // the node is about to acquire a new lease
		}
		if err := q.releaseLease(ctx, id); err != nil {
			return err
		}
		since, known := q.expiredLeases[id]
		if !known {
			q.expiredLeases[id] = now
		} else if now.Sub(since) >= expiredLeaseWatch {
			if err := lease.Delete(ctx, q.o.DB, id); err != nil {
				return err
			}
			delete(q.expiredLeases, id)
		}
	}
	return nil
}

func (q *Queue) releaseLease(ctx context.Context, leaseID db.ID) error {
	total := int64(0)
	for {
		n, err := q.o.DB.Exec(ctx, releaseLeaseQuery.With(leaseID, chunkRows))
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

// releaseOwn releases the deliveries that this node still has leased when its queue ends.
func (q *Queue) releaseOwn() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	leaseID, _ := q.o.Node.Lease()
	return q.releaseLease(ctx, leaseID)
}

// markUncertain records that a commit may have left rows with this node's lease that are unknown in
// memory. q.mu is held.
func (q *Queue) markUncertain() {
	q.uncertainLast = q.o.Now()
	if q.uncertainSince.IsZero() {
		q.uncertainSince = q.uncertainLast
	}
}

// reconcile releases rows with this node's lease that are unknown in memory, after a commit of
// unknown outcome.
func (q *Queue) reconcile(ctx context.Context, now time.Time) error {
	q.mu.Lock()
	due := !q.uncertainSince.IsZero() && now.Sub(q.uncertainSince) >= reconcileAfter
	claiming := due && q.dispatch.PauseClaims() > 0 // no new claims start until the running ones have ended
	leaseID, ok := q.usableLease()
	q.mu.Unlock()
	if !due || claiming {
		return nil
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.dispatch.ResumeClaims()
		q.dispatch.Resume()
	}()
	if !ok {
		return nil
	}
	for at := (deliveryKey{N: -1}); ; {
		rows, err := db.All(ctx, q.o.DB, leasedKeysQuery.With(leaseID, at.Message, at.N, chunkRows), func(r db.Row) (p deliveryKey, err error) {
			return p, r.Scan(&p.Message, &p.N)
		})
		if err != nil {
			return err
		}
		if err := q.releaseUnknown(ctx, leaseID, rows); err != nil {
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

func (q *Queue) releaseUnknown(ctx context.Context, leaseID db.ID, rows []deliveryKey) error {
	for _, at := range rows {
		q.mu.Lock()
		known := q.dispatch.Find(at) != nil
		q.mu.Unlock()
		if known {
			continue
		}
		q.o.Log.Warn("a delivery was leased that this node did not know of", "message", at.Message, "n", at.N)
		_, err := q.o.DB.Exec(ctx, releaseOneQuery.With(at.Message, at.N, leaseID))
		if err != nil {
			return err
		}
	}
	return nil
}
