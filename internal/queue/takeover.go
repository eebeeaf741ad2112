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
	// chunk bounds how many rows change hands in one transaction.
	chunk = 1000
	// buryAfter is how long an ended tenure is watched: a transaction that was
	// under way when it ended may still commit rows in its name.
	buryAfter = 10 * time.Minute
	// doubtFor is how long after a commit of unknown outcome the rows are
	// compared with the memory.
	doubtFor = time.Minute
)

var (
	// With + 0 no index is asked for the rows, see claim.
	releaseChunk = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE (message, n) IN (
			SELECT message, n FROM delivery WHERE tenure IS NOT NULL AND tenure = $1 ORDER BY message, n LIMIT $2)
		AND tenure + 0 = $1`)
	inHand = db.SQL(`SELECT message, n FROM delivery WHERE tenure IS NOT NULL AND tenure = $1
		AND (message, n) > ($2, $3) ORDER BY message, n LIMIT $4`)
	letGoOne = db.SQL(`UPDATE delivery SET tenure = CASE WHEN hold > 0 THEN 0 ELSE NULL END WHERE message = $1 AND n = $2 AND tenure = $3`)
)

// takeOver releases what ended nodes, and this one's former lives, had in hand.
func (q *Queue) takeOver(ctx context.Context, now time.Time) error {
	ended, err := q.o.DB.Ended(ctx)
	if err != nil {
		return err
	}
	// Another node may have buried some of them.
	maps.DeleteFunc(q.ended, func(id db.ID, _ time.Time) bool { return !slices.Contains(ended, id) })
	for _, id := range ended {
		if mine, _ := q.o.Node.Tenure(); id == mine {
			continue // the node is about to begin another
		}
		if err := q.releaseAll(ctx, id); err != nil {
			return err
		}
		since, known := q.ended[id]
		if !known {
			q.ended[id] = now
		} else if now.Sub(since) >= buryAfter {
			if err := q.o.DB.Bury(ctx, id); err != nil {
				return err
			}
			delete(q.ended, id)
		}
	}
	return nil
}

func (q *Queue) releaseAll(ctx context.Context, tenure db.ID) error {
	total := int64(0)
	for {
		n, err := q.o.DB.Exec(ctx, releaseChunk.With(tenure, chunk))
		if err != nil {
			return err
		}
		if total += n; n < chunk {
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
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	tenure, _ := q.o.Node.Tenure()
	return q.releaseAll(ctx, tenure)
}

// doubts notes that a commit may have left rows in this node's name that it does
// not know of. q.mu is held.
func (q *Queue) doubts() {
	q.doubted = q.o.Now()
	if q.doubt.IsZero() {
		q.doubt = q.doubted
	}
}

// reconcile releases rows that carry this node's name and that it does not
// know of, after a commit whose outcome was unknown.
func (q *Queue) reconcile(ctx context.Context, now time.Time) error {
	q.mu.Lock()
	due := !q.doubt.IsZero() && now.Sub(q.doubt) >= doubtFor
	q.checking = due // so that the claims under way, which are waited for, are the last
	claiming := q.fills > 0
	tenure, ok := q.able()
	q.mu.Unlock()
	if !due || claiming {
		return nil
	}
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.checking = false
		q.startAll()
	}()
	if !ok {
		return nil
	}
	for at := (place{0, -1}); ; {
		rows, err := db.All(ctx, q.o.DB, inHand.With(tenure, at.message, at.n, chunk), func(r db.Row) (p place, err error) {
			return p, r.Scan(&p.message, &p.n)
		})
		if err != nil {
			return err
		}
		if err := q.releaseUnknown(ctx, tenure, rows); err != nil {
			return err
		}
		if len(rows) < chunk {
			break
		}
		at = rows[len(rows)-1]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.doubt = time.Time{}
	if now.Sub(q.doubted) < doubtFor {
		q.doubt = q.doubted
	}
	return nil
}

func (q *Queue) releaseUnknown(ctx context.Context, tenure db.ID, rows []place) error {
	for _, at := range rows {
		q.mu.Lock()
		known := q.hand[at] != nil
		q.mu.Unlock()
		if known {
			continue
		}
		q.o.Log.Warn("a delivery was in hand that nobody knew of", "message", at.message, "n", at.n)
		_, err := q.o.DB.Exec(ctx, letGoOne.With(at.message, at.n, tenure))
		if err != nil {
			return err
		}
	}
	return nil
}
