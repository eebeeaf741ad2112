// SPDX-License-Identifier: Apache-2.0

// Package index finds an account's outbound messages by recipient, author, words of the subject,
// metadata and state. A leader job writes the terms of each message some seconds after its
// acceptance; a search checks newer messages one by one.
package index

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/stat"
)

// Index finds outbound messages.
type Index struct {
	DB    *db.DB
	Node  *lease.Node
	Queue *queue.Queue
	Stats *stat.Stats // counts each message when it is indexed
	// Load reads at most BatchSize messages without their deliveries, in no particular order.
	Load      func(ctx context.Context, ids []db.ID) ([]Message, error)
	Accepting *notify.LoadGauge // indexing yields to this load
	Now       func() time.Time
}

// indexPasses are the passes of the indexer. On PostgreSQL, and with several nodes, a message may
// be committed after a pass has seen later ones. So a second pass looks for messages that the first
// one missed, and a third runs long after anything can still be committed. Searches check messages
// beyond the first pass one by one. The commit that writes a message's terms also counts it.
var indexPasses = [...]struct {
	lag   time.Duration // skip messages younger than this
	every time.Duration
}{{10 * time.Second, 2 * time.Second}, {2 * time.Minute, 30 * time.Second}, {time.Hour, 10 * time.Minute}}

const (
	// indexBatchSize is how many messages are indexed in one commit; it is small so that nobody
	// waits long for the commit.
	indexBatchSize = 200
	// checkBatchSize is how many messages a later pass checks at once.
	checkBatchSize = 1000
	// indexRestFactor is how much longer a pass pauses while mail is accepted all the time.
	indexRestFactor = 5
	// rowsPerInsert is the number of rows in an insert.
	rowsPerInsert = 40
)

// insertTermsSQL inserts rowsPerInsert terms.
const insertTermsSQL = `INSERT INTO outbound_term (account, term, message) VALUES
		($1, $2, $3), ($4, $5, $6), ($7, $8, $9), ($10, $11, $12), ($13, $14, $15), ($16, $17, $18), ($19, $20, $21), ($22, $23, $24),
		($25, $26, $27), ($28, $29, $30), ($31, $32, $33), ($34, $35, $36), ($37, $38, $39), ($40, $41, $42), ($43, $44, $45), ($46, $47, $48),
		($49, $50, $51), ($52, $53, $54), ($55, $56, $57), ($58, $59, $60), ($61, $62, $63), ($64, $65, $66), ($67, $68, $69), ($70, $71, $72),
		($73, $74, $75), ($76, $77, $78), ($79, $80, $81), ($82, $83, $84), ($85, $86, $87), ($88, $89, $90), ($91, $92, $93), ($94, $95, $96),
		($97, $98, $99), ($100, $101, $102), ($103, $104, $105), ($106, $107, $108), ($109, $110, $111), ($112, $113, $114), ($115, $116, $117), ($118, $119, $120)
	ON CONFLICT DO NOTHING`

var (
	passPositionQuery = db.SQL(`SELECT position FROM outbound_index_progress WHERE pass = $1`)
	advancePassQuery  = db.SQL(`UPDATE outbound_index_progress SET position = $3 WHERE pass = $1 AND position = $2`)
	indexNextQuery    = db.SQL(`SELECT id, TRUE FROM outbound_message WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)
	indexCheckQuery   = db.SQL(`SELECT id, NOT EXISTS (SELECT 1 FROM outbound_term
			WHERE account = m.account AND term = m.domain AND message = m.id)
		FROM outbound_message m WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)
	insertTermsQuery = db.SQL(insertTermsSQL)
	// insertDomainTermsQuery inserts the domain terms, which mark a message as indexed. It returns
	// the messages that were not indexed before.
	insertDomainTermsQuery = db.SQL(insertTermsSQL + ` RETURNING message`)
)

// Run maintains the index until ctx ends. Every node runs it; the leader job "finding" lets one
// node work at a time. It pauses for most of the time, longer while mail is being accepted.
func (x *Index) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(indexPasses[0].every)
	defer tick.Stop()
	var next [len(indexPasses)]time.Time
	for {
		for pass := range indexPasses {
			now := x.Now()
			if now.Before(next[pass]) {
				continue
			}
			next[pass] = now.Add(indexPasses[pass].every)
			for more := true; more && ctx.Err() == nil; {
				begin := x.Now()
				var err error
				more, err = x.indexBatch(ctx, pass, begin)
				if errors.Is(err, lease.ErrNotLeader) {
					next[pass] = now.Add(max(indexPasses[pass].every, lease.DefaultDuration)) // leadership won't change sooner
					break
				}
				if err != nil && ctx.Err() == nil {
					log.Error("indexing of sent messages failed", "pass", pass, "error", err)
					break
				}
				now := x.Now()
				_ = notify.Sleep(ctx, time.Duration(float64(now.Sub(begin))*(1+indexRestFactor*x.Accepting.Load(now))))
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RunBatch does a batch of the work of a pass (0, 1 or 2), in one commit that only the holder of
// the leader job can make. It reports whether there is more to do.
func (x *Index) RunBatch(ctx context.Context, pass int, now time.Time) (more bool, err error) {
	if more, err = x.indexBatch(ctx, pass, now); errors.Is(err, lease.ErrNotLeader) {
		err = nil
	}
	return more, err
}

func (x *Index) indexBatch(ctx context.Context, pass int, now time.Time) (more bool, err error) {
	from, err := x.passPosition(ctx, pass)
	if err != nil {
		return false, err
	}
	to, query, chunk := db.MinIDAt(now.Add(-indexPasses[pass].lag)), indexNextQuery, indexBatchSize
	if pass > 0 { // never beyond the first pass
		first, err := x.passPosition(ctx, 0)
		if err != nil {
			return false, err
		}
		to, query, chunk = min(to, first+1), indexCheckQuery, checkBatchSize
	}
	var seen, missing []db.ID
	err = x.DB.Each(ctx, query.With(from, to, chunk), func(r db.Row) error {
		var id db.ID
		var lacks bool
		err := r.Scan(&id, &lacks)
		seen = append(seen, id)
		if lacks {
			missing = append(missing, id)
		}
		return err
	})
	if err != nil || len(seen) == 0 {
		return false, err
	}
	if len(missing) > indexBatchSize { // the next batch sees the others again
		missing = missing[:indexBatchSize]
		seen = seen[:slices.Index(seen, missing[indexBatchSize-1])+1]
	}
	first, postings, accepted, err := x.buildPostings(ctx, missing)
	if err != nil {
		return false, err
	}
	tags, err := x.Stats.TagsOf(ctx, slices.Collect(maps.Values(accepted)))
	if err != nil {
		return false, err
	}
	var counted []stat.AcceptedMessage
	err = x.DB.Write(ctx, 0, &db.Mutation{
		Guard: func(b *db.Batch) {
			x.Node.GuardLeaderJob(b, "finding")
			b.Queue(advancePassQuery.With(pass, from, seen[len(seen)-1])).OrFail(lease.ErrNotLeader)
			counted = counted[:0]
			for some := range slices.Chunk(first, rowsPerInsert) {
				b.Queue(insertDomainTermsQuery.With(insertArgs(some)...)).Each(func(r db.Row) error {
					var id db.ID
					err := r.Scan(&id)
					counted = append(counted, accepted[id])
					return err
				})
			}
		},
		Apply: func(b *db.Batch) {
			for some := range slices.Chunk(postings, rowsPerInsert) {
				b.Queue(insertTermsQuery.With(insertArgs(some)...))
			}
			x.Stats.CountAccepted(b, counted, tags)
		},
	})
	return err == nil && (len(seen) == chunk || len(missing) == indexBatchSize), err
}

// Position returns the newest message that all passes have seen. A message may be deleted only
// after that: a pass would write terms of a deleted message, or never count it.
func (x *Index) Position(ctx context.Context) (db.ID, error) {
	return x.passPosition(ctx, len(indexPasses)-1)
}

func (x *Index) passPosition(ctx context.Context, pass int) (id db.ID, err error) {
	return id, x.DB.One(ctx, passPositionQuery.With(pass), &id)
}

// insertArgs returns the arguments for at most rowsPerInsert rows; it repeats the last one.
func insertArgs(some []posting) []any {
	args := make([]any, 0, 3*rowsPerInsert)
	for i := range rowsPerInsert {
		p := some[min(i, len(some)-1)]
		args = append(args, p.account, p.term, p.message)
	}
	return args
}

// buildPostings returns the index rows of messages, in the order of their keys. first contains the
// domain terms, others all other terms. accepted is what the statistics count of each message.
func (x *Index) buildPostings(ctx context.Context, ids []db.ID) (first, others []posting, accepted map[db.ID]stat.AcceptedMessage, err error) {
	accepted = map[db.ID]stat.AcceptedMessage{}
	for some := range slices.Chunk(ids, BatchSize) {
		found, err := x.Load(ctx, some)
		if err != nil {
			return nil, nil, nil, err
		}
		deliveries, err := x.Queue.DeliveriesOf(ctx, some)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, m := range found {
			m.Deliveries = deliveries[m.ID]
			accepted[m.ID] = stat.AcceptedMessage{Account: m.Account, Domain: m.Domain, At: m.CreatedAt, Recipients: len(m.Deliveries), Tags: m.Tags}
			first = append(first, posting{m.Account, int64(m.Domain), m.ID})
			for t := range messageTerms(m) {
				others = append(others, posting{m.Account, hashTerm(t), m.ID})
			}
		}
	}
	for _, list := range [][]posting{first, others} {
		slices.SortFunc(list, func(a, b posting) int {
			return cmp.Or(cmp.Compare(a.account, b.account), cmp.Compare(a.term, b.term), cmp.Compare(a.message, b.message))
		})
	}
	return first, others, accepted, nil
}
