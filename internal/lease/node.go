// SPDX-License-Identifier: Apache-2.0

// Package lease divides work among the nodes of a service. Each node has a lease, which it renews
// and which expires when the node fails. Rows that a node works on carry the id of its lease: it
// fences the node's writes off once other nodes have taken the rows over.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// DefaultDuration is how long a lease lasts without a renewal, unless Options.Duration is set. A
// node renews its lease after a third of that, and every 5 s at least.
const DefaultDuration = 15 * time.Second

// MaxClockSkew is how far a node's clock may be from PostgreSQL's.
const MaxClockSkew = 24 * time.Hour

// nodeIDReuseAge is how long a node must be absent before another may get its number. Clocks
// differ by no more (MaxClockSkew), so the two don't generate the same ids.
const nodeIDReuseAge = 24 * time.Hour

// Node is this process in the database. The rows that a node works on carry the id of its
// lease, and every write of an outcome is conditional on that. So a node that was cut off and
// replaced can't undo its successor's work.
type Node struct {
	Name   string
	Number int64

	db      *db.DB
	options Options
	term    atomic.Pointer[term]
}

// Options are the options of Join.
type Options struct {
	Name string // of the node
	// Holder names the data folder that the process has locked. The lock proves that an earlier
	// process of the same folder has ended, even if its lease has not expired.
	Holder   string
	Duration time.Duration // how long the lease lasts without a renewal; 0: DefaultDuration
	Log      *slog.Logger
}

// term is a lease as of its last renewal.
type term struct {
	id db.ID
	// safeUntil is until when, on this machine's clock, the node may start
	// work: two thirds of the lease, so that the work has ended before other
	// nodes take over. expires is when they may.
	safeUntil, expires time.Time
}

func (n *Node) newTerm(id db.ID, asked time.Time) *term {
	return &term{id: id, safeUntil: asked.Add(n.options.Duration * 2 / 3), expires: asked.Add(n.options.Duration)}
}

// notReached reports whether a moment is still in the future, by both the monotonic clock and
// the wall clock: the first stops while a machine sleeps, the second may be set back.
func notReached(now, moment time.Time) bool {
	return now.Before(moment) && now.Round(0).Before(moment.Round(0))
}

var (
	addNodeQuery = db.SQL(`INSERT INTO node (id, name, seen_at)
		SELECT COALESCE(MAX(id), 0) + 1, $1, 0 FROM node WHERE true
		ON CONFLICT (name) DO NOTHING`)
	// reuseNodeQuery gives a new name the number of a node that has long been absent, once all
	// numbers are assigned: in a container each process may have another name. Nodes that start
	// at the same time get different numbers.
	reuseNodeQuery = db.SQL(`UPDATE node SET name = $1
		WHERE id = (SELECT id FROM node WHERE seen_at < {now} - $2
				AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id) ORDER BY seen_at, id LIMIT 1 {skip_locked})
			AND (SELECT MAX(id) FROM node) >= $3 AND NOT EXISTS (SELECT 1 FROM node WHERE name = $1)`)
	// touchNodeQuery also records the time in the node's last id: a clock that is ahead may be
	// corrected before the next process starts.
	touchNodeQuery = db.SQL(`UPDATE node SET seen_at = CASE WHEN seen_at > {now} AND seen_at > $2 THEN seen_at WHEN {now} > $2 THEN {now} ELSE $2 END
		WHERE name = $1 RETURNING id, seen_at, {now}`)
	releaseQuery = db.SQL(`UPDATE lease SET expires_at = 0 WHERE (node = $1 OR $3) AND holder = $2 AND expires_at > 0`)
	addQuery     = db.SQL(`INSERT INTO lease (id, node, holder, expires_at)
		SELECT $1, $2, $3, {now} + $4
		WHERE NOT EXISTS (SELECT 1 FROM lease WHERE node = $2 AND expires_at > {now})`)
	expireAllQuery = db.SQL(`UPDATE lease SET expires_at = 0 WHERE expires_at > 0`)
	renewQuery     = db.SQL(`UPDATE lease SET expires_at = {now} + $2 WHERE id = $1 AND expires_at > {now}`)
)

// Join acquires a lease under a node's name. A fault.Conflict says that another process runs under
// this name.
func Join(ctx context.Context, d *db.DB, o Options) (*Node, error) {
	if o.Duration <= 0 {
		o.Duration = DefaultDuration
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	n := &Node{Name: o.Name, db: d, options: o}
	if err := n.acquire(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// ExpireAll expires every lease: no node works on a copy of a database.
func ExpireAll(ctx context.Context, d *db.DB) error {
	_, err := d.Exec(ctx, expireAllQuery.With())
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
	n.term.Store(t)
	return nil
}

func (n *Node) tryAcquire(ctx context.Context) (t *term, number int64, err error) {
	err = n.db.PriorityTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, reuseNodeQuery.With(n.Name, nodeIDReuseAge.Microseconds(), db.MaxNode)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, addNodeQuery.With(n.Name)); err != nil {
			return err
		}
		// This update also serializes two processes of the same name.
		var seen, theirs int64
		if err := tx.One(ctx, touchNodeQuery.With(n.Name, n.db.LastIDTime()), &number, &seen, &theirs); err != nil {
			return err
		}
		if err := n.checkClock(theirs); err != nil {
			return err
		}
		if number > db.MaxNode {
			return fmt.Errorf("there can be %d nodes at most", db.MaxNode)
		}
		taken := db.Time(seen)
		if taken.Sub(n.db.Now()) > n.options.Duration { // the clock that was ahead made later ids as well
			taken = taken.Add(n.options.Duration)
		}
		n.db.StartIDs(number, taken)
		// SQLite's database is in the folder, so leases of all node names have ended.
		if _, err := tx.Exec(ctx, releaseQuery.With(number, n.options.Holder, n.db.Engine() == db.SQLite)); err != nil {
			return err
		}
		t = n.newTerm(n.db.NewID(), n.db.Now())
		added, err := tx.Exec(ctx, addQuery.With(t.id, number, n.options.Holder, n.options.Duration.Microseconds()))
		if err == nil && added == 0 {
			err = fault.New(fault.Conflict, "node_in_use",
				"Another process runs as node %q. Give this one another name (--node), or wait %s if that one has just ended.", n.Name, n.options.Duration)
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
	off, side := n.db.Now().Sub(db.Time(theirs)), "ahead of"
	if off < 0 {
		off, side = -off, "behind"
	}
	if n.db.Engine() == db.SQLite || off <= MaxClockSkew {
		return nil
	}
	return fmt.Errorf("this machine's clock is %d hours %s the database's, so mail would expire and stored data be deleted too early; set both by NTP", int(off.Hours()), side)
}

// Lease returns the id that marks the rows this node works on, and whether the node may start
// work now.
func (n *Node) Lease() (db.ID, bool) {
	t := n.term.Load()
	return t.id, notReached(n.db.Now(), t.safeUntil)
}

// OwnsLease reports whether the node still owns the work that it started under a lease: no
// other node can have taken it over yet. Check it before an action that can't be undone and is
// not part of a commit that depends on the lease.
func (n *Node) OwnsLease(id db.ID) bool {
	t := n.term.Load()
	return t.id == id && notReached(n.db.Now(), t.expires)
}

// MaintainLease renews the lease until ctx ends, and then releases it, so that other nodes take
// over at once. It replaces an expired lease by a new one. If another process has taken the
// node's name or number meanwhile, it returns a fault.Conflict: the process must end, as both
// would generate the same ids.
func (n *Node) MaintainLease(ctx context.Context) error {
	tick := time.NewTicker(min(n.options.Duration, DefaultDuration) / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return n.release(context.WithoutCancel(ctx))
		case <-tick.C:
		}
		if err := n.renew(ctx); err != nil && ctx.Err() == nil {
			n.options.Log.Error("the node's lease could not be renewed", "node", n.Name, "error", err)
			if fault.Is(err, fault.Conflict) {
				return fmt.Errorf("the node's lease could not be renewed: %w", err)
			}
		}
	}
}

// release releases the lease: first in this process, then in the database.
func (n *Node) release(ctx context.Context) error {
	n.term.Store(&term{id: n.term.Load().id})
	ctx, cancel := context.WithTimeout(ctx, n.options.Duration/3)
	defer cancel()
	_, err := n.db.Exec(ctx, releaseQuery.With(n.Number, n.options.Holder, false))
	return err
}

func (n *Node) renew(ctx context.Context) error {
	t := n.term.Load()
	ctx, cancel := context.WithTimeout(ctx, n.options.Duration/3)
	defer cancel()
	var asked time.Time
	var astray error
	lost := false
	err := n.db.PriorityTx(ctx, func(tx *db.Tx) error {
		asked = n.db.Now()
		var theirs int64
		if err := tx.One(ctx, touchNodeQuery.With(n.Name, n.db.LastIDTime()), new(int64), new(int64), &theirs); err != nil {
			return err
		}
		if astray = n.checkClock(theirs); astray != nil {
			return nil //nolint:nilerr // the time in its last id is recorded all the same
		}
		renewed, err := tx.Exec(ctx, renewQuery.With(t.id, n.options.Duration.Microseconds()))
		lost = renewed == 0
		return err
	})
	switch {
	case errors.Is(err, db.ErrNoRow):
		n.term.Store(&term{id: t.id})
		return fault.New(fault.Conflict, "node_replaced", "Node %q was not seen for so long that another has its number. Start it again.", n.Name)
	case err != nil:
		return err
	case astray != nil:
		n.term.Store(&term{id: t.id})
		return astray
	case lost:
		// Start nothing under a lease whose work other nodes may take over.
		n.term.Store(&term{id: t.id})
		return errors.Join(errors.New("it had run out"), n.acquire(ctx))
	}
	n.term.Store(n.newTerm(t.id, asked))
	return nil
}

// NodeState is the state of a node in the database, by the database's clock.
type NodeState struct {
	Name     string
	LastSeen time.Time // last renewal; the node's next ids are later
	LeaseID  db.ID     // 0 if it has none
	Holder   string    // data folder of the lease's process
	Expires  time.Time // end of the lease; zero once the node has released it
	Live     bool
}

var nodeStatesQuery = db.SQL(`SELECT n.name, n.seen_at, COALESCE(t.id, 0), COALESCE(t.holder, ''),
		COALESCE(t.expires_at, 0), COALESCE(t.expires_at, 0) > {now}
	FROM node AS n LEFT JOIN lease AS t ON t.node = n.id ORDER BY n.name, t.id LIMIT 2000`)

// Nodes lists the nodes by name. A node with earlier leases that are not yet deleted appears
// several times.
func Nodes(ctx context.Context, r db.Reader) ([]NodeState, error) {
	return db.All(ctx, r, nodeStatesQuery.With(), func(r db.Row) (n NodeState, err error) {
		var seen, expires int64
		err = r.Scan(&n.Name, &seen, &n.LeaseID, &n.Holder, &expires, &n.Live)
		n.LastSeen, n.Expires = db.Time(seen), db.Time(expires)
		return n, err
	})
}
