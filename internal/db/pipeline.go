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

// commitBatch executes a batch in two round trips: BEGIN and all guards, then all applies and, if
// none of them can decline, COMMIT.
func (e *postgresEngine) commitBatch(jobs []*pendingWrite) {
	asked := jobs[0].queuedAt
	commitWithBisection(jobs, func(jobs []*pendingWrite) error {
		return e.retryTx(context.Background(), e.batcherPool, asked, func(s *pgTx) error {
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
	tainted error // errTainted once a mutation declined after a change
}

func (p *pipeline) execute(jobs []*pendingWrite) error {
	guards := p.begin()
	p.queueStep(guards, jobs, func(j *Mutation) func(*Batch) { return j.Guard })
	if err := p.send(guards); err != nil {
		return err
	}
	// The transaction's id must be known before COMMIT is sent: without it the
	// outcome can't be looked up when the answer gets lost.
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
	// After an error PostgreSQL skips the rest of the statements in the round trip,
	// including COMMIT.
	return p.commit(applies)
}

func (p *pipeline) send(b *pgx.Batch) error {
	if err := p.pgTx.send(b); err != nil {
		return err
	}
	return p.tainted
}

// orderedStatement is a statement of a mutation with its position in the batch.
type orderedStatement struct {
	*QueuedStatement
	write *pendingWrite
	order ID // key that determines the position
}

// queueStep adds one step of all jobs to b, with its statements in the order of their keys. It
// reports whether no statement of it can decline.
func (p *pipeline) queueStep(b *pgx.Batch, jobs []*pendingWrite, of func(*Mutation) func(*Batch)) (final bool) {
	final = true
	var all []orderedStatement
	var step Batch
	for _, job := range jobs {
		queue := of(job.mutation)
		if queue == nil || job.err != nil {
			continue
		}
		step.statements = nil // callbacks keep pointers into the old slice
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
		n := 0 // number of plain INSERTs in a row
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
		p.queueMergedInserts(b, all[i:i+n])
		i += n
	}
	return final
}

// ignoresResult reports whether the statement's result can't decline the mutation.
func (q *QueuedStatement) ignoresResult() bool { return q.read == nil && q.noRowErr == nil }

// mergeable reports whether the INSERT may be combined with others in one statement.
func (q *QueuedStatement) mergeable() bool { return q.ignoresResult() && q.query.multiRow != nil }

// locksRow reports whether the statement is a SELECT that only locks a row.
func (q *QueuedStatement) locksRow() bool {
	return q.ignoresResult() && q.query.readOnly && len(q.args) == 1
}

// alreadyLocked reports whether an earlier statement of the batch takes the same lock.
func alreadyLocked(before []orderedStatement, s orderedStatement) bool {
	return s.locksRow() && slices.ContainsFunc(before, func(o orderedStatement) bool {
		return o.query == s.query && o.locksRow() && o.args[0] == s.args[0]
	})
}

// queueMergedInserts combines plain INSERTs into few statements of many rows, since each statement
// has a fixed cost in PostgreSQL. Their order does not matter.
func (p *pipeline) queueMergedInserts(b *pgx.Batch, all []orderedStatement) {
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

// queueStatement adds a statement. If a mutation declines, its later statements of this step still
// run, since they were sent together. If any of its statements changed something, the transaction
// is tainted.
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
		n, err := eachPgRow(rows, read)
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
