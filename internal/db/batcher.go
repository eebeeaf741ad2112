// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxBatch is the maximum number of mutations in a commit. It also bounds how long one waits.
const maxBatch = 256

// Write hands job to the batcher of key (a mailbox, an account) and returns after its commit.
// It returns nil, the error of the job's guard or statement, or a database error. After an
// error nothing was written, except for ErrCommitUnknown. ctx only bounds the wait for a place
// in the batcher's queue: a job that has begun always finishes. While the database does not
// answer, Write withdraws a job that has not begun within Options.OutageWait.
func (d *DB) Write(ctx context.Context, key ID, job *Mutation) error {
	if err := checkWritable(ctx); err != nil {
		return err
	}
	if guard := commitGuardFrom(ctx); guard != nil {
		job = guard.combine(job)
	}
	p := &pendingWrite{key: key, mutation: job, queuedAt: time.Now(), done: make(chan error, 1)}
	l := d.batchers[mix64(uint64(key))%uint64(len(d.batchers))]
	waited := time.NewTicker(d.outageWait)
	defer waited.Stop()
	for placed := false; !placed; {
		select {
		case l.writes <- p:
			placed = true
		case <-l.stopping:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-waited.C:
			if d.isDown() {
				return asUnavailable(errUnavailable)
			}
			waited.Reset(d.outageWait / 10)
		}
	}
	for {
		select {
		case err := <-p.done:
			return callerError(p, err)
		case <-l.stopped:
			// The batcher has answered every job that it took. It never began
			// those that are still in the channel.
			select {
			case err := <-p.done:
				return callerError(p, err)
			default:
				return ErrClosed
			}
		case <-waited.C:
			if d.isDown() && p.claim() {
				return asUnavailable(errUnavailable)
			}
			waited.Reset(d.outageWait / 10)
		}
	}
}

// errUnavailable is the error of a job that Write withdrew.
var errUnavailable = &connLostError{cause: errors.New("the database did not answer, and others waited before")}

// callerError returns the error for the caller of Write, and repeats a panic of AfterCommit.
func callerError(p *pendingWrite, err error) error {
	if p.panicked != nil {
		panic(p.panicked)
	}
	return asUnavailable(err)
}

// Errors of Write and Tx.
var (
	// ErrClosed says that the database is being closed.
	ErrClosed = errors.New("the database is closed")
	// ErrCommitUnknown says that the connection was lost during COMMIT on
	// PostgreSQL, and that the outcome could not be found out afterwards:
	// the write may be there or not.
	ErrCommitUnknown = errors.New("it is not known whether the write was committed")
)

// batcher is a queue of mutations with one goroutine that commits them together.
type batcher struct {
	writes   chan *pendingWrite
	stopping chan struct{}
	stopped  chan struct{}
	now      func() time.Time
	after    func(time.Duration) <-chan time.Time
}

func startBatcher(e engine) *batcher {
	l := &batcher{
		writes:   make(chan *pendingWrite, 4*maxBatch),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
		now:      time.Now,
		after:    time.After,
	}
	go l.run(e)
	return l
}

func (l *batcher) stop() {
	close(l.stopping)
	<-l.stopped
}

func (l *batcher) run(e engine) {
	defer close(l.stopped)
	var batch []*pendingWrite
	var callers commitDelay
	for {
		batch = batch[:0]
		select {
		case p := <-l.writes:
			batch = append(batch, p)
		case <-l.stopping:
			// Mutations already in the channel are still committed.
			select {
			case p := <-l.writes:
				batch = append(batch, p)
			default:
				return
			}
		}
	fill:
		for len(batch) < maxBatch {
			select {
			case p := <-l.writes:
				batch = append(batch, p)
			default:
				break fill
			}
		}
		if callers.shouldWait(len(batch), l.now()) {
			batch = l.awaitWriters(batch, &callers)
		}
		batch = slices.DeleteFunc(batch, func(p *pendingWrite) bool { return !p.claim() })
		if len(batch) == 0 {
			continue
		}
		waiting := 0
		batch[0].beforeDone = func() { waiting = len(l.writes) } // a caller may write again as soon as it is answered
		began := l.now()
		e.commitBatch(batch)
		callers.observe(len(batch), waiting, began, l.now())
	}
}

// awaitWriters waits a moment for the expected callers, and adds their mutations to the batch.
func (l *batcher) awaitWriters(batch []*pendingWrite, c *commitDelay) []*pendingWrite {
	enough := l.after(c.timeout())
	for len(batch) < c.expected {
		select {
		case p := <-l.writes:
			batch = append(batch, p)
		case <-enough:
			c.miss()
			return batch
		case <-l.stopping:
			return batch
		}
	}
	c.hit()
	return batch
}

// commitWithBisection commits a batch in one transaction, on both engines. After a failure the
// whole transaction is rolled back, and each half of the jobs is tried again separately, in
// order, until the failing job is alone. So no job fails because of another, and each gets its
// own result. together runs the given jobs in one transaction: it sets err of the jobs that
// declined cleanly, and returns an error when nothing was committed.
func commitWithBisection(jobs []*pendingWrite, together func([]*pendingWrite) error) {
	err := together(jobs)
	var fate *batchError
	switch {
	case err == nil:
		for _, p := range jobs {
			p.complete(p.err)
		}
	case errors.As(err, &fate):
		for _, p := range jobs {
			p.complete(err)
		}
	case len(jobs) == 1:
		jobs[0].complete(firstError(jobs[0].err, err))
	default:
		commitWithBisection(jobs[:len(jobs)/2], together)
		commitWithBisection(jobs[len(jobs)/2:], together)
	}
}

// batchError is a failure that no job of a batch caused: the database can't be reached, or the
// outcome of the commit is unknown. To repeat the jobs separately would not help, or would
// write something twice.
type batchError struct{ error }

func (s *batchError) Unwrap() error { return s.error }

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
