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

// commitBatch carries a lane's jobs out in two round trips: BEGIN and all guards,
// then all applies and, where none of them can still decline, COMMIT.
func (e *postgresEngine) commitBatch(jobs []*pendingWrite) {
	until := e.availability.deadline(jobs[0].queuedAt)
	commitWithBisection(jobs, func(jobs []*pendingWrite) error {
		return e.retryTx(context.Background(), e.batcherPool, until, func(s *pgTx) error {
			for _, p := range jobs {
				p.err, p.changed = nil, false
			}
			return (&pipeline{pgTx: s}).execute(jobs)
		})
	})
}

// pipeline is one pipelined transaction.
type pipeline struct {
	*pgTx
	tainted error // errTainted once a job declined after a change
}

func (p *pipeline) execute(jobs []*pendingWrite) error {
	guards := p.begin()
	p.queueStep(guards, jobs, func(j *Mutation) func(*Batch) { return j.Guard })
	if err := p.send(guards); err != nil {
		return err
	}
	// The number of the transaction is known before COMMIT is sent: only so
	// can its outcome be asked for when the answer gets lost.
	applies := &pgx.Batch{}
	final := p.queueStep(applies, jobs, func(j *Mutation) func(*Batch) { return j.Apply })
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

func (p *pipeline) send(b *pgx.Batch) error {
	if err := p.pgTx.send(b); err != nil {
		return err
	}
	return p.tainted
}

// orderedStatement is a statement of a job, in its place among those of all.
type orderedStatement struct {
	*QueuedStatement
	write *pendingWrite
	order ID // its place
}

// queueStep adds one step of all jobs to b, its statements in the order of their
// keys. It reports whether none of it can decline.
func (p *pipeline) queueStep(b *pgx.Batch, jobs []*pendingWrite, of func(*Mutation) func(*Batch)) (final bool) {
	final = true
	var all []orderedStatement
	var step Batch
	for _, job := range jobs {
		queue := of(job.mutation)
		if queue == nil || job.err != nil {
			continue
		}
		step.statements = nil // the callbacks keep what they point to
		job.collect(queue, &step)
		p.noteTaint(job.checkTaint())
		at := job.key
		for _, q := range step.statements {
			at = max(at, q.key)
			all = append(all, orderedStatement{q, job, at})
			final = final && q.ignoresResult()
		}
	}
	slices.SortStableFunc(all, func(a, b orderedStatement) int { return cmp.Compare(a.order, b.order) })
	for i := 0; i < len(all); {
		n := 0 // of plain INSERTs in a row
		for i+n < len(all) && all[i+n].mergeable() {
			n++
		}
		if n == 0 {
			if !alreadyLocked(all[:i], all[i]) {
				p.queueStatement(b, all[i].write, all[i].QueuedStatement)
			}
			i++
			continue
		}
		p.queueInserts(b, all[i:i+n])
		i += n
	}
	return final
}

// ignoresResult reports whether nothing that the statement returns decides anything.
func (q *QueuedStatement) ignoresResult() bool { return q.read == nil && q.noRowErr == nil }

// mergeable reports whether it may share a statement with other INSERTs.
func (q *QueuedStatement) mergeable() bool { return q.ignoresResult() && q.query.multiRow != nil }

// locksRow reports whether it is a SELECT that is there for the lock of a row.
func (q *QueuedStatement) locksRow() bool {
	return q.ignoresResult() && q.query.readOnly && len(q.args) == 1
}

// alreadyLocked reports whether a lock is one that another job of the batch takes before.
func alreadyLocked(before []orderedStatement, s orderedStatement) bool {
	return s.locksRow() && slices.ContainsFunc(before, func(o orderedStatement) bool {
		return o.query == s.query && o.locksRow() && o.args[0] == s.args[0]
	})
}

// queueInserts adds plain INSERTs as few statements of many rows, since PostgreSQL takes
// its time to begin and to end each. Which comes first is all the same to them.
func (p *pipeline) queueInserts(b *pgx.Batch, all []orderedStatement) {
	for len(all) > 0 {
		query := all[0].query
		var same, others []orderedStatement
		for _, s := range all {
			if s.query == query {
				same = append(same, s)
			} else {
				others = append(others, s)
			}
		}
		for rows := range slices.Chunk(same, maxInsertRows) {
			for len(rows) > 0 {
				power := bits.Len(uint(len(rows))) - 1
				p.queueMultiRow(b, query.multiRow[power], rows[:1<<power])
				rows = rows[1<<power:]
			}
		}
		all = others
	}
}

// queueMultiRow adds INSERTs of one query as one statement.
func (p *pipeline) queueMultiRow(b *pgx.Batch, text string, rows []orderedStatement) {
	var args []any
	for _, r := range rows {
		args = append(args, r.args...)
	}
	b.Queue(text, args...).Exec(func(tag pgconn.CommandTag) error {
		if n := tag.RowsAffected(); n != int64(len(rows)) {
			return fmt.Errorf("%s: %d of %d rows", rows[0].query.name(), n, len(rows))
		}
		for _, r := range rows {
			p.noteTaint(r.write.recordResult(r.QueuedStatement, 1, nil))
		}
		return nil
	})
}

// queueStatement adds a statement. A job that declines has its later statements of
// this step run all the same, since they were sent together; if any of them,
// or one before, changed something, the transaction is tainted.
func (p *pipeline) queueStatement(b *pgx.Batch, job *pendingWrite, q *QueuedStatement) {
	sent := b.Queue(q.query.postgres, q.args...)
	if q.read == nil {
		sent.Exec(func(tag pgconn.CommandTag) error {
			p.noteTaint(job.recordResult(q, tag.RowsAffected(), nil))
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
		p.noteTaint(job.recordResult(q, n, *declined))
		return nil
	})
}

func (p *pipeline) noteTaint(tainted error) {
	if tainted != nil {
		p.tainted = tainted
	}
}
