// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
)

var (
	deleteMessageQuery = db.SQL(`DELETE FROM outbound_message WHERE id = $1`)
	messageIDsQuery    = db.SQL(`SELECT id FROM outbound_message WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)
)

// pruneCursor is the position of the current round of pruning.
type pruneCursor struct {
	mu       sync.Mutex
	position db.ID
}

// expiredMessage is a message that is to be deleted.
type expiredMessage struct {
	*row
	recipients []queue.DeliveryStatus
	terms      index.Terms
	isFinal    bool // checked again with the deliveries locked
}

// rowCount returns how many rows are deleted with the message.
func (p *expiredMessage) rowCount() int {
	n := 3 + len(p.terms)
	for _, d := range p.recipients {
		n += 1 + d.Attempts
	}
	return n
}

// Prune deletes, in one commit, the oldest messages whose deliveries have all been final since
// before a given time. It deletes everything that belongs to them: deliveries, attempts, bytes,
// metadata and search terms. It returns the number of deleted rows, about limit because a message
// is deleted as a whole; 0 means that there are no more. A trace remains, by which a reply still
// finds its thread.
//
// The sweep deletes the blob files, because several messages may share one.
func (o *Outbox) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	o.pruneCursor.mu.Lock()
	defer o.pruneCursor.mu.Unlock()
	seen, err := o.Index.Position(ctx)
	if err != nil {
		return 0, err
	}
	end := min(db.MinIDAt(before), seen+1)
	for {
		some, err := o.findExpired(ctx, end, before, limit)
		if err != nil {
			return 0, err
		}
		if len(some) == 0 {
			o.pruneCursor.position = 0 // the next round starts from the beginning
			return 0, nil
		}
		rows, err := o.deleteExpired(ctx, some, before)
		if err != nil {
			return 0, err
		}
		o.pruneCursor.position = some[len(some)-1].id
		if rows > 0 {
			return rows, nil
		}
	}
}

// findExpired finds the next expired messages, about limit rows of them.
func (o *Outbox) findExpired(ctx context.Context, end db.ID, before time.Time, limit int) (some []*expiredMessage, err error) {
	size := 0
	for from := o.pruneCursor.position; ; {
		ids, err := db.All(ctx, o.DB, messageIDsQuery.With(from, end, index.BatchSize), db.ScanID)
		if err != nil || len(ids) == 0 {
			return some, err
		}
		from = ids[len(ids)-1]
		rows, err := o.loadRows(ctx, ids)
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
			if r == nil || !queue.AllFinalBefore(deliveries[id], before) {
				continue
			}
			m := r.toMessage()
			m.Deliveries = deliveries[id]
			p := &expiredMessage{row: r, recipients: m.Deliveries, terms: index.TermsOf(m)}
			if size += p.rowCount(); size > limit && len(some) > 0 {
				return some, nil
			}
			some = append(some, p)
		}
	}
}

// deleteExpired deletes messages in one commit and returns the number of rows. A message with a
// delivery that is no longer final stays.
func (o *Outbox) deleteExpired(ctx context.Context, some []*expiredMessage, before time.Time) (rows int, err error) {
	err = o.DB.Write(ctx, 0, &db.Mutation{
		Guard: func(b *db.Batch) {
			for _, p := range some {
				o.Queue.LockFinal(b, p.id, before, &p.isFinal)
			}
		},
		Apply: func(b *db.Batch) {
			rows = 0
			for _, p := range some {
				if !p.isFinal {
					continue
				}
				rows += p.rowCount()
				b.Queue(o.insertTrace(p))
				o.Queue.Delete(b, p.id)
				p.terms.Delete(b, p.account, p.id)
				b.Queue(blob.DeleteStatement(p.blob))
				b.Queue(deleteMessageQuery.With(p.id))
			}
		},
	})
	return rows, err
}
