// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
)

// MigrateWith migrates a PostgreSQL database with a migration of a later release.
func MigrateWith(ctx context.Context, url, migration string) error {
	conn, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	texts := fstest.MapFS{"99999_later.sql": &fstest.MapFile{Data: []byte("-- +goose Up\n" + migration)}}
	return errors.Join(applyMigrations(ctx, Postgres, conn, slog.New(slog.DiscardHandler), texts), conn.Close())
}

// Rendered returns a query's text as an engine gets it.
func Rendered(e Engine, text string) string { return renderSQL(e, text) }

// SessionSettings are the settings of each connection to PostgreSQL.
var SessionSettings = sessionSettings

// Refusal is explainConnectError.
var Refusal = explainConnectError

// Replan is called when a connection is taken from its pool.
var Replan = replan

// FirstReplan is the age of a connection at its first replanning.
const FirstReplan = minReplanInterval

// BatcherOf returns the index of a key's batcher.
func (d *DB) BatcherOf(key ID) int { return int(mix64(uint64(key)) % uint64(len(d.batchers))) }

// Batch commits jobs together, as a batcher does with waiting ones, and returns the error of each.
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

// Statements returns the texts that PostgreSQL gets for the two steps of a batch of jobs.
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

// WaitFor sets the clock of a key's batcher, and the channel that ends its wait for expected
// callers. The batcher must be idle.
func (d *DB) WaitFor(key ID, now func() time.Time, enough <-chan time.Time) {
	l := d.batchers[d.BatcherOf(key)]
	l.now, l.after = now, func(time.Duration) <-chan time.Time { return enough }
}

// Enqueue is Write that does not wait: the result comes through the channel.
func (d *DB) Enqueue(key ID, job *Mutation) <-chan error {
	p := &pendingWrite{key: key, mutation: job, done: make(chan error, 1)}
	d.batchers[d.BatcherOf(key)].writes <- p
	return p.done
}

// CommitTogether runs n jobs through commitWithBisection and returns the error of each. together
// gets the numbers of the jobs in one transaction.
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

// Outage converts an error as Write and Tx do.
var Outage = asUnavailable

// Shared wraps an error as one that no job caused.
func Shared(err error) error { return &batchError{err} }

// Reads reports whether a query is considered read-only.
func (q *Query) Reads() bool { return q.readOnly }

// Rows returns the texts of a plain INSERT for several rows.
func (q *Query) Rows() []string { return q.multiRow }

// WithWAL sets other limits of the write-ahead log, in pages.
func (o Options) WithWAL(copy, hold, alarm int) Options {
	o.wal = walLimits{passive: copy, exclusive: (copy + hold) / 2, restart: hold, warn: alarm}
	return o
}

// LookAtWAL polls the write-ahead log over the given connection, as the checkpointer does after its
// warning that the log is over its limit.
func (d *DB) LookAtWAL(ctx context.Context, own *sql.DB) {
	(&checkpointer{sqliteEngine: d.engine.(*sqliteEngine), conn: own, warned: true}).poll(ctx)
}

// Committed looks up the outcome of a PostgreSQL transaction whose connection was lost, in an
// incarnation of the server.
func (d *DB) Committed(ctx context.Context, xid uint64, life string) (bool, error) {
	return d.engine.(*postgresEngine).wasCommitted(ctx, xid, life)
}

// Life returns the server's incarnation.
func (d *DB) Life(ctx context.Context) (string, error) {
	conn, err := d.engine.(*postgresEngine).pool.Acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release(conn)
	return incarnationOf(conn.Conn()), nil
}

// Until returns when a caller that began at asked gives up, after the server has been down for
// away; below 0 the server answers.
func Until(outageWait, away time.Duration, asked time.Time) time.Time {
	p := availability{outageWait: outageWait}
	if away >= 0 {
		since := time.Now().Add(-away)
		p.downSince.Store(&since)
	}
	return p.deadline(asked)
}

// Away reports whether the server has stopped answering.
func (d *DB) Away() bool { return d.isDown() }

// Probe asks the server whether it answers.
func (d *DB) Probe() error { return d.engine.(*postgresEngine).availability.probe() }
