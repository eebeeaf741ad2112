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

// DefaultLease is how long a tenure lasts when its node can't renew it, unless
// Options say otherwise; it renews every third of that, at least every 5 s.
const DefaultLease = 15 * time.Second

// MaxClockSkew is how far a node's clock may be from PostgreSQL's.
const MaxClockSkew = 24 * time.Hour

// nodeIDReuseAge is for how long a node was not seen whose number another may get: no
// clock is wrong by so much that both would make the same ids.
const nodeIDReuseAge = 24 * time.Hour

// Node is this process as the database knows it. What a node has in hand
// carries its tenure, and every outcome is conditional on that, so a node that
// was cut off and replaced can't undo what its successor does.
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
	// something: two thirds of the lease, so that it has ended before others
	// take over. ends is when they may.
	safeUntil, expires time.Time
}

func (n *Node) newLease(id ID, asked time.Time) *lease {
	return &lease{id: id, safeUntil: asked.Add(n.db.leaseDuration * 2 / 3), expires: asked.Add(n.db.leaseDuration)}
}

// notReached reports whether a moment has not come yet, by the monotonic clock and
// by the other: the first stands still while a machine sleeps, the second may
// be set back.
func notReached(now, moment time.Time) bool {
	return now.Before(moment) && now.Round(0).Before(moment.Round(0))
}

var (
	addNodeQuery = SQL(`INSERT INTO node (id, name, seen_at)
		SELECT COALESCE(MAX(id), 0) + 1, $1, 0 FROM node WHERE true
		ON CONFLICT (name) DO NOTHING`)
	// reuseNodeQuery gives a new name the number of a node that is long gone, once all
	// are given: in a container each process may have another name. Of several that
	// begin at once each gets its own.
	reuseNodeQuery = SQL(`UPDATE node SET name = $1
		WHERE id = (SELECT id FROM node WHERE seen_at < {now} - $2
				AND NOT EXISTS (SELECT 1 FROM tenure WHERE tenure.node = node.id) ORDER BY seen_at, id LIMIT 1 {skip_locked})
			AND (SELECT MAX(id) FROM node) >= $3 AND NOT EXISTS (SELECT 1 FROM node WHERE name = $1)`)
	// touchNodeQuery also notes when the node's last id says that it was made: a clock
	// that is ahead may be set right before the next process.
	touchNodeQuery = SQL(`UPDATE node SET seen_at = CASE WHEN seen_at > {now} AND seen_at > $2 THEN seen_at WHEN {now} > $2 THEN {now} ELSE $2 END
		WHERE name = $1 RETURNING id, seen_at, {now}`)
	releaseLeaseQuery = SQL(`UPDATE tenure SET expires_at = 0 WHERE (node = $1 OR $3) AND holder = $2 AND expires_at > 0`)
	addLeaseQuery     = SQL(`INSERT INTO tenure (id, node, holder, expires_at)
		SELECT $1, $2, $3, {now} + $4
		WHERE NOT EXISTS (SELECT 1 FROM tenure WHERE node = $2 AND expires_at > {now})`)
	expireLeasesQuery  = SQL(`UPDATE tenure SET expires_at = 0 WHERE expires_at > 0`)
	renewLeaseQuery    = SQL(`UPDATE tenure SET expires_at = {now} + $2 WHERE id = $1 AND expires_at > {now}`)
	expiredLeasesQuery = SQL(`SELECT id FROM tenure WHERE expires_at <= {now} ORDER BY id`)
	deleteLeaseQuery   = SQL(`DELETE FROM tenure WHERE id = $1 AND expires_at <= {now}`)
)

// Join begins a tenure under a node's name. holder names the data folder that
// the process has locked: it proves that a former process of the same folder
// is gone, whatever its lease says. A fault.Conflict says that another
// process runs under this name.
func (d *DB) Join(ctx context.Context, name, holder string) (*Node, error) {
	n := &Node{db: d, Name: name, holder: holder}
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// ExpireLeases ends every tenure: in a copy of a database nobody has anything in hand.
func (d *DB) ExpireLeases(ctx context.Context) error {
	_, err := d.Exec(ctx, expireLeasesQuery.With())
	return err
}

func (n *Node) acquire(ctx context.Context) error {
	t, number, err := n.tryAcquire(ctx)
	for n.db.IsConflict(err) { // another has just got the same number
		t, number, err = n.tryAcquire(ctx)
	}
	if err != nil {
		return fmt.Errorf("joining as node %s: %w", n.Name, err)
	}
	if n.Number == 0 { // Join; afterwards it stays what it is, and others read it
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
		// This update also makes two processes of one name take turns.
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
		if taken.Sub(n.db.now()) > n.db.leaseDuration { // the clock that was ahead made some after that as well
			taken = taken.Add(n.db.leaseDuration)
		}
		n.db.ids.startAfter(number, taken)
		// SQLite's database is in the folder: nobody else is left, by whatever name.
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

// checkClock returns an error if this machine's clock is far from the database's: by
// one that is ahead mail that waits would expire, and what is kept for a while be
// deleted, too early; what is written by one that is behind, by all others. SQLite
// has no clock of its own.
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

// Lease returns the id that marks what this node has in hand, and whether it
// may start something now.
func (n *Node) Lease() (ID, bool) {
	t := n.lease.Load()
	return t.id, notReached(n.db.now(), t.safeUntil)
}

// OwnsLease reports whether what the node has in hand under a tenure is still its
// own: nobody else may have taken it over yet. What can't be undone, and is not
// done by a commit that depends on the tenure, is to be done only while it does.
func (n *Node) OwnsLease(id ID) bool {
	t := n.lease.Load()
	return t.id == id && notReached(n.db.now(), t.expires)
}

// MaintainLease renews the tenure until ctx ends, and then ends it, so that others
// take over at once. A tenure that was lost is replaced by a new one, unless
// another process has taken the node's name meanwhile: that is returned, as a
// fault.Conflict, and the process must end, for both would make the same ids.
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

// release ends the tenure: first here, then for the others.
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
			return nil //nolint:nilerr // what its ids say is noted all the same
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
		// Nothing is started in the name of what others may take over.
		n.lease.Store(&lease{id: t.id})
		return errors.Join(errors.New("it had run out"), n.acquire(ctx))
	}
	n.lease.Store(n.newLease(t.id, asked))
	return nil
}

// ExpiredLeases lists the tenures whose work others may take over.
func (d *DB) ExpiredLeases(ctx context.Context) ([]ID, error) {
	return All(ctx, d, expiredLeasesQuery.With(), func(r Row) (id ID, err error) { return id, r.Scan(&id) })
}

// DeleteLease forgets an ended tenure once nothing carries its id any more.
func (d *DB) DeleteLease(ctx context.Context, id ID) error {
	_, err := d.Exec(ctx, deleteLeaseQuery.With(id))
	return err
}

var acquireLeaderJobQuery = SQL(`INSERT INTO duty (name, tenure, fence, expires_at) VALUES ($1, $2, 1, {now} + $3)
	ON CONFLICT (name) DO UPDATE SET tenure = excluded.tenure, expires_at = excluded.expires_at,
		fence = duty.fence + CASE WHEN duty.tenure = excluded.tenure THEN 0 ELSE 1 END
	WHERE duty.tenure = excluded.tenure OR duty.expires_at <= {now}
		OR NOT EXISTS (SELECT 1 FROM tenure WHERE id = duty.tenure AND expires_at > {now})`)

// noRowQuery finds nothing.
var noRowQuery = SQL(`SELECT 1 FROM duty WHERE name = '' AND tenure = 0`)

// AcquireLeaderJob takes or keeps a work that one node at a time does for all, for the
// length of a lease. Called first in the transaction that does the work, it
// fences it: the row stays locked until the commit. It returns false when
// another node has it.
func (n *Node) AcquireLeaderJob(ctx context.Context, tx *Tx, name string) (bool, error) {
	id, ok := n.Lease()
	if !ok {
		return false, nil
	}
	taken, err := tx.Exec(ctx, acquireLeaderJobQuery.With(name, id, n.db.leaseDuration.Microseconds()))
	return taken == 1, err
}

// GuardLeaderJob is Duty as a guard of a job: the job is declined with other when
// another node has the duty, or this one may start nothing now.
func (n *Node) GuardLeaderJob(b *Batch, name string, other error) {
	id, ok := n.Lease()
	if !ok {
		b.Queue(noRowQuery.With()).OrFail(other)
		return
	}
	b.Queue(acquireLeaderJobQuery.With(name, id, n.db.leaseDuration.Microseconds())).OrFail(other)
}
