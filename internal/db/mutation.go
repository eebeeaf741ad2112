// SPDX-License-Identifier: Apache-2.0

package db

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Mutation is one caller's part of a shared commit. The batcher runs the guards of all waiting
// mutations, then the applies of those that were not declined, and commits once. A mutation
// may run more than once, so its functions only queue statements and overwrite their own
// results.
type Mutation struct {
	// Guard queues the statements that can decline the mutation: conditional
	// updates, and selects whose rows are read. May be nil.
	Guard func(b *Batch)
	// Apply queues the remaining statements; it runs after the guards'
	// results were read. May be nil.
	Apply func(b *Batch)
	// AfterCommit runs once, when the commit is on disk, before Write
	// returns. A batcher runs them one after another, in the order of
	// their commits, so it must be short. A panic in it is passed on to the
	// caller of Write; one in Guard or Apply declines the mutation.
	AfterCommit func()
}

// Combine joins several mutations into one, which commits as a whole: their guards run in
// order, then their applies. If one of them declines, all are declined.
func Combine(jobs ...*Mutation) *Mutation {
	each := func(f func(*Mutation)) {
		for _, j := range jobs {
			f(j)
		}
	}
	queue := func(b *Batch, of func(*Mutation) func(*Batch)) {
		each(func(j *Mutation) {
			if f := of(j); f != nil {
				f(b)
			}
		})
	}
	return &Mutation{
		Guard: func(b *Batch) { queue(b, func(j *Mutation) func(*Batch) { return j.Guard }) },
		Apply: func(b *Batch) { queue(b, func(j *Mutation) func(*Batch) { return j.Apply }) },
		AfterCommit: func() {
			each(func(j *Mutation) {
				if j.AfterCommit != nil {
					j.AfterCommit()
				}
			})
		},
	}
}

// Batch collects the statements of one step of a mutation. Statements that lock rows which many
// mutations need run in the same order everywhere: see QueuedStatement.WithLockKey.
type Batch struct{ statements []*QueuedStatement }

// QueuedStatement is a statement in a batch.
type QueuedStatement struct {
	Statement
	key      ID
	read     func(Row) error
	noRowErr error
}

// Queue adds a statement.
func (b *Batch) Queue(s Statement) *QueuedStatement {
	q := &QueuedStatement{Statement: s}
	b.statements = append(b.statements, q)
	return q
}

// WithLockKey says that the statement, and those after it, lock rows of a key that is higher than
// the mutation's own. On PostgreSQL the statements of a step, of all mutations in the batch, run
// in the order of their keys. So batchers and nodes lock the same rows in the same order.
func (q *QueuedStatement) WithLockKey(key ID) *QueuedStatement {
	q.key = key
	return q
}

// One scans the row into dst.
func (q *QueuedStatement) One(dst ...any) *QueuedStatement {
	q.read = func(r Row) error { return r.Scan(dst...) }
	return q
}

// Each calls f for every row. An error of f declines the mutation with that error.
func (q *QueuedStatement) Each(f func(Row) error) *QueuedStatement {
	q.read = f
	return q
}

// OrFail declines the mutation with err when no row was read or changed.
func (q *QueuedStatement) OrFail(err error) *QueuedStatement {
	q.noRowErr = err
	return q
}

// pendingWrite is a mutation in a batcher.
type pendingWrite struct {
	key        ID
	mutation   *Mutation
	queuedAt   time.Time
	claimed    atomic.Bool // by the batcher, or by its caller to withdraw it
	done       chan error
	err        error  // why it was declined
	changed    bool   // whether a statement of it changed something
	panicked   any    // value with which AfterCommit panicked
	beforeDone func() // called before done gets the result; may be nil
}

// claim assigns the mutation to the batcher or to its caller, and reports whether this call was
// first.
func (p *pendingWrite) claim() bool { return p.claimed.CompareAndSwap(false, true) }

// collect calls one of the mutation's functions to queue its statements in b.
func (p *pendingWrite) collect(queue func(*Batch), b *Batch) {
	p.err = catchPanic(func() error { queue(b); return nil })
	if p.err != nil {
		b.statements = b.statements[:0]
	}
}

// reader returns a function that reads the rows of q, and a pointer to the error that declined
// the mutation. All rows are read in any case, to leave the connection clean.
func (q *QueuedStatement) reader() (read func(Row) error, declined *error) {
	if q.read == nil {
		return nil, new(error)
	}
	var err error
	return func(r Row) error {
		if err == nil {
			err = catchPanic(func() error { return q.read(r) })
		}
		return nil
	}, &err
}

// recordResult records the result of a statement that ran without error. It returns errTainted
// when the mutation declines although it changed something.
func (p *pendingWrite) recordResult(q *QueuedStatement, rows int64, declined error) error {
	if rows > 0 && !q.query.readOnly {
		p.changed = true
	}
	if declined == nil && rows == 0 {
		declined = q.noRowErr
	}
	if p.err == nil {
		p.err = declined
	}
	return p.checkTaint()
}

func (p *pendingWrite) checkTaint() error {
	if p.err != nil && p.changed {
		return errTainted
	}
	return nil
}

func (p *pendingWrite) complete(err error) {
	if err == nil && p.mutation.AfterCommit != nil {
		func() {
			defer func() { p.panicked = recover() }()
			p.mutation.AfterCommit()
		}()
	}
	if p.beforeDone != nil {
		p.beforeDone()
	}
	p.done <- err
}

// catchPanic turns a panic in a caller's function into an error, so that the batcher survives.
func catchPanic(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("a job panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// errTainted says that a mutation was declined after it had changed something: the whole
// transaction must be rolled back.
var errTainted = errors.New("declined after a change")
