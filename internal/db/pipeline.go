// SPDX-License-Identifier: Apache-2.0

package db

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// batch carries a lane's jobs out in two round trips: BEGIN and all guards,
// then all applies and, where none of them can still decline, COMMIT.
func (e *postgresEngine) batch(jobs []*pending) {
	until := e.presence.until(jobs[0].asked)
	commitTogether(jobs, func(jobs []*pending) error {
		return e.transaction(context.Background(), e.lanePool, until, func(s *pgSession) error {
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

// placed is a statement of a job, in its place among those of all.
type placed struct {
	*Queued
	job *pending
	at  ID // its place
}

// queue adds one step of all jobs to b, its statements in the order of their
// keys. It reports whether none of it can decline.
func (p *pipe) queue(b *pgx.Batch, jobs []*pending, of func(*Job) func(*Batch)) (final bool) {
	final = true
	var all []placed
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
			all = append(all, placed{q, job, at})
			final = final && q.mute()
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	for i := 0; i < len(all); {
		n := 0 // of plain INSERTs in a row
		for i+n < len(all) && all[i+n].plain() {
			n++
		}
		if n == 0 {
			if !taken(all[:i], all[i]) {
				p.queueOne(b, all[i].job, all[i].Queued)
			}
			i++
			continue
		}
		p.queueRows(b, all[i:i+n])
		i += n
	}
	return final
}

// mute reports whether nothing that the statement returns decides anything.
func (q *Queued) mute() bool { return q.read == nil && q.none == nil }

// plain reports whether it may share a statement with other INSERTs.
func (q *Queued) plain() bool { return q.mute() && q.query.rows != nil }

// holds reports whether it is a SELECT that is there for the lock of a row.
func (q *Queued) holds() bool { return q.mute() && q.query.reads && len(q.args) == 1 }

// taken reports whether a lock is one that another job of the batch takes before.
func taken(before []placed, s placed) bool {
	return s.holds() && slices.ContainsFunc(before, func(o placed) bool {
		return o.query == s.query && o.holds() && o.args[0] == s.args[0]
	})
}

// queueRows adds plain INSERTs as few statements of many rows, since PostgreSQL takes
// its time to begin and to end each. Which comes first is all the same to them.
func (p *pipe) queueRows(b *pgx.Batch, all []placed) {
	for len(all) > 0 {
		query := all[0].query
		var same, others []placed
		for _, s := range all {
			if s.query == query {
				same = append(same, s)
			} else {
				others = append(others, s)
			}
		}
		for rows := range slices.Chunk(same, maxRows) {
			for len(rows) > 0 {
				power := bits.Len(uint(len(rows))) - 1
				p.queueTogether(b, query.rows[power], rows[:1<<power])
				rows = rows[1<<power:]
			}
		}
		all = others
	}
}

// queueTogether adds INSERTs of one query as one statement.
func (p *pipe) queueTogether(b *pgx.Batch, text string, rows []placed) {
	var args []any
	for _, r := range rows {
		args = append(args, r.args...)
	}
	b.Queue(text, args...).Exec(func(tag pgconn.CommandTag) error {
		if n := tag.RowsAffected(); n != int64(len(rows)) {
			return fmt.Errorf("%s: %d of %d rows", rows[0].query.name(), n, len(rows))
		}
		for _, r := range rows {
			p.note(r.job.judge(r.Queued, 1, nil))
		}
		return nil
	})
}

// queueOne adds a statement. A job that declines has its later statements of
// this step run all the same, since they were sent together; if any of them,
// or one before, changed something, the transaction is tainted.
func (p *pipe) queueOne(b *pgx.Batch, job *pending, q *Queued) {
	sent := b.Queue(q.query.postgres, q.args...)
	if q.read == nil {
		sent.Exec(func(tag pgconn.CommandTag) error {
			p.note(job.judge(q, tag.RowsAffected(), nil))
			return nil
		})
		return
	}
	sent.Query(func(rows pgx.Rows) error {
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
