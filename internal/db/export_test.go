// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// MigrateTo makes the schema of an older release in an empty PostgreSQL database.
func MigrateTo(ctx context.Context, url string, version int64) error {
	conn, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	return errors.Join(migrateTo(ctx, Postgres, conn, version), conn.Close())
}

// Rendered shows tests a query's text as an engine gets it.
func Rendered(e Engine, text string) string { return render(e, text) }

// SessionSettings shows tests what each connection to PostgreSQL sets.
var SessionSettings = sessionSettings

// Refusal is what is made of an error of connecting.
var Refusal = explainConnectError

// Replan is what happens when a connection is taken from its pool.
var Replan = replan

// FirstReplan is how old a connection is when its plans are first made anew.
const FirstReplan = minReplanInterval

// LaneOf tells tests which lane a key's jobs go through.
func (d *DB) LaneOf(key ID) int { return int(mix64(uint64(key)) % uint64(len(d.batchers))) }

// Batch has jobs carried out together, as a lane does with those that wait, and
// returns what each was told.
func (d *DB) Batch(keys []ID, jobs []*Mutation) []error {
	all := make([]*pendingWrite, len(jobs))
	for i, job := range jobs {
		all[i] = &pendingWrite{key: keys[i], mutation: job, done: make(chan error, 1)}
	}
	d.commitBatch(slices.Clone(all))
	told := make([]error, len(jobs))
	for i, p := range all {
		told[i] = <-p.done
	}
	return told
}

// Statements are the texts that PostgreSQL gets for the two steps of jobs that are
// carried out together.
func Statements(keys []ID, jobs []*Mutation) (guards, applies []string) {
	all := make([]*pendingWrite, len(jobs))
	for i, job := range jobs {
		all[i] = &pendingWrite{key: keys[i], mutation: job}
	}
	texts := func(of func(*Mutation) func(*Batch)) (texts []string) {
		b := &pgx.Batch{}
		(&pipeline{}).queueStep(b, all, of)
		for _, q := range b.QueuedQueries {
			texts = append(texts, q.SQL)
		}
		return texts
	}
	return texts(func(j *Mutation) func(*Batch) { return j.Guard }), texts(func(j *Mutation) func(*Batch) { return j.Apply })
}

// WaitFor sets the clock of a lane, and what ends its wait for callers who should
// come. The lane of the key must have nothing to do.
func (d *DB) WaitFor(key ID, now func() time.Time, enough <-chan time.Time) {
	l := d.batchers[d.LaneOf(key)]
	l.now, l.after = now, func(time.Duration) <-chan time.Time { return enough }
}

// Enqueue is Write that does not wait: the answer comes through the channel.
func (d *DB) Enqueue(key ID, job *Mutation) <-chan error {
	p := &pendingWrite{key: key, mutation: job, done: make(chan error, 1)}
	d.batchers[d.LaneOf(key)].writes <- p
	return p.done
}

// CommitTogether runs n jobs through commitWithBisection and returns what each was
// told. together gets the numbers of the jobs in one transaction.
func CommitTogether(n int, together func(jobs []int) error) []error {
	jobs := make([]*pendingWrite, n)
	number := map[*pendingWrite]int{}
	for i := range jobs {
		jobs[i] = &pendingWrite{mutation: &Mutation{}, done: make(chan error, 1)}
		number[jobs[i]] = i
	}
	commitWithBisection(jobs, func(jobs []*pendingWrite) error {
		var numbers []int
		for _, p := range jobs {
			numbers = append(numbers, number[p])
		}
		return together(numbers)
	})
	told := make([]error, n)
	for i, p := range jobs {
		told[i] = <-p.done
	}
	return told
}

// Outage is what Write and Tx make of an error.
var Outage = asUnavailable

// Shared marks an error as one that no job caused.
func Shared(err error) error { return &batchError{err} }

// Renew is what Keep does every third of a lease.
func (n *Node) Renew(ctx context.Context) error { return n.renew(ctx) }

// Reads says whether a query is taken to change nothing.
func (q *Query) Reads() bool { return q.readOnly }

// Rows are the texts of a plain INSERT for several rows.
func (q *Query) Rows() []string { return q.multiRow }

// WithWAL sets other limits of the write-ahead log, in pages.
func (o Options) WithWAL(copy, hold, alarm int) Options {
	o.wal = walLimits{passive: copy, exclusive: (copy + hold) / 2, restart: hold, warn: alarm}
	return o
}

// LookAtWAL is what the keeper of the write-ahead log does now and then, by a
// connection of its own, after it said that the log was over its limit.
func (d *DB) LookAtWAL(ctx context.Context, own *sql.DB) {
	(&checkpointer{sqliteEngine: d.engine.(*sqliteEngine), conn: own, warned: true}).poll(ctx)
}

// Committed is how a transaction of PostgreSQL is asked for whose connection
// was lost, in a life of the server.
func (d *DB) Committed(ctx context.Context, xid uint64, life string) (bool, error) {
	return d.engine.(*postgresEngine).wasCommitted(ctx, xid, life)
}

// Life is the life of the server.
func (d *DB) Life(ctx context.Context) (string, error) {
	conn, err := d.engine.(*postgresEngine).pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()
	return incarnationOf(conn.Conn()), nil
}

// Until is when a caller who asked at a moment gives up, after the server has been
// away for so long; less than 0: it answers.
func Until(maxWait, away time.Duration, asked time.Time) time.Time {
	p := availability{maxWait: maxWait}
	if away >= 0 {
		since := time.Now().Add(-away)
		p.downSince.Store(&since)
	}
	return p.deadline(asked)
}

// Away reports whether the server was missed and has not answered since.
func (d *DB) Away() bool { return d.isDown() }
