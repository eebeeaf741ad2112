// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
)

// reconcileAfter is how long after a commit of unknown outcome the rows are compared with the
// memory.
const reconcileAfter = time.Minute

var (
	nextLeaseQuery = db.SQL(`SELECT lease FROM delivery WHERE lease IS NOT NULL AND lease > $1 AND lease < $2 ORDER BY lease LIMIT 1`)
	// The + 0 keeps the outer query from using an index, see claimQuery.
	releaseLeaseQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE (message, n) IN (
			SELECT message, n FROM delivery WHERE lease IS NOT NULL AND lease = $1 ORDER BY message, n LIMIT $2)
		AND lease + 0 = $1`)
	leasedKeysQuery = db.SQL(`SELECT message, n FROM delivery WHERE lease IS NOT NULL AND lease = $1
		AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	releaseOneQuery = db.SQL(`UPDATE delivery SET lease = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE message = $1 AND n = $2 AND lease = $3`)
)

// takeOver releases the deliveries of expired leases, also of this node's earlier ones.
func (q *Queue) takeOver(ctx context.Context) error {
	return q.o.Node.TakeOver(ctx, nextLeaseQuery, q.releaseLease)
}

func (q *Queue) releaseLease(ctx context.Context, leaseID db.ID) error {
	total := int64(0)
	for {
		n, err := q.o.DB.Exec(ctx, releaseLeaseQuery.With(leaseID, lease.BatchRows))
		if err != nil {
			return err
		}
		if total += n; n < lease.BatchRows {
			break
		}
	}
	if total > 0 {
		q.o.Log.Info("deliveries of an ended node were released", "count", total)
	}
	return nil
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
	if err := lease.ReleaseOrphans(ctx, q.o.DB, func(above deliveryKey) db.Statement {
		return leasedKeysQuery.With(leaseID, above.Message, above.N, lease.BatchRows)
	}, scanDeliveryKey, q.isLeased, func(p deliveryKey) db.Statement {
		q.o.Log.Warn("a delivery was leased that this node did not know of", "message", p.Message, "n", p.N)
		return releaseOneQuery.With(p.Message, p.N, leaseID)
	}); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uncertainSince = time.Time{}
	if now.Sub(q.uncertainLast) < reconcileAfter {
		q.uncertainSince = q.uncertainLast
	}
	return nil
}

// isLeased reports whether this node has leased a delivery, as far as it knows.
func (q *Queue) isLeased(p deliveryKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dispatch.Find(p) != nil
}

func scanDeliveryKey(r db.Row) (p deliveryKey, err error) { return p, r.Scan(&p.Message, &p.N) }
