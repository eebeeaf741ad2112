// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// batch carries a lane's jobs out in two round trips: BEGIN and all guards,
// then all applies and, where none of them can still decline, COMMIT.
func (e *postgresEngine) batch(ctx context.Context, jobs []*pending) {
	commitTogether(jobs, func(jobs []*pending) error {
		return e.repeat(ctx, func() error {
			for _, p := range jobs {
				p.err = nil
			}
			return e.pipeline(ctx, jobs)
		})
	})
}

func (e *postgresEngine) pipeline(ctx context.Context, jobs []*pending) error {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("waiting for a connection: %w", err)
	}
	defer conn.Release()
	p := &pipe{conn: conn.Conn()}
	err = p.carry(ctx, jobs)
	if err == nil || p.ended {
		return err
	}
	// A connection that can't roll back is broken; the pool drops it, and
	// with it PostgreSQL drops the transaction.
	if _, rollback := p.conn.Exec(ctx, "ROLLBACK"); rollback != nil {
		_ = p.conn.Close(ctx)
	}
	return err
}

// pipe is one pipelined transaction.
type pipe struct {
	conn    *pgx.Conn
	xid     uint64
	tainted bool // a job declined after a change
	ended   bool // COMMIT was answered
}

func (p *pipe) carry(ctx context.Context, jobs []*pending) error {
	var guards, applies pgx.Batch
	guards.Queue("BEGIN")
	guards.Queue(currentXid).QueryRow(func(r pgx.Row) error { return r.Scan(&p.xid) })
	p.queue(&guards, jobs, func(j *Job) func(*Batch) { return j.Guard })
	if err := p.send(ctx, &guards); err != nil {
		return p.unanswered(err, false)
	}
	final := p.queue(&applies, jobs, func(j *Job) func(*Batch) { return j.Apply })
	if !final {
		if err := p.send(ctx, &applies); err != nil {
			return p.unanswered(err, false)
		}
		applies = pgx.Batch{}
	}
	// After an error PostgreSQL skips the rest of what was sent together,
	// COMMIT included.
	var tag string
	applies.Queue("COMMIT").Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	if err := p.send(ctx, &applies); err != nil {
		return p.unanswered(err, true)
	}
	p.ended = true
	if tag != "COMMIT" {
		return errors.New("PostgreSQL rolled the transaction back")
	}
	return nil
}

// unanswered turns a lost connection into what it means for the transaction:
// before COMMIT was sent it is rolled back and can be repeated.
func (p *pipe) unanswered(err error, commitSent bool) error {
	if sqlState(err) != "" || errors.Is(err, errTainted) || !p.conn.IsClosed() {
		return err
	}
	if commitSent {
		return &unsure{xid: p.xid, cause: err}
	}
	return &lost{err}
}

// lost is a connection lost before the commit.
type lost struct{ error }

func (l *lost) Unwrap() error { return l.error }

// SafeToRetry says so to pgconn.SafeToRetry.
func (l *lost) SafeToRetry() bool { return true }

// queue adds one step of all jobs to b. It reports whether none of it can
// decline.
func (p *pipe) queue(b *pgx.Batch, jobs []*pending, of func(*Job) func(*Batch)) (final bool) {
	final = true
	for _, job := range jobs {
		queue := of(job.job)
		if queue == nil || job.err != nil {
			continue
		}
		var step Batch
		queue(&step)
		state := &stepState{job: job, tainted: &p.tainted}
		for _, q := range step.queued {
			state.queue(b, q)
			final = final && q.none == nil && q.read == nil
		}
	}
	return final
}

func (p *pipe) send(ctx context.Context, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if err := p.conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if p.tainted {
		return errTainted
	}
	return nil
}

// stepState follows one job through a step.
type stepState struct {
	job     *pending
	changed bool
	tainted *bool // of the whole batch
}

func (s *stepState) queue(b *pgx.Batch, q *Queued) {
	queued := b.Queue(q.query.postgres, q.args...)
	if q.read == nil {
		queued.Exec(func(tag pgconn.CommandTag) error {
			s.judge(q, tag.RowsAffected(), nil)
			return nil
		})
		return
	}
	queued.Query(func(rows pgx.Rows) error {
		var declined error
		n, err := readPgRows(rows, func(r Row) error {
			if declined == nil {
				declined = q.read(r)
			}
			return nil
		})
		if err == nil {
			s.judge(q, n, declined)
		}
		return err
	})
}

// judge notes whether the job declines here. All its later statements in this
// step run all the same, since they were sent together; if any of them, or
// one before, changed something, the transaction is tainted.
func (s *stepState) judge(q *Queued, rows int64, declined error) {
	if !q.query.reads && rows > 0 {
		s.changed = true
	}
	if s.job.err == nil {
		s.job.err = firstError(declined, q.outcome(rows))
	}
	if s.job.err != nil && s.changed {
		*s.tainted = true
	}
}
