// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
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
	// AfterCommit runs once, when the commit is on disk, before Write returns.
	AfterCommit func()
}

// Batch collects the statements of one step of a job. Statements that touch
// rows which many jobs want (a folder, a mailbox) go first.
type Batch struct{ queued []*Queued }

// Queued is a statement in a batch.
type Queued struct {
	Statement
	read func(Row) error
	none error
}

// Queue adds a statement.
func (b *Batch) Queue(s Statement) *Queued {
	q := &Queued{Statement: s}
	b.queued = append(b.queued, q)
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

// outcome judges a statement that ran without error.
func (q *Queued) outcome(rows int64) error {
	if rows == 0 {
		return q.none
	}
	return nil
}

// pending is a job on its way through a lane.
type pending struct {
	job  *Job
	done chan error
	err  error // why it was declined
}

func (p *pending) answer(err error) {
	if err == nil && p.job.AfterCommit != nil {
		p.job.AfterCommit()
	}
	p.done <- err
}

// errTainted says that a job was declined after it had changed something: the
// whole transaction must be given up.
var errTainted = errors.New("declined after a change")

// maxBatch bounds how many jobs share a commit, and so how long one waits.
const maxBatch = 256

// Write runs job in the lane of key (a mailbox, an account) and returns after
// its commit: nil, the error that its guard or statement gave, or a database
// error; with an error nothing of it was written. ctx only bounds the wait
// for a place in the lane: a job that began is carried through.
func (d *DB) Write(ctx context.Context, key ID, job *Job) error {
	p := &pending{job: job, done: make(chan error, 1)}
	l := d.lane[mix(uint64(key))%uint64(len(d.lane))]
	select {
	case l.jobs <- p:
	case <-l.stopping:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-p.done:
		return err
	case <-l.stopped:
		// The lane answered everything it took; what it left in the
		// channel it never began.
		select {
		case err := <-p.done:
			return err
		default:
			return ErrClosed
		}
	}
}

// ErrClosed is returned by Write once the database is being closed.
var ErrClosed = errors.New("the database is closed")

// lane is a queue of jobs with one goroutine that commits them together.
type lane struct {
	jobs     chan *pending
	stopping chan struct{}
	stopped  chan struct{}
}

func startLane(e engine) *lane {
	l := &lane{
		jobs:     make(chan *pending, 4*maxBatch),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	go l.work(e)
	return l
}

func (l *lane) stop() {
	close(l.stopping)
	<-l.stopped
}

func (l *lane) work(e engine) {
	defer close(l.stopped)
	var batch []*pending
	for {
		batch = batch[:0]
		select {
		case p := <-l.jobs:
			batch = append(batch, p)
		case <-l.stopping:
			// Jobs already in the channel are still carried through.
			select {
			case p := <-l.jobs:
				batch = append(batch, p)
			default:
				return
			}
		}
	fill:
		for len(batch) < maxBatch {
			select {
			case p := <-l.jobs:
				batch = append(batch, p)
			default:
				break fill
			}
		}
		e.batch(context.Background(), batch)
	}
}

// commitTogether is how both engines carry a batch out: all jobs in one
// transaction; after any failure the transaction is given up as a whole, and
// each job repeated in one of its own, so that no job suffers from another
// and none is told a result that is not its own. together runs the given jobs
// in one transaction: it sets err of the jobs that declined cleanly, and
// returns an error when nothing was committed.
func commitTogether(jobs []*pending, together func([]*pending) error) {
	err := together(jobs)
	if err == nil {
		for _, p := range jobs {
			p.answer(p.err)
		}
		return
	}
	if len(jobs) == 1 {
		jobs[0].answer(firstError(jobs[0].err, err))
		return
	}
	for _, p := range jobs {
		p.err = nil
		err := together([]*pending{p})
		p.answer(firstError(p.err, err))
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
