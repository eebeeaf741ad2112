// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

var (
	deleteMessage = db.SQL(`DELETE FROM outbound_message WHERE id = $1`)
	deleteTerms   = db.SQL(`DELETE FROM outbound_term WHERE account = $1 AND message = $2 AND term IN (
		$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
		$23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42)`)
)

// pruneTerms is how many terms deleteTerms takes.
const pruneTerms = 40

// pruned is how far a round of pruning has come.
type pruned struct {
	mu   sync.Mutex
	upTo db.ID
}

// past is a message that is to be deleted.
type past struct {
	*row
	recipients []queue.Record
	terms      []int64
	over       bool // still, under the lock of its deliveries
}

// size is how many rows go with the message.
func (p *past) size() int {
	n := 3 + len(p.terms)
	for _, d := range p.recipients {
		n += 1 + d.Attempts
	}
	return n
}

// Prune deletes, in one commit, some messages all of whose deliveries have been
// final since before a time, the oldest first, with everything that belongs to
// them: deliveries, attempts, bytes, metadata, and what they are found by. It
// returns how many rows went, about limit (a message goes as a whole); 0: there
// are no more. What is left is a trace, by which an answer still finds its
// thread.
//
// The bytes' file, if they have one, is left to the sweep, as others may share
// it. What is found by terms that an earlier release made is not looked for:
// the search passes over what leads to no message.
func (o *Outbox) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	o.pruned.mu.Lock()
	defer o.pruned.mu.Unlock()
	// Not before all passes over the messages have seen them: they would make
	// terms of what is gone, or never count it.
	seen, err := o.upTo(ctx, len(passes)-1)
	if err != nil {
		return 0, err
	}
	end := min(db.FirstID(before), seen+1)
	for {
		some, err := o.pastAfter(ctx, end, before, limit)
		if err != nil {
			return 0, err
		}
		if len(some) == 0 {
			o.pruned.upTo = 0 // the next round begins anew
			return 0, nil
		}
		rows, err := o.forget(ctx, some, before)
		if err != nil {
			return 0, err
		}
		o.pruned.upTo = some[len(some)-1].id
		if rows > 0 {
			return rows, nil
		}
	}
}

// pastAfter finds the next messages that are over, about limit rows of them.
func (o *Outbox) pastAfter(ctx context.Context, end db.ID, before time.Time, limit int) (some []*past, err error) {
	size := 0
	for from := o.pruned.upTo; ; {
		ids, err := db.All(ctx, o.DB, toIndex.With(from, end, findStep), func(r db.Row) (id db.ID, err error) {
			return id, r.Scan(&id, new(bool))
		})
		if err != nil || len(ids) == 0 {
			return some, err
		}
		from = ids[len(ids)-1]
		rows, err := o.loadSome(ctx, ids)
		if err != nil {
			return nil, err
		}
		deliveries, err := o.Queue.DeliveriesOf(ctx, ids)
		if err != nil {
			return nil, err
		}
		of := map[db.ID]*row{}
		for _, r := range rows {
			of[r.id] = r
		}
		for _, id := range ids {
			r := of[id]
			if r == nil || !queue.Over(deliveries[id], before) {
				continue
			}
			p := &past{row: r, recipients: deliveries[id], terms: hashes(r, deliveries[id])}
			if size += p.size(); size > limit && len(some) > 0 {
				return some, nil
			}
			some = append(some, p)
		}
	}
}

// forget deletes messages in one commit, and returns how many rows. One that is
// no longer over stays.
func (o *Outbox) forget(ctx context.Context, some []*past, before time.Time) (rows int, err error) {
	err = o.DB.Write(ctx, 0, &db.Job{
		Guard: func(b *db.Batch) {
			for _, p := range some {
				o.Queue.LockOver(b, p.id, before, &p.over)
			}
		},
		Apply: func(b *db.Batch) {
			rows = 0
			for _, p := range some {
				if !p.over {
					continue
				}
				rows += p.size()
				b.Queue(o.traceOf(p))
				o.Queue.Delete(b, p.id)
				p.deleteTerms(b)
				b.Queue(blob.Remove(p.blob))
				b.Queue(deleteMessage.With(p.id))
			}
		},
	})
	return rows, err
}

func (p *past) deleteTerms(b *db.Batch) {
	for at := 0; at < len(p.terms); at += pruneTerms {
		args := []any{p.account, p.id}
		for i := range pruneTerms { // the last one is repeated
			args = append(args, p.terms[min(at+i, len(p.terms)-1)])
		}
		b.Queue(deleteTerms.With(args...))
	}
}

// Load is the share of time, 0 to 1, in which messages are being accepted here.
func (o *Outbox) Load() float64 { return o.pace.Load(o.Now()) }
