// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/notify"
)

// The passes over the messages. The first pass indexes all messages it sees. Messages may be
// committed after it has seen later ones, so the second pass looks for missed messages much later.
// Until then each search reads those itself.
var passes = [...]struct {
	lag   time.Duration // minimum age of the messages examined
	every time.Duration
}{{2 * time.Second, 2 * time.Second}, {10 * time.Minute, time.Minute}}

const (
	// indexBatchSize is how many messages are indexed in one commit and held in memory.
	indexBatchSize = 50
	// restFactor is how many times longer indexing rests than it works, so that it takes at most a
	// quarter of a core, however much mail there is to index. While mail is being filed, it takes
	// even less.
	restFactor = 3
	// retryDelay is the pause after an error.
	retryDelay = time.Minute
	// indexedThroughInterval is how often the indexed-through UIDs are updated while there is more
	// to index: a large import takes an hour.
	indexedThroughInterval = 5 * time.Second
	// maxBodyBytes is how many bytes of body text are indexed. Each search of bodies reads messages
	// with more.
	maxBodyBytes = 256 << 10
)

// Indexer fills an Index with the messages of the folders. It is for one goroutine.
type Indexer struct {
	*Index
	folders          *folder.Folders
	updatedMailboxes map[db.ID]bool // mailboxes whose indexed-through UIDs must be updated
	indexedThroughAt time.Time      // when updateAllIndexedThrough last began
}

// NewIndexer returns an Indexer.
func NewIndexer(x *Index, folders *folder.Folders) *Indexer {
	return &Indexer{Index: x, folders: folders, updatedMailboxes: map[db.ID]bool{}}
}

// Run keeps the index up to date until ctx ends.
func (x *Indexer) Run(ctx context.Context) error {
	tick := time.NewTicker(passes[0].every)
	defer tick.Stop()
	var next [len(passes)]time.Time
	var cover time.Time
	sweep := x.Now().Add(firstSweepDelay)
	failed := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			err = x.repair(ctx, err)
		}
		if err == nil || ctx.Err() != nil {
			return false
		}
		x.Log.Error("tending the search index failed", "error", err)
		return true
	}
	for {
		for pass := range passes {
			if now := x.Now(); !now.Before(next[pass]) {
				next[pass] = now.Add(passes[pass].every)
				if failed(x.indexPending(ctx, pass)) {
					next[pass] = now.Add(retryDelay)
				}
			}
		}
		if now := x.Now(); !now.Before(cover) && failed(x.updateAllIndexedThrough(ctx)) {
			cover = now.Add(retryDelay)
		}
		if now := x.Now(); !now.Before(sweep) { // one batch at a time, so that indexing continues
			if more, err := x.sweep(ctx); failed(err) || !more {
				sweep = now.Add(sweepInterval)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-x.damage:
			failed(err)
		case <-tick.C:
		}
	}
}

// indexPending indexes batches while there are more messages, and rests after each one.
func (x *Indexer) indexPending(ctx context.Context, pass int) error {
	for more := true; more && ctx.Err() == nil; {
		begin := time.Now()
		var err error
		notify.RunLowPriority(func() { more, err = x.indexBatch(ctx, pass, x.Now().Add(-passes[pass].lag)) })
		if err != nil {
			return err
		}
		if now := x.Now(); more && now.Sub(x.indexedThroughAt) >= indexedThroughInterval {
			if err := x.updateAllIndexedThrough(ctx); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		_ = notify.Sleep(ctx, restFactor*took+x.folders.IndexDelay(took))
	}
	return nil
}

const (
	passProgressQuery    = `SELECT upto FROM search_state WHERE pass = ?`
	setPassProgressQuery = `UPDATE search_state SET upto = ? WHERE pass = ?`
	insertLateQuery      = `INSERT OR IGNORE INTO search_late (message) VALUES (?)`
	lateQuery            = `SELECT message FROM search_late WHERE message > ? AND message <= ?`
	deleteLateQuery      = `DELETE FROM search_late WHERE message <= ?`
)

// indexBatch indexes one batch of messages created before a time, in one commit. pass is 0 or 1. It
// returns whether there may be more.
func (x *Indexer) indexBatch(ctx context.Context, pass int, before time.Time) (more bool, err error) {
	from, err := x.passProgress(ctx, pass)
	if err != nil {
		return false, err
	}
	to := db.MinIDAt(before)
	if pass > 0 { // never beyond the first pass
		first, err := x.passProgress(ctx, 0)
		if err != nil {
			return false, err
		}
		to = min(to, first+1)
	}
	if to <= from {
		return false, nil
	}
	seen, err := search.Documents(ctx, x.folders.DB, from, to, indexBatchSize)
	if err != nil {
		return false, wrapMailDBError(err)
	}
	if len(seen) == 0 {
		return false, nil
	}
	last := seen[len(seen)-1].ID
	todo := seen
	if pass > 0 {
		if todo, err = x.filterUnindexed(ctx, seen, from, last); err != nil {
			return false, err
		}
	}
	docs, err := x.buildDocs(ctx, pass, todo)
	if err != nil {
		return false, err
	}
	for _, d := range docs {
		x.updatedMailboxes[d.mailbox] = true
	}
	return len(seen) == indexBatchSize, x.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, setPassProgressQuery, last, pass); err != nil {
			return err
		}
		if pass > 0 {
			if _, err := tx.ExecContext(ctx, deleteLateQuery, last); err != nil {
				return err
			}
		}
		for _, d := range docs {
			if pass == 0 {
				if _, err := tx.ExecContext(ctx, insertLateQuery, d.id); err != nil {
					return err
				}
			}
		}
		return addDocs(ctx, tx, docs)
	})
}

func (x *Index) passProgress(ctx context.Context, pass int) (id db.ID, err error) {
	return id, x.reader.QueryRowContext(ctx, passProgressQuery, pass).Scan(&id)
}

// filterUnindexed returns the messages that the first pass has not indexed.
func (x *Index) filterUnindexed(ctx context.Context, seen []search.Document, from, to db.ID) ([]search.Document, error) {
	rows, err := x.reader.QueryContext(ctx, lateQuery, from, to)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // what there is is told by Err
	known := map[db.ID]bool{}
	for rows.Next() {
		var id db.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		known[id] = true
	}
	return slices.DeleteFunc(seen, func(m search.Document) bool { return known[m.ID] }), rows.Err()
}

// buildDocs computes the signatures of messages. A message whose bytes are lost may have any text:
// searches that need it report the error. A message that can't be read now is left to the second
// pass, which waits for it.
func (x *Indexer) buildDocs(ctx context.Context, pass int, list []search.Document) (docs []doc, err error) {
	for _, m := range list {
		d := doc{m.ID, m.Mailbox, new(signature)}
		complete, err := search.EachText(ctx, x.folders, m, maxBodyBytes, d.signature.add)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, search.ErrMessageDeleted):
			continue
		case blob.IsLost(err):
			x.Log.Warn("a message could not be indexed", "message", m.ID, "error", err)
			bitset(d.signature[:]).setAll()
		case err != nil && pass == 0:
			x.Log.Warn("a message can't be indexed yet", "message", m.ID, "error", err)
			continue
		case err != nil:
			return nil, wrapMailDBError(fmt.Errorf("indexing message %s: %w", m.ID, err))
		case !complete:
			bitset(d.signature[fieldBuckets/64:]).setAll()
		}
		docs = append(docs, d)
	}
	return docs, nil
}

const (
	insertBlockQuery     = `INSERT INTO search_block (mailbox, shelf, lo, hi, ids) VALUES (?, 0, ?, ?, ?)`
	insertBlockPageQuery = `INSERT INTO search_slice (id, bits) VALUES (?, ?)`
)

// writeBlock writes a block of blockDocs messages with the given number of pages.
func writeBlock(ctx context.Context, tx *sql.Tx, mailbox db.ID, docs []doc, rows int) error {
	ids := make([]db.ID, len(docs))
	for i, d := range docs {
		ids[i] = d.id
	}
	res, err := tx.ExecContext(ctx, insertBlockQuery, mailbox, ids[0], ids[len(ids)-1], encodeIDs(ids))
	if err != nil {
		return err
	}
	block, err := res.LastInsertId()
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, insertBlockPageQuery)
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // what was written is told by each
	all := transpose(docs)
	var bits []byte
	for row := range rows {
		bits = bits[:0]
		for _, s := range all[row*blockBucketsPerPage:][:blockBucketsPerPage] {
			bits = appendSet(bits, s)
		}
		if _, err := insert.ExecContext(ctx, block*pagesPerBlock+int64(row), appendChecksum(bits)); err != nil {
			return err
		}
	}
	return nil
}
