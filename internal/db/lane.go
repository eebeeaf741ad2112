// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"slices"
	"time"
)

// maxBatch bounds how many jobs share a commit, and so how long one waits.
const maxBatch = 256

// Write runs job in the lane of key (a mailbox, an account) and returns after
// its commit: nil, the error that its guard or statement gave, or a database
// error; with an error nothing of it was written, save ErrUnknown. ctx only
// bounds the wait for a place in the lane: a job that began is carried through.
// One that has not begun after Options.MaxWait is taken back while the database
// does not answer.
func (d *DB) Write(ctx context.Context, key ID, job *Job) error {
	if err := mayWrite(ctx); err != nil {
		return err
	}
	p := &pending{key: key, job: job, asked: time.Now(), done: make(chan error, 1)}
	l := d.lane[mix(uint64(key))%uint64(len(d.lane))]
	waited := time.NewTicker(d.maxWait)
	defer waited.Stop()
	for placed := false; !placed; {
		select {
		case l.jobs <- p:
			placed = true
		case <-l.stopping:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-waited.C:
			if d.away() {
				return outage(errAway)
			}
			waited.Reset(d.maxWait / 10)
		}
	}
	for {
		select {
		case err := <-p.done:
			return told(p, err)
		case <-l.stopped:
			// The lane answered everything it took; what it left in the
			// channel it never began.
			select {
			case err := <-p.done:
				return told(p, err)
			default:
				return ErrClosed
			}
		case <-waited.C:
			if d.away() && p.take() {
				return outage(errAway)
			}
			waited.Reset(d.maxWait / 10)
		}
	}
}

// errAway is what a job is told that was taken back.
var errAway = &lost{cause: errors.New("the database did not answer, and others waited before")}

// told is what a job's caller learns.
func told(p *pending, err error) error {
	if p.panicked != nil {
		panic(p.panicked)
	}
	return outage(err)
}

// Errors of Write and Tx.
var (
	// ErrClosed says that the database is being closed.
	ErrClosed = errors.New("the database is closed")
	// ErrUnknown says that the connection was lost while PostgreSQL
	// committed, and that it could not be asked afterwards what became of
	// it: the write may be there or not.
	ErrUnknown = errors.New("it is not known whether the write was committed")
)

// lane is a queue of jobs with one goroutine that commits them together.
type lane struct {
	jobs     chan *pending
	stopping chan struct{}
	stopped  chan struct{}
	now      func() time.Time
	after    func(time.Duration) <-chan time.Time
}

func startLane(e engine) *lane {
	l := &lane{
		jobs:     make(chan *pending, 4*maxBatch),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
		now:      time.Now,
		after:    time.After,
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
	var callers callers
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
		if callers.more(len(batch), l.now()) {
			batch = l.gather(batch, &callers)
		}
		batch = slices.DeleteFunc(batch, func(p *pending) bool { return !p.take() })
		if len(batch) == 0 {
			continue
		}
		waiting := 0
		batch[0].ending = func() { waiting = len(l.jobs) } // who has his answer may be back at once
		began := l.now()
		e.batch(batch)
		callers.served(len(batch), waiting, began, l.now())
	}
}

// gather adds to a batch the jobs of callers who should come in a moment.
func (l *lane) gather(batch []*pending, c *callers) []*pending {
	enough := l.after(c.patience())
	for len(batch) < c.known {
		select {
		case p := <-l.jobs:
			batch = append(batch, p)
		case <-enough:
			c.stayedAway()
			return batch
		case <-l.stopping:
			return batch
		}
	}
	c.came()
	return batch
}

// commitTogether is how both engines carry a batch out: all jobs in one
// transaction. After a failure the transaction is given up as a whole and each
// half of the jobs tried again by itself, in their order, until the one at
// fault is alone: no job suffers from another and none is told a result that
// is not its own. together runs the given jobs in one transaction: it sets err
// of the jobs that declined cleanly, and returns an error when nothing was
// committed.
func commitTogether(jobs []*pending, together func([]*pending) error) {
	err := together(jobs)
	var fate *shared
	switch {
	case err == nil:
		for _, p := range jobs {
			p.answer(p.err)
		}
	case errors.As(err, &fate):
		for _, p := range jobs {
			p.answer(err)
		}
	case len(jobs) == 1:
		jobs[0].answer(firstError(jobs[0].err, err))
	default:
		commitTogether(jobs[:len(jobs)/2], together)
		commitTogether(jobs[len(jobs)/2:], together)
	}
}

// shared is a failure that no job of a batch caused: the database can't be
// reached, or never told whether it committed. Repeating the jobs apart would
// not help, or do something twice.
type shared struct{ error }

func (s *shared) Unwrap() error { return s.error }

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
