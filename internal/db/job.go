// SPDX-License-Identifier: Apache-2.0

package db

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Job is one caller's part of a commit that it shares with others. The lane
// runs the guards of all waiting jobs, then the applies of those that were
// not declined, and commits once. A job may run more than once, so its
// functions only queue statements and overwrite their own results.
type Job struct {
	// Guard queues the statements that decide: conditional updates and
	// selects whose rows are read. May be nil.
	Guard func(b *Batch)
	// Apply queues what follows from the guards; it runs after their
	// results were read. May be nil.
	Apply func(b *Batch)
	// AfterCommit runs once, when the commit is on disk, before Write
	// returns. Those of one lane run one after another, in the order of
	// their commits, so it must be short. A panic in it is passed on to the
	// caller of Write; one in Guard or Apply declines the job.
	AfterCommit func()
}

// Join makes one job of several, to be committed together: their guards run in
// order, then their applies. What one of them declines declines all.
func Join(jobs ...*Job) *Job {
	each := func(f func(*Job)) {
		for _, j := range jobs {
			f(j)
		}
	}
	queue := func(b *Batch, of func(*Job) func(*Batch)) {
		each(func(j *Job) {
			if f := of(j); f != nil {
				f(b)
			}
		})
	}
	return &Job{
		Guard: func(b *Batch) { queue(b, func(j *Job) func(*Batch) { return j.Guard }) },
		Apply: func(b *Batch) { queue(b, func(j *Job) func(*Batch) { return j.Apply }) },
		AfterCommit: func() {
			each(func(j *Job) {
				if j.AfterCommit != nil {
					j.AfterCommit()
				}
			})
		},
	}
}

// Batch collects the statements of one step of a job. Those that take rows which
// many jobs want go in one order everywhere: see Of.
type Batch struct{ queued []*Queued }

// Queued is a statement in a batch.
type Queued struct {
	Statement
	key  ID
	read func(Row) error
	none error
}

// Queue adds a statement.
func (b *Batch) Queue(s Statement) *Queued {
	q := &Queued{Statement: s}
	b.queued = append(b.queued, q)
	return q
}

// Of says that the statement, and those after it, take rows of a key that comes
// after the job's own. PostgreSQL runs the statements of a step of all jobs in the
// order of their keys, so that lanes and nodes take the same rows in the same order.
func (q *Queued) Of(key ID) *Queued {
	q.key = key
	return q
}

// One scans the row into dst.
func (q *Queued) One(dst ...any) *Queued {
	q.read = func(r Row) error { return r.Scan(dst...) }
	return q
}

// Each calls f for every row. An error of f declines the job with it.
func (q *Queued) Each(f func(Row) error) *Queued {
	q.read = f
	return q
}

// Else declines the job with err when no row was read or changed.
func (q *Queued) Else(err error) *Queued {
	q.none = err
	return q
}

// pending is a job on its way through a lane.
type pending struct {
	key      ID
	job      *Job
	asked    time.Time
	taken    atomic.Bool // by the lane, or back by its caller
	done     chan error
	err      error  // why it was declined
	changed  bool   // a statement of it changed something
	panicked any    // by AfterCommit
	ending   func() // is called before the answer; may be nil
}

// take gives the job to the lane, or back to its caller, whoever takes it first.
func (p *pending) take() bool { return p.taken.CompareAndSwap(false, true) }

// collect has one of the job's functions queue its statements in b.
func (p *pending) collect(queue func(*Batch), b *Batch) {
	p.err = safely(func() error { queue(b); return nil })
	if p.err != nil {
		b.queued = b.queued[:0]
	}
}

// reader returns what reads the rows of q, and the error that declined them.
// All rows are read in any case, as the connection must be left clean.
func (q *Queued) reader() (read func(Row) error, declined *error) {
	if q.read == nil {
		return nil, new(error)
	}
	var err error
	return func(r Row) error {
		if err == nil {
			err = safely(func() error { return q.read(r) })
		}
		return nil
	}, &err
}

// judge notes what became of a statement of the job that ran without error.
// It returns errTainted when the job declines although it changed something.
func (p *pending) judge(q *Queued, rows int64, declined error) error {
	if rows > 0 && !q.query.reads {
		p.changed = true
	}
	if declined == nil && rows == 0 {
		declined = q.none
	}
	if p.err == nil {
		p.err = declined
	}
	return p.taint()
}

func (p *pending) taint() error {
	if p.err != nil && p.changed {
		return errTainted
	}
	return nil
}

func (p *pending) answer(err error) {
	if err == nil && p.job.AfterCommit != nil {
		func() {
			defer func() { p.panicked = recover() }()
			p.job.AfterCommit()
		}()
	}
	if p.ending != nil {
		p.ending()
	}
	p.done <- err
}

// safely turns a panic in a caller's function into an error, so that the lane
// lives on for the others.
func safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a job panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// errTainted says that a job was declined after it had changed something: the
// whole transaction must be given up.
var errTainted = errors.New("declined after a change")
