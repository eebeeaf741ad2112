// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
)

// ErrNotLeader says that another node does a leader job.
var ErrNotLeader = errors.New("another node does it")

var acquireLeaderJobQuery = db.SQL(`INSERT INTO leader_job (name, lease, fence, expires_at) VALUES ($1, $2, 1, {now} + $3)
	ON CONFLICT (name) DO UPDATE SET lease = excluded.lease, expires_at = excluded.expires_at,
		fence = leader_job.fence + CASE WHEN leader_job.lease = excluded.lease THEN 0 ELSE 1 END
	WHERE leader_job.lease = excluded.lease OR leader_job.expires_at <= {now}
		OR NOT EXISTS (SELECT 1 FROM lease WHERE id = leader_job.lease AND expires_at > {now})`)

// noRowQuery returns no row.
var noRowQuery = db.SQL(`SELECT 1 FROM leader_job WHERE name = '' AND lease = 0`)

// AcquireLeaderJob acquires or renews a leader job, which one node at a time does for all, for the
// duration of a lease. It returns ErrNotLeader when another node has the job, or when this node may
// start no work now.
func (n *Node) AcquireLeaderJob(ctx context.Context, name string) error {
	id, ok := n.Lease()
	if !ok {
		return ErrNotLeader
	}
	acquired, err := n.db.Exec(ctx, acquireLeaderJobQuery.With(name, id, n.options.Duration.Microseconds()))
	if err == nil && acquired == 0 {
		err = ErrNotLeader
	}
	return err
}

// GuardLeaderJob is AcquireLeaderJob in the transaction that does the work: the row stays locked
// until the commit, which fences the work.
func (n *Node) GuardLeaderJob(b *db.Batch, name string) {
	id, ok := n.Lease()
	if !ok {
		b.Queue(noRowQuery.With()).OrFail(ErrNotLeader)
		return
	}
	b.Queue(acquireLeaderJobQuery.With(name, id, n.options.Duration.Microseconds())).OrFail(ErrNotLeader)
}
