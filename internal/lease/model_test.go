// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease"
)

// The model's rows: done counts their outcomes.
var (
	createTask  = db.SQL(`CREATE TABLE task (id {id}, lease BIGINT, done BIGINT NOT NULL)`)
	clearTasks  = db.SQL(`DELETE FROM task`)
	clearJobs   = db.SQL(`DELETE FROM leader_job`)
	addTask     = db.SQL(`INSERT INTO task (id, lease, done) VALUES ($1, NULL, 0)`)
	claimTask   = db.SQL(`UPDATE task SET lease = $1 WHERE id = (SELECT MIN(id) FROM task WHERE lease IS NULL AND done = 0) RETURNING id`)
	finishTask  = db.SQL(`UPDATE task SET lease = NULL, done = done + 1 WHERE id = $1 AND lease = $2`)
	releaseTask = db.SQL(`UPDATE task SET lease = NULL WHERE id = $1 AND lease = $2`)
	releaseAll  = db.SQL(`UPDATE task SET lease = NULL WHERE lease = $1`)
	nextLease   = db.SQL(`SELECT lease FROM task WHERE lease > $1 AND lease < $2 ORDER BY lease LIMIT 1`)
	leasedTasks = db.SQL(`SELECT id FROM task WHERE lease = $1 AND id > $2 ORDER BY id LIMIT $3`)
	allTasks    = db.SQL(`SELECT id, COALESCE(lease, 0), done FROM task ORDER BY id`)
	isValid     = db.SQL(`SELECT COUNT(*) FROM lease WHERE id = $1 AND expires_at > {now}`)
)

const (
	modelTasks = 6
	// modelDuration is so long that the time that a test takes hardly matters, and so short that the
	// steps of all clocks stay below lease.MaxClockSkew.
	modelDuration = 5 * time.Minute
)

// skewedClock is a clock whose two readings can be shifted.
type skewedClock struct{ wall, monotonic atomic.Int64 }

func (c *skewedClock) now() time.Time {
	t := time.Now().Add(time.Duration(c.monotonic.Load()))
	return shiftWall(t, time.Duration(c.wall.Load()-c.monotonic.Load()))
}

func (c *skewedClock) add(wall, monotonic time.Duration) {
	c.wall.Add(int64(wall))
	c.monotonic.Add(int64(monotonic))
}

// shiftWall changes only the wall clock reading of a time.
func shiftWall(t time.Time, by time.Duration) time.Time {
	t = t.Add(by)
	(*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)).ext -= int64(by) //nolint:gosec // the layout of time.Time since Go 1.9
	return t
}

// modelNode is one of the two nodes, with what its process has in memory.
type modelNode struct {
	name  string
	db    *db.DB
	cut   func() // cuts the connections to the database
	clock *skewedClock
	node  *lease.Node

	claimed     map[db.ID]db.ID // the lease under which a task was claimed
	late        []db.ID         // leases of claims that have begun
	slept       bool            // since the last renewal, so that the wall clock must not go back
	steppedBack bool
}

type model struct {
	*rapid.T
	ctx   context.Context
	nodes [2]*modelNode
}

// Two nodes share tasks. Whatever happens to their clocks and connections, a node that owns a lease
// owns its tasks, each task gets one outcome, and none is forgotten.
func TestModel(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("25"); err != nil { // -rapid.checks sets more
			t.Fatal(err)
		}
	}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		m := &model{ctx: t.Context()}
		for i := range m.nodes {
			n := &modelNode{name: fmt.Sprint("node ", i), clock: &skewedClock{}, cut: func() {}}
			to := url
			if url[:8] == "postgres" {
				proxy := dbtest.StartProxy(t, url)
				to, n.cut = proxy.URL, proxy.Cut
			}
			var err error
			if n.db, err = db.Open(t.Context(), db.Options{URL: to, Now: n.clock.now}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = n.db.Close() })
			m.nodes[i] = n
		}
		dbtest.Exec(t, m.nodes[0].db, createTask.With())
		rapid.Check(t, func(rt *rapid.T) {
			m.T = rt
			m.begin()
			rt.Repeat(map[string]func(*rapid.T){
				"claim": m.claim, "begin claim": m.beginClaim, "end claim": m.endClaim, "lose claim": m.loseClaim,
				"act": m.act, "finish": m.finish, "release": m.release, "take over": m.takeOver, "reconcile": m.reconcile,
				"renew": m.renew, "restart": m.restart, "lead": m.lead, "pass": m.pass, "sleep": m.sleep, "step": m.step, "cut": m.cutOff,
				"": m.check,
			})
			m.finishAll()
		})
	})
}

func (m *model) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *model) exec(n *modelNode, s db.Statement) int64 {
	m.Helper()
	changed, err := n.db.Exec(m.ctx, s)
	m.must(err)
	return changed
}

func (m *model) one() *modelNode { return m.nodes[rapid.IntRange(0, 1).Draw(m.T, "node")] }

func (m *model) begin() {
	d := m.nodes[0].db
	m.must(lease.ExpireAll(m.ctx, d))
	m.exec(m.nodes[0], clearTasks.With())
	m.exec(m.nodes[0], clearJobs.With())
	for i := range modelTasks {
		m.exec(m.nodes[0], addTask.With(i+1))
	}
	for _, n := range m.nodes {
		n.clock.wall.Store(0)
		n.clock.monotonic.Store(0)
		m.join(n)
	}
}

// join starts a process of a node.
func (m *model) join(n *modelNode) {
	var err error
	n.node, err = lease.Join(m.ctx, n.db, lease.Options{Name: n.name, Holder: n.name, Duration: modelDuration})
	m.must(err)
	n.claimed, n.late, n.slept, n.steppedBack = map[db.ID]db.ID{}, nil, false, false
}

func (m *model) valid(id db.ID) bool {
	var n int
	m.must(m.nodes[0].db.One(m.ctx, isValid.With(id), &n))
	return n == 1
}

// claimAs claims a task; 0 if there is none.
func (m *model) claimAs(n *modelNode, id db.ID) (task db.ID) {
	m.must(n.db.Tx(m.ctx, func(tx *db.Tx) error {
		task = 0
		err := tx.One(m.ctx, claimTask.With(id), &task)
		if errors.Is(err, db.ErrNoRow) {
			err = nil
		}
		return err
	}))
	return task
}

func (m *model) claim(*rapid.T) {
	n := m.one()
	if id, ok := n.node.Lease(); ok {
		if task := m.claimAs(n, id); task != 0 {
			n.claimed[task] = id
		}
	}
}

// beginClaim begins a claim that is committed later, whatever happens in between.
func (m *model) beginClaim(*rapid.T) {
	n := m.one()
	if id, ok := n.node.Lease(); ok {
		n.late = append(n.late, id)
	}
}

func (m *model) endClaim(*rapid.T) {
	n := m.one()
	if len(n.late) == 0 {
		return
	}
	id := n.late[0]
	n.late = n.late[1:]
	if task := m.claimAs(n, id); task != 0 {
		n.claimed[task] = id
	}
}

// loseClaim is a claim whose outcome the process does not learn.
func (m *model) loseClaim(*rapid.T) {
	n := m.one()
	if id, ok := n.node.Lease(); ok {
		m.claimAs(n, id)
	}
}

// draw chooses a task that a node has claimed; 0 if there is none.
func (m *model) draw(n *modelNode) db.ID {
	var tasks []db.ID
	for task := range n.claimed {
		tasks = append(tasks, task)
	}
	if len(tasks) == 0 {
		return 0
	}
	slices.Sort(tasks)
	return rapid.SampledFrom(tasks).Draw(m.T, "task")
}

type taskRow struct {
	id, lease db.ID
	done      int
}

func (m *model) tasks() (all []taskRow) {
	all, err := db.All(m.ctx, m.nodes[0].db, allTasks.With(), func(r db.Row) (t taskRow, err error) {
		return t, r.Scan(&t.id, &t.lease, &t.done)
	})
	m.must(err)
	return all
}

// act checks that an action which can't be undone is the owner's.
func (m *model) act(*rapid.T) {
	n := m.one()
	task := m.draw(n)
	if task == 0 || !n.node.OwnsLease(n.claimed[task]) {
		return
	}
	if is := m.tasks()[task-1]; is.lease != n.claimed[task] {
		m.Fatalf("%s acts on task %d under lease %d, which has lease %d", n.name, task, n.claimed[task], is.lease)
	}
}

func (m *model) finish(*rapid.T) {
	n := m.one()
	if task := m.draw(n); task != 0 {
		m.exec(n, finishTask.With(task, n.claimed[task]))
		delete(n.claimed, task)
	}
}

func (m *model) release(*rapid.T) {
	n := m.one()
	if task := m.draw(n); task != 0 {
		m.exec(n, releaseTask.With(task, n.claimed[task]))
		delete(n.claimed, task)
	}
}

func (m *model) takeOver(*rapid.T) {
	n := m.one()
	own, _ := n.node.Lease()
	err := n.node.TakeOver(m.ctx, nextLease, func(ctx context.Context, id db.ID) error {
		if m.valid(id) {
			m.Fatalf("%s releases the tasks of a valid lease", n.name)
		}
		_, err := n.db.Exec(ctx, releaseAll.With(id))
		return err
	})
	m.must(err)
	for _, task := range m.tasks() {
		if task.lease != 0 && task.lease != own && !m.valid(task.lease) {
			m.Fatalf("task %d has the lease %d, which has expired", task.id, task.lease)
		}
	}
}

func (m *model) reconcile(*rapid.T) {
	n := m.one()
	id, ok := n.node.Lease()
	if !ok {
		return
	}
	known := func(task db.ID) bool { return n.claimed[task] == id }
	m.must(lease.ReleaseOrphans(m.ctx, n.db, func(above db.ID) db.Statement { return leasedTasks.With(id, above, lease.BatchRows) },
		db.ScanID, known, func(task db.ID) db.Statement { return releaseTask.With(task, id) }))
	for _, task := range m.tasks() {
		if task.lease == id && !known(task.id) {
			m.Fatalf("%s does not know that it has task %d", n.name, task.id)
		}
	}
}

func (m *model) renew(*rapid.T) {
	n := m.one()
	was, _ := n.node.Lease()
	valid := m.valid(was)
	err := n.node.Renew(m.ctx)
	now, ok := n.node.Lease()
	if !ok || !m.valid(now) || (err == nil) != (now == was) || !valid && now == was || valid && now != was && m.valid(was) {
		m.Fatalf("%s renewed lease %d (valid: %v): lease %d, may start work: %v, %v", n.name, was, valid, now, ok, err)
	}
	n.slept, n.steppedBack = false, false
}

// restart replaces the process of a node: it crashed.
func (m *model) restart(*rapid.T) { m.join(m.one()) }

func (m *model) lead(*rapid.T) {
	n := m.one()
	other := m.nodes[0]
	if n == other {
		other = m.nodes[1]
	}
	id, ok := n.node.Lease()
	switch err := n.node.AcquireLeaderJob(m.ctx, "model"); {
	case errors.Is(err, lease.ErrNotLeader):
	case err != nil:
		m.Fatal(err)
	case !ok:
		m.Fatalf("%s leads under lease %d, under which it may start no work", n.name, id)
	default:
		if err := other.node.AcquireLeaderJob(m.ctx, "model"); !errors.Is(err, lease.ErrNotLeader) && m.valid(id) {
			m.Fatalf("both nodes lead: %v", err)
		}
	}
}

func (m *model) duration(name string) time.Duration {
	return time.Duration(rapid.IntRange(1, 8).Draw(m.T, name)) * modelDuration / 6
}

// passDatabase lets time pass for the database.
func (m *model) passDatabase(by time.Duration) {
	m.exec(m.nodes[0], pass.With(by.Microseconds()))
	m.exec(m.nodes[0], passLeaderJob.With(by.Microseconds()))
}

func (m *model) pass(*rapid.T) {
	by := m.duration("time")
	m.passDatabase(by)
	for _, n := range m.nodes {
		n.clock.add(by, by)
	}
}

// sleep lets time pass while one machine sleeps: its monotonic clock stops.
func (m *model) sleep(*rapid.T) {
	by, n := m.duration("time"), m.one()
	if n.steppedBack {
		return
	}
	m.passDatabase(by)
	for _, other := range m.nodes {
		if other == n {
			other.clock.add(by, 0)
		} else {
			other.clock.add(by, by)
		}
	}
	n.slept = true
}

// step sets the wall clock of a node.
func (m *model) step(*rapid.T) {
	by, n := m.duration("by"), m.one()
	if rapid.Bool().Draw(m.T, "back") {
		if n.slept || n.clock.wall.Load() < 0 { // no clock tells how much time has passed
			return
		}
		by, n.steppedBack = -by, true
	}
	n.clock.add(by, 0)
}

func (m *model) cutOff(*rapid.T) { m.one().cut() }

func (m *model) check(*rapid.T) {
	for _, task := range m.tasks() {
		if task.done > 1 {
			m.Fatalf("task %d has %d outcomes", task.id, task.done)
		}
	}
}

// finishAll finishes all tasks: none is out of reach.
func (m *model) finishAll() {
	m.passDatabase(2 * modelDuration)
	for _, n := range m.nodes {
		m.join(n)
	}
	n := m.nodes[0]
	m.must(n.node.TakeOver(m.ctx, nextLease, func(ctx context.Context, id db.ID) error {
		_, err := n.db.Exec(ctx, releaseAll.With(id))
		return err
	}))
	id, _ := n.node.Lease()
	for task := m.claimAs(n, id); task != 0; task = m.claimAs(n, id) {
		m.exec(n, finishTask.With(task, id))
	}
	for _, task := range m.tasks() {
		if task.done != 1 {
			m.Fatalf("task %d has %d outcomes", task.id, task.done)
		}
	}
}

// Rows of expired leases are released also when their transaction was committed after the lease's
// row was deleted.
func TestExpiredLeasesAreDeleted(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, clock := openWithClock(t, url)
		gone, n := join(t, d, "gone", "gone"), join(t, d, "one", "folder")
		id, _ := gone.Lease()
		dbtest.Exec(t, d, createTask.With(), addTask.With(1))
		takeOver := func() (released []db.ID) {
			t.Helper()
			if err := n.TakeOver(t.Context(), nextLease, func(_ context.Context, id db.ID) error {
				released = append(released, id)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return released
		}
		clock.both(t, d, lease.DefaultDuration+time.Second)
		if err := n.Renew(t.Context()); err == nil {
			t.Error("the loss was not told")
		}
		if released := takeOver(); len(released) > 0 || !slices.Contains(ended(t, d), id) {
			t.Errorf("released %v; ended %v", released, ended(t, d))
		}
		passes(t, d, 11*time.Minute)
		takeOver()
		if ids := ended(t, d); slices.Contains(ids, id) {
			t.Errorf("still there: %v", ids)
		}
		dbtest.Exec(t, d, claimTask.With(id))
		if released := takeOver(); !slices.Equal(released, []db.ID{id}) {
			t.Errorf("released %v, want %v", released, id)
		}
	})
}
