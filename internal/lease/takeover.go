// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// BatchRows is the maximum of rows that one transaction claims or releases.
	BatchRows = 1000
	// expiredAge is how long the row of an expired lease stays, so that doctor can name the node.
	expiredAge = 10 * time.Minute
)

var (
	leasesQuery = db.SQL(`SELECT id, expires_at > {now}, expires_at <= {now} - $1 FROM lease ORDER BY id`)
	validQuery  = db.SQL(`SELECT 1 FROM lease WHERE id = $1 AND expires_at > {now}`)
	deleteQuery = db.SQL(`DELETE FROM lease WHERE id = $1 AND expires_at <= {now} - $2`)
)

// TakeOver calls release for each lease that rows carry and that is not valid any more, also for
// this node's earlier ones, so that their rows can be claimed again. It starts from the rows: a
// transaction that was open when its lease expired may commit rows much later. next returns the
// lowest lease id above $1 and below $2 that a row carries. Call TakeOver every few seconds.
func (n *Node) TakeOver(ctx context.Context, next *db.Query, release func(ctx context.Context, id db.ID) error) error {
	// Rows of valid leases may be many, and deleted ones of PostgreSQL as well. So the search leaves
	// them out.
	valid, err := n.validLeases(ctx)
	if err != nil {
		return err
	}
	after := db.ID(0)
	for _, before := range append(valid, math.MaxInt64) {
		for {
			var id db.ID
			err := n.db.One(ctx, next.With(after, before), &id)
			if errors.Is(err, db.ErrNoRow) {
				break
			}
			if err != nil {
				return err
			}
			err = n.db.One(ctx, validQuery.With(id), new(int))
			if errors.Is(err, db.ErrNoRow) { // else it was acquired since
				err = release(ctx, id)
			}
			if err != nil {
				return err
			}
			after = id
		}
		after = before
	}
	return nil
}

// validLeases lists the valid leases by id, and this node's: if it has expired, the node is about
// to replace it. It deletes old ones.
func (n *Node) validLeases(ctx context.Context) (valid []db.ID, err error) {
	own, _ := n.Lease()
	var old []db.ID
	err = n.db.Each(ctx, leasesQuery.With(expiredAge.Microseconds()), func(r db.Row) error {
		var id db.ID
		var isValid, isOld bool
		err := r.Scan(&id, &isValid, &isOld)
		switch {
		case isValid || id == own:
			valid = append(valid, id)
		case isOld:
			old = append(old, id)
		}
		return err
	})
	for _, id := range old {
		if err == nil {
			_, err = n.db.Exec(ctx, deleteQuery.With(id, expiredAge.Microseconds()))
		}
	}
	return valid, err
}

// ReleaseOrphans releases the rows of a lease that its process does not work on: after a commit of
// unknown outcome it may not know that it has claimed them. list returns the keys of BatchRows rows
// above a key, in order. release must be conditional on the lease. No claim may run meanwhile.
func ReleaseOrphans[K any](ctx context.Context, d *db.DB, list func(above K) db.Statement, scan func(db.Row) (K, error),
	known func(K) bool, release func(K) db.Statement) error {
	var above K
	for {
		keys, err := db.All(ctx, d, list(above), scan)
		if err != nil {
			return err
		}
		for _, k := range keys {
			above = k
			if known(k) {
				continue
			}
			if _, err := d.Exec(ctx, release(k)); err != nil {
				return err
			}
		}
		if len(keys) < BatchRows {
			return nil
		}
	}
}
