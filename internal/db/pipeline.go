// SPDX-License-Identifier: Apache-2.0

package db

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// batch carries a lane's jobs out in two round trips: BEGIN and all guards,
// then all applies and, where none of them can still decline, COMMIT.
func (e *postgresEngine) batch(jobs []*pending) {
	commitTogether(jobs, func(jobs []*pending) error {
		return e.transaction(context.Background(), e.lanePool, func(s *pgSession) error {
			for _, p := range jobs {
				p.err, p.changed = nil, false
			}
			return (&pipe{pgSession: s}).carry(jobs)
		})
	})
}

// pipe is one pipelined transaction.
type pipe struct {
	*pgSession
	tainted error // errTainted once a job declined after a change
}

func (p *pipe) carry(jobs []*pending) error {
	guards := p.begin()
	p.queue(guards, jobs, func(j *Job) func(*Batch) { return j.Guard })
	if err := p.send(guards); err != nil {
		return err
	}
	// The number of the transaction is known before COMMIT is sent: only so
	// can its outcome be asked for when the answer gets lost.
	applies := &pgx.Batch{}
	final := p.queue(applies, jobs, func(j *Job) func(*Batch) { return j.Apply })
	if p.tainted != nil {
		return p.tainted
	}
	if !final {
		if err := p.send(applies); err != nil {
			return err
		}
		applies = &pgx.Batch{}
	}
	// After an error PostgreSQL skips the rest of what was sent together,
	// COMMIT included.
	return p.commit(applies)
}

func (p *pipe) send(b *pgx.Batch) error {
	if err := p.pgSession.send(b); err != nil {
		return err
	}
	return p.tainted
}

// queue adds one step of all jobs to b, its statements in the order of their
// keys. It reports whether none of it can decline.
func (p *pipe) queue(b *pgx.Batch, jobs []*pending, of func(*Job) func(*Batch)) (final bool) {
	final = true
	type statement struct {
		*Queued
		job *pending
		at  ID
	}
	var all []statement
	var step Batch
	for _, job := range jobs {
		queue := of(job.job)
		if queue == nil || job.err != nil {
			continue
		}
		step.queued = nil // the callbacks keep what they point to
		job.collect(queue, &step)
		p.note(job.taint())
		at := job.key
		for _, q := range step.queued {
			at = max(at, q.key)
			all = append(all, statement{q, job, at})
			final = final && q.none == nil && q.read == nil
		}
	}
	slices.SortStableFunc(all, func(a, b statement) int { return cmp.Compare(a.at, b.at) })
	for _, s := range all {
		p.queueOne(b, s.job, s.Queued)
	}
	return final
}

// queueOne adds a statement. A job that declines has its later statements of
// this step run all the same, since they were sent together; if any of them,
// or one before, changed something, the transaction is tainted.
func (p *pipe) queueOne(b *pgx.Batch, job *pending, q *Queued) {
	queued := b.Queue(q.query.postgres, q.args...)
	if q.read == nil {
		queued.Exec(func(tag pgconn.CommandTag) error {
			p.note(job.judge(q, tag.RowsAffected(), nil))
			return nil
		})
		return
	}
	queued.Query(func(rows pgx.Rows) error {
		read, declined := q.reader()
		n, err := readPgRows(rows, read)
		if err != nil {
			return fmt.Errorf("reading rows: %w", err)
		}
		p.note(job.judge(q, n, *declined))
		return nil
	})
}

func (p *pipe) note(tainted error) {
	if tainted != nil {
		p.tainted = tainted
	}
}
