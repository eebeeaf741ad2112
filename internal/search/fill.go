// SPDX-License-Identifier: Apache-2.0

package search

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
	"github.com/mailstead/mailstead/internal/signal"
)

// The passes over the messages. The first takes in what is there; as messages
// may be committed when it has seen later ones, the second looks long after
// for what it has missed. Until then those are read by each search.
var passes = [...]struct {
	lag   time.Duration // only messages that are older are looked at
	every time.Duration
}{{2 * time.Second, 2 * time.Second}, {10 * time.Minute, time.Minute}}

const (
	// fillChunk is how many messages are indexed in one commit, and bounds what
	// is held in memory.
	fillChunk = 50
	// rest is how many times longer it rests than it works, so that it takes a
	// quarter of a core at most, however much mail there is to index; while mail
	// is being filed, even less.
	rest = 3
	// afterFailure is how long it leaves the matter alone.
	afterFailure = time.Minute
	// coverEvery is how often it is noted, while there is more to fill, how far
	// the folders are indexed: a large import takes an hour.
	coverEvery = 5 * time.Second
	// maxBody is how much text of a body is indexed, in bytes. A message with
	// more is read by each search of bodies.
	maxBody = 256 << 10
)

// Run keeps the index up to date until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	tick := time.NewTicker(passes[0].every)
	defer tick.Stop()
	var next [len(passes)]time.Time
	var cover time.Time
	sweep := x.Now().Add(firstSweep)
	failed := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			err = x.mend(ctx, err)
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
				if failed(x.fillAll(ctx, pass)) {
					next[pass] = now.Add(afterFailure)
				}
			}
		}
		if now := x.Now(); !now.Before(cover) && failed(x.coverAll(ctx)) {
			cover = now.Add(afterFailure)
		}
		if now := x.Now(); !now.Before(sweep) { // a piece at a time, so that filling goes on
			if more, err := x.sweep(ctx); failed(err) || !more {
				sweep = now.Add(sweepEvery)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-x.broken:
			failed(err)
		case <-tick.C:
		}
	}
}

// fillAll fills while there is more, and rests after each piece.
func (x *Index) fillAll(ctx context.Context, pass int) error {
	for more := true; more && ctx.Err() == nil; {
		begin := time.Now()
		var err error
		signal.Behind(func() { more, err = x.fill(ctx, pass, x.Now().Add(-passes[pass].lag)) })
		if err != nil {
			return err
		}
		if now := x.Now(); more && now.Sub(x.covered) >= coverEvery {
			if err := x.coverAll(ctx); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		_ = signal.Sleep(ctx, rest*took+x.Folders.Rest(took))
	}
	return nil
}

const (
	passUpTo   = `SELECT upto FROM search_state WHERE pass = ?`
	passMove   = `UPDATE search_state SET upto = ? WHERE pass = ?`
	insertLate = `INSERT OR IGNORE INTO search_late (message) VALUES (?)`
	readLate   = `SELECT message FROM search_late WHERE message > ? AND message <= ?`
	deleteLate = `DELETE FROM search_late WHERE message <= ?`
)

// fill lets a pass (0 or 1) take in some of the messages that were made before
// a time, in one commit, and returns whether there may be more.
func (x *Index) fill(ctx context.Context, pass int, before time.Time) (more bool, err error) {
	from, err := x.upTo(ctx, pass)
	if err != nil {
		return false, err
	}
	to := db.FirstID(before)
	if pass > 0 { // never beyond the first
		first, err := x.upTo(ctx, 0)
		if err != nil {
			return false, err
		}
		to = min(to, first+1)
	}
	if to <= from {
		return false, nil
	}
	seen, err := x.Folders.ToIndex(ctx, from, to, fillChunk)
	if err != nil {
		return false, ofMail(err)
	}
	if len(seen) == 0 {
		return false, nil
	}
	last := seen[len(seen)-1].ID
	todo := seen
	if pass > 0 {
		if todo, err = x.missed(ctx, seen, from, last); err != nil {
			return false, err
		}
	}
	docs, err := x.read(ctx, pass, todo)
	if err != nil {
		return false, err
	}
	for _, d := range docs {
		x.touched[d.mailbox] = true
	}
	return len(seen) == fillChunk, x.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, passMove, last, pass); err != nil {
			return err
		}
		if pass > 0 {
			if _, err := tx.ExecContext(ctx, deleteLate, last); err != nil {
				return err
			}
		}
		for _, d := range docs {
			if pass == 0 {
				if _, err := tx.ExecContext(ctx, insertLate, d.id); err != nil {
					return err
				}
			}
		}
		return addDocs(ctx, tx, docs)
	})
}

func (x *Index) upTo(ctx context.Context, pass int) (id db.ID, err error) {
	return id, x.reader.QueryRowContext(ctx, passUpTo, pass).Scan(&id)
}

// missed returns those that the first pass has not indexed.
func (x *Index) missed(ctx context.Context, seen []folder.Indexable, from, to db.ID) ([]folder.Indexable, error) {
	rows, err := x.reader.QueryContext(ctx, readLate, from, to)
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
	return slices.DeleteFunc(seen, func(m folder.Indexable) bool { return known[m.ID] }), rows.Err()
}

// read makes the signatures of messages. One that is lost may have any text: the
// searches that come to it will say so. One that can't be read now is left to the
// second pass, which waits for it.
func (x *Index) read(ctx context.Context, pass int, list []folder.Indexable) (docs []doc, err error) {
	for _, m := range list {
		d := doc{m.ID, m.Mailbox, new(signature)}
		complete, err := x.Folders.Texts(ctx, m, maxBody, d.sig.add)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, folder.ErrGone):
			continue
		case blob.Lost(err):
			x.Log.Warn("a message could not be indexed", "message", m.ID, "error", err)
			set(d.sig[:]).fill()
		case err != nil && pass == 0:
			x.Log.Warn("a message can't be indexed yet", "message", m.ID, "error", err)
			continue
		case err != nil:
			return nil, ofMail(fmt.Errorf("indexing message %s: %w", m.ID, err))
		case !complete:
			set(d.sig[fieldBuckets/64:]).fill()
		}
		docs = append(docs, d)
	}
	return docs, nil
}

const (
	insertBlock = `INSERT INTO search_block (mailbox, shelf, lo, hi, ids) VALUES (?, 0, ?, ?, ?)`
	insertSlice = `INSERT INTO search_slice (id, bits) VALUES (?, ?)`
)

// addBlock writes a block of blockDocs messages, with so many of its rows.
func addBlock(ctx context.Context, tx *sql.Tx, mailbox db.ID, docs []doc, rows int) error {
	ids := make([]db.ID, len(docs))
	for i, d := range docs {
		ids[i] = d.id
	}
	res, err := tx.ExecContext(ctx, insertBlock, mailbox, ids[0], ids[len(ids)-1], sealedIDs(ids))
	if err != nil {
		return err
	}
	block, err := res.LastInsertId()
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, insertSlice)
	if err != nil {
		return err
	}
	defer insert.Close() //nolint:errcheck // what was written is told by each
	all := sliced(docs)
	var bits []byte
	for row := range rows {
		bits = bits[:0]
		for _, s := range all[row*rowBuckets:][:rowBuckets] {
			bits = appendPacked(bits, s)
		}
		if _, err := insert.ExecContext(ctx, block*rowsPerBlock+int64(row), sealed(bits)); err != nil {
			return err
		}
	}
	return nil
}
