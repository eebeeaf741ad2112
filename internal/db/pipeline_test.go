// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

var holdUsage = db.SQL(`SELECT mailbox FROM mailbox_usage WHERE mailbox = $1 {for_update}`)

// Jobs of one batch lock a row once, and their plain INSERTs share statements.
func TestBatchSendsFewStatements(t *testing.T) {
	var keys []db.ID
	var jobs []*db.Mutation
	for i := range 12 {
		id, box := db.ID(100+i), db.ID(1+i%2)
		keys = append(keys, box)
		jobs = append(jobs, &db.Mutation{
			Guard: func(b *db.Batch) {
				b.Queue(holdUsage.With(box))
				b.Queue(use.With(box, 1)).OrFail(errors.New("full"))
			},
			Apply: func(b *db.Batch) {
				b.Queue(addAccount.With(id, id.String(), ""))
				b.Queue(addBlob.With(id, 1, []byte("x")))
			},
		})
	}
	guards, applies := db.Statements(keys, jobs)
	count := func(texts []string, of string) int {
		return len(slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return !strings.HasPrefix(text, of) }))
	}
	if locks, uses := count(guards, "SELECT"), count(guards, "UPDATE"); locks != 2 || uses != 12 || len(guards) != 14 {
		t.Errorf("%d locks of two rows and %d uses by twelve jobs, of %q", locks, uses, guards)
	}
	if len(applies) != 4 { // 8 rows and 4 rows, of each table
		t.Errorf("%d statements for twelve rows of two tables: %q", len(applies), applies)
	}
}

// In batches of random jobs, each job gets its own result, and nothing is written twice or for a
// failed job.
func TestBatchesAtRandom(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		full, gone := errors.New("full"), errors.New("gone")
		for seed := range rounds {
			r := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // to be repeated
			boxes, pool := []db.ID{d.NewID(), d.NewID(), d.NewID()}, make([]db.ID, 60)
			for i := range pool {
				pool[i] = d.NewID()
			}
			for _, box := range boxes {
				dbtest.Exec(t, d, addUsage.With(box))
			}
			type task struct {
				box     db.ID
				amount  int64
				ids     []db.ID
				declare bool // whether it fails for a missing row, after its INSERTs
				spoil   bool // whether it violates a constraint
				after   int
			}
			tasks := make([]*task, 1+r.IntN(40))
			keys, jobs := make([]db.ID, len(tasks)), make([]*db.Mutation, len(tasks))
			for i := range tasks {
				at := r.IntN(len(boxes))
				j := &task{box: boxes[at], amount: 1 + r.Int64N(20), declare: r.IntN(12) == 0, spoil: r.IntN(12) == 0}
				for _, n := range r.Perm(len(pool))[:1+r.IntN(3)] {
					j.ids = append(j.ids, pool[n])
				}
				tasks[i], keys[i] = j, boxes[r.IntN(at+1)] // a row of a key that comes after the job's own
				jobs[i] = &db.Mutation{
					Guard: func(b *db.Batch) {
						b.Queue(holdUsage.With(j.box)).WithLockKey(j.box)
						b.Queue(use.With(j.box, j.amount)).WithLockKey(j.box).OrFail(full)
					},
					Apply: func(b *db.Batch) {
						for _, id := range j.ids {
							b.Queue(addAccount.With(id, id.String(), fmt.Sprint(i)))
							b.Queue(addBlob.With(id, 1, []byte("x")))
						}
						if j.spoil {
							b.Queue(breakRule.With(j.ids[0], "no such status"))
						}
						if j.declare {
							b.Queue(setName.With(db.ID(1), "nobody")).OrFail(gone)
						}
					},
					AfterCommit: func() { j.after++ },
				}
			}
			told := d.Batch(keys, jobs)
			owner := map[db.ID]string{}
			for _, id := range pool {
				var name string
				if err := d.One(t.Context(), nameOf.With(id), &name); err == nil {
					owner[id] = name
				} else if !errors.Is(err, db.ErrNoRow) {
					t.Fatal(err)
				}
			}
			rows := 0
			used, count := map[db.ID]int64{}, map[db.ID]int64{}
			for i, j := range tasks {
				if err := told[i]; err == nil {
					rows += len(j.ids)
					used[j.box] += j.amount
					count[j.box]++
				}
			}
			if rows != len(owner) {
				t.Errorf("seed %d: %d rows are stored of %d that were told", seed, len(owner), rows)
			}
			for i, j := range tasks {
				others := func(id db.ID) bool { return owner[id] != "" && owner[id] != fmt.Sprint(i) }
				own := func(id db.ID) bool { return owner[id] == fmt.Sprint(i) }
				var right bool
				switch err := told[i]; {
				case err == nil:
					right = !j.spoil && !j.declare && j.after == 1 && !slices.ContainsFunc(j.ids, others)
				case errors.Is(err, full):
					right = used[j.box]+j.amount > 100
				case errors.Is(err, gone):
					right = j.declare
				case d.IsConflict(err):
					right = slices.ContainsFunc(j.ids, others)
				default:
					right = j.spoil
				}
				if told[i] != nil {
					right = right && j.after == 0 && !slices.ContainsFunc(j.ids, own)
				}
				if !right {
					t.Errorf("seed %d: job %d was told %v: %+v", seed, i, told[i], j)
				}
			}
			for _, box := range boxes {
				var bytes, messages int64
				if err := d.One(t.Context(), usage.With(box), &bytes, &messages); err != nil {
					t.Fatal(err)
				}
				if bytes != used[box] || messages != count[box] {
					t.Errorf("seed %d: %d bytes by %d jobs are counted, not %d by %d", seed, bytes, messages, used[box], count[box])
				}
			}
		}
	})
}
