// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// DefaultLease is how long a lease lasts without a renewal, unless Options.Lease is set. A node
// renews its lease after a third of that, and every 5 s at least.
const DefaultLease = 15 * time.Second

// MaxClockSkew is how far a node's clock may be from PostgreSQL's.
const MaxClockSkew = 24 * time.Hour

// nodeIDReuseAge is how long a node must be absent before another may get its number. Clocks
// differ by no more (MaxClockSkew), so the two don't generate the same ids.
const nodeIDReuseAge = 24 * time.Hour

// Node is this process in the database. The rows that a node works on carry the id of its
// lease, and every write of an outcome is conditional on that. So a node that was cut off and
// replaced can't undo its successor's work.
type Node struct {
	db     *DB
	Name   string
	Number int64
	holder string
	lease  atomic.Pointer[lease]
}

type lease struct {
	id ID
	// safeUntil is until when, on this machine's clock, the node may start
	// work: two thirds of the lease, so that the work has ended before other
	// nodes take over. expires is when they may.
	safeUntil, expires time.Time
}

func (n *Node) newLease(id ID, asked time.Time) *lease {
	return &lease{id: id, safeUntil: asked.Add(n.db.leaseDuration * 2 / 3), expires: asked.Add(n.db.leaseDuration)}
}

// notReached reports whether a moment is still in the future, by both the monotonic clock and
// the wall clock: the first stops while a machine sleeps, the second may be set back.
func notReached(now, moment time.Time) bool {
	return now.Before(moment) && now.Round(0).Before(moment.Round(0))
}

var (
	addNodeQuery = SQL(`INSERT INTO node (id, name, seen_at)
		SELECT COALESCE(MAX(id), 0) + 1, $1, 0 FROM node WHERE true
		ON CONFLICT (name) DO NOTHING`)
	// reuseNodeQuery gives a new name the number of a node that has long been absent, once all
	// numbers are assigned: in a container each process may have another name. Nodes that start
	// at the same time get different numbers.
	reuseNodeQuery = SQL(`UPDATE node SET name = $1
		WHERE id = (SELECT id FROM node WHERE seen_at < {now} - $2
				AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id) ORDER BY seen_at, id LIMIT 1 {skip_locked})
			AND (SELECT MAX(id) FROM node) >= $3 AND NOT EXISTS (SELECT 1 FROM node WHERE name = $1)`)
	// touchNodeQuery also records the time in the node's last id: a clock that is ahead may be
	// corrected before the next process starts.
	touchNodeQuery = SQL(`UPDATE node SET seen_at = CASE WHEN seen_at > {now} AND seen_at > $2 THEN seen_at WHEN {now} > $2 THEN {now} ELSE $2 END
		WHERE name = $1 RETURNING id, seen_at, {now}`)
	releaseLeaseQuery = SQL(`UPDATE lease SET expires_at = 0 WHERE (node = $1 OR $3) AND holder = $2 AND expires_at > 0`)
	addLeaseQuery     = SQL(`INSERT INTO lease (id, node, holder, expires_at)
		SELECT $1, $2, $3, {now} + $4
		WHERE NOT EXISTS (SELECT 1 FROM lease WHERE node = $2 AND expires_at > {now})`)
	expireLeasesQuery  = SQL(`UPDATE lease SET expires_at = 0 WHERE expires_at > 0`)
	renewLeaseQuery    = SQL(`UPDATE lease SET expires_at = {now} + $2 WHERE id = $1 AND expires_at > {now}`)
	expiredLeasesQuery = SQL(`SELECT id FROM lease WHERE expires_at <= {now} ORDER BY id`)
	deleteLeaseQuery   = SQL(`DELETE FROM lease WHERE id = $1 AND expires_at <= {now}`)
)

// Join acquires a lease under a node's name. holder names the data folder that the process has
// locked. The lock proves that an earlier process of the same folder has ended, even if its
// lease has not expired. A fault.Conflict says that another process runs under this name.
func (d *DB) Join(ctx context.Context, name, holder string) (*Node, error) {
	n := &Node{db: d, Name: name, holder: holder}
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// ExpireLeases expires every lease: no node works on a copy of a database.
func (d *DB) ExpireLeases(ctx context.Context) error {
	_, err := d.Exec(ctx, expireLeasesQuery.With())
	return err
}

func (n *Node) acquire(ctx context.Context) error {
	t, number, err := n.tryAcquire(ctx)
	for n.db.IsConflict(err) { // another node has just got the same number
		t, number, err = n.tryAcquire(ctx)
	}
	if err != nil {
		return fmt.Errorf("joining as node %s: %w", n.Name, err)
	}
	if n.Number == 0 { // set in Join only, as other goroutines read it afterwards
		n.Number = number
	}
	n.lease.Store(t)
	return nil
}

func (n *Node) tryAcquire(ctx context.Context) (t *lease, number int64, err error) {
	err = runTx(ctx, n.db.priorityTx, func(tx *Tx) error {
		if _, err := tx.Exec(ctx, reuseNodeQuery.With(n.Name, nodeIDReuseAge.Microseconds(), maxNode)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, addNodeQuery.With(n.Name)); err != nil {
			return err
		}
		// This update also serializes two processes of the same name.
		var seen, theirs int64
		if err := tx.One(ctx, touchNodeQuery.With(n.Name, n.db.ids.lastTime()), &number, &seen, &theirs); err != nil {
			return err
		}
		if err := n.checkClock(theirs); err != nil {
			return err
		}
		if number > maxNode {
			return fmt.Errorf("there can be %d nodes at most", maxNode)
		}
		taken := Time(seen)
		if taken.Sub(n.db.now()) > n.db.leaseDuration { // the clock that was ahead made later ids as well
			taken = taken.Add(n.db.leaseDuration)
		}
		n.db.ids.startAfter(number, taken)
		// SQLite's database is in the folder, so leases of all node names have ended.
		if _, err := tx.Exec(ctx, releaseLeaseQuery.With(number, n.holder, n.db.kind == SQLite)); err != nil {
			return err
		}
		t = n.newLease(n.db.NewID(), n.db.now())
		added, err := tx.Exec(ctx, addLeaseQuery.With(t.id, number, n.holder, n.db.leaseDuration.Microseconds()))
		if err == nil && added == 0 {
			err = fault.New(fault.Conflict, "node_in_use",
				"Another process runs as node %q. Give this one another name (--node), or wait %s if that one has just ended.", n.Name, n.db.leaseDuration)
		}
		return err
	})
	return t, number, err
}

// checkClock returns an error if this machine's clock differs from the database's by more than
// MaxClockSkew. A node whose clock is ahead would expire queued mail, and delete stored data,
// too early. If its clock is behind, all other nodes would do so with its rows. SQLite has no
// clock of its own.
func (n *Node) checkClock(theirs int64) error {
	off, side := n.db.now().Sub(Time(theirs)), "ahead of"
	if off < 0 {
		off, side = -off, "behind"
	}
	if n.db.kind == SQLite || off <= MaxClockSkew {
		return nil
	}
	return fmt.Errorf("this machine's clock is %d hours %s the database's, by which mail would expire, and what is kept be deleted, too early; set both by NTP", int(off.Hours()), side)
}

// Lease returns the id that marks the rows this node works on, and whether the node may start
// work now.
func (n *Node) Lease() (ID, bool) {
	t := n.lease.Load()
	return t.id, notReached(n.db.now(), t.safeUntil)
}

// OwnsLease reports whether the node still owns the work that it started under a lease: no
// other node can have taken it over yet. Check it before an action that can't be undone and is
// not part of a commit that depends on the lease.
func (n *Node) OwnsLease(id ID) bool {
	t := n.lease.Load()
	return t.id == id && notReached(n.db.now(), t.expires)
}

// MaintainLease renews the lease until ctx ends, and then releases it, so that other nodes take
// over at once. It replaces an expired lease by a new one. If another process has taken the
// node's name or number meanwhile, it returns a fault.Conflict: the process must end, as both
// would generate the same ids.
func (n *Node) MaintainLease(ctx context.Context) error {
	tick := time.NewTicker(min(n.db.leaseDuration, DefaultLease) / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return n.release(context.WithoutCancel(ctx))
		case <-tick.C:
		}
		if err := n.renew(ctx); err != nil && ctx.Err() == nil {
			n.db.log.Error("the node's lease could not be renewed", "node", n.Name, "error", err)
			if fault.Is(err, fault.Conflict) {
				return fmt.Errorf("the node's lease could not be renewed: %w", err)
			}
		}
	}
}

// release releases the lease: first in this process, then in the database.
func (n *Node) release(ctx context.Context) error {
	n.lease.Store(&lease{id: n.lease.Load().id})
	ctx, cancel := context.WithTimeout(ctx, n.db.leaseDuration/3)
	defer cancel()
	_, err := n.db.Exec(ctx, releaseLeaseQuery.With(n.Number, n.holder, false))
	return err
}

func (n *Node) renew(ctx context.Context) error {
	t := n.lease.Load()
	ctx, cancel := context.WithTimeout(ctx, n.db.leaseDuration/3)
	defer cancel()
	var asked time.Time
	var astray error
	lost := false
	err := runTx(ctx, n.db.priorityTx, func(tx *Tx) error {
		asked = n.db.now()
		var theirs int64
		if err := tx.One(ctx, touchNodeQuery.With(n.Name, n.db.ids.lastTime()), new(int64), new(int64), &theirs); err != nil {
			return err
		}
		if astray = n.checkClock(theirs); astray != nil {
			return nil //nolint:nilerr // the time in its last id is recorded all the same
		}
		renewed, err := tx.Exec(ctx, renewLeaseQuery.With(t.id, n.db.leaseDuration.Microseconds()))
		lost = renewed == 0
		return err
	})
	switch {
	case errors.Is(err, ErrNoRow):
		n.lease.Store(&lease{id: t.id})
		return fault.New(fault.Conflict, "node_replaced", "Node %q was not seen for so long that another has its number. Start it again.", n.Name)
	case err != nil:
		return err
	case astray != nil:
		n.lease.Store(&lease{id: t.id})
		return astray
	case lost:
		// Start nothing under a lease whose work other nodes may take over.
		n.lease.Store(&lease{id: t.id})
		return errors.Join(errors.New("it had run out"), n.acquire(ctx))
	}
	n.lease.Store(n.newLease(t.id, asked))
	return nil
}

// ExpiredLeases lists the leases whose work other nodes may take over.
func (d *DB) ExpiredLeases(ctx context.Context) ([]ID, error) {
	return All(ctx, d, expiredLeasesQuery.With(), func(r Row) (id ID, err error) { return id, r.Scan(&id) })
}

// DeleteLease deletes an expired lease. Call it once no row carries the lease's id any more.
func (d *DB) DeleteLease(ctx context.Context, id ID) error {
	_, err := d.Exec(ctx, deleteLeaseQuery.With(id))
	return err
}

var acquireLeaderJobQuery = SQL(`INSERT INTO leader_job (name, lease, fence, expires_at) VALUES ($1, $2, 1, {now} + $3)
	ON CONFLICT (name) DO UPDATE SET lease = excluded.lease, expires_at = excluded.expires_at,
		fence = leader_job.fence + CASE WHEN leader_job.lease = excluded.lease THEN 0 ELSE 1 END
	WHERE leader_job.lease = excluded.lease OR leader_job.expires_at <= {now}
		OR NOT EXISTS (SELECT 1 FROM lease WHERE id = leader_job.lease AND expires_at > {now})`)

// noRowQuery returns no row.
var noRowQuery = SQL(`SELECT 1 FROM leader_job WHERE name = '' AND lease = 0`)

// AcquireLeaderJob acquires or renews a leader job, which one node at a time does for all, for
// the duration of a lease. Call it first in the transaction that does the work: the row stays
// locked until the commit, which fences the work. It returns false when another node has the
// job.
func (n *Node) AcquireLeaderJob(ctx context.Context, tx *Tx, name string) (bool, error) {
	id, ok := n.Lease()
	if !ok {
		return false, nil
	}
	taken, err := tx.Exec(ctx, acquireLeaderJobQuery.With(name, id, n.db.leaseDuration.Microseconds()))
	return taken == 1, err
}

// GuardLeaderJob is AcquireLeaderJob as a guard of a mutation. The mutation is declined with
// other when another node has the leader job, or when this node may start no work now.
func (n *Node) GuardLeaderJob(b *Batch, name string, other error) {
	id, ok := n.Lease()
	if !ok {
		b.Queue(noRowQuery.With()).OrFail(other)
		return
	}
	b.Queue(acquireLeaderJobQuery.With(name, id, n.db.leaseDuration.Microseconds())).OrFail(other)
}
