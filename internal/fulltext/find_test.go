// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// find queries the index about the inbox.
func (h *fixture) find(c search.IndexClause) *search.IndexResult {
	h.Helper()
	f, err := h.List(h.ctx(), h.box)
	h.must(err)
	at := slices.IndexFunc(f, func(f folder.Folder) bool { return f.Name == folder.Inbox })
	found, err := h.index.Query(h.ctx(), h.box, search.IndexQuery{Folder: f[at].ID, LastUID: f[at].UIDNext - 1, Clause: c, Limit: 1000})
	h.must(err)
	return found
}

func seek(text string, kinds ...search.TextKind) search.IndexClause {
	return search.IndexClause{Term: &search.IndexTerm{Kinds: kinds, Text: []byte(text)}}
}

// TestCover checks that the index reports the indexed-through UID of a folder after moves, and that
// later messages are found as well.
func TestCover(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(100)...)
		if h.find(seek("number 7 ", 1)) != nil {
			t.Error("it knows a folder that nobody looked at")
		}
		h.fill()
		if f := h.find(seek("number 7 ", 1)); f == nil || f.IndexedThroughUID != 100 || len(f.Messages) != 1 {
			t.Errorf("indexed: %+v", f)
		}
		v := h.view(h.box, folder.Inbox)
		_, err := v.Copy(h.ctx(), v.Resolve([]folder.Range{{Lo: 1, Hi: 50}}, true), folder.Inbox)
		h.must(err)
		h.append(h.box, folder.Inbox, "Subject: number 7 again\r\n\r\nx")
		_, err = v.Sync(h.ctx(), true)
		h.must(err)
		subject7 := search.Criterion{Test: search.HasHeader, Header: "subject", Text: "number 7 "}
		if got := fmt.Sprint(h.search(h.indexed, v, subject7)); got != "[8 108 151]" {
			t.Errorf("found %s", got)
		}
		h.must(h.indexer.updateAllIndexedThrough(h.ctx())) // the search asked for it
		if f := h.find(seek("number 7 ", 1)); f.IndexedThroughUID != 150 {
			t.Errorf("after a copy, with a message that is not indexed: %+v", f)
		}
		h.fill()
		if f := h.find(search.IndexClause{Children: []search.IndexClause{seek("number", 1), {MatchAny: true, Children: []search.IndexClause{seek("says <8>", search.BodyText), seek(" again", 1)}}}}); f.IndexedThroughUID != 151 || len(f.Messages) != 2 {
			t.Errorf("two of them: %+v", f)
		}
		if got := fmt.Sprint(h.search(h.indexed, v, subject7)); got != "[8 108 151]" {
			t.Errorf("found %s", got)
		}
		h.must(h.PurgeMailbox(h.ctx(), h.box))
		h.sweep()
		if n := h.count(`SELECT COUNT(*) FROM search_folder`); n != 0 {
			t.Errorf("%d folders are left of a mailbox that is deleted", n)
		}
	})
}

// TestCoverWhileFilling checks that indexed-through UIDs are stored long before indexing is
// complete.
func TestCoverWhileFilling(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(4*indexBatchSize)...)
		ahead, between := time.Hour, false
		h.index.Now = func() time.Time {
			if upto := h.count(`SELECT COALESCE(MAX(upto), 0) FROM search_folder`); upto > 0 && upto < 4*indexBatchSize {
				between = true
			}
			ahead += indexedThroughInterval
			return time.Now().Add(ahead)
		}
		h.must(h.indexer.indexPending(h.ctx(), 0))
		h.must(h.indexer.updateAllIndexedThrough(h.ctx()))
		if upto := h.count(`SELECT MAX(upto) FROM search_folder`); !between || upto != 4*indexBatchSize {
			t.Errorf("noted while it was filled: %v; in the end up to %d", between, upto)
		}
	})
}

// TestTwoNodes checks that an index catches up with messages that another node stored, and that
// each node's results are right before that.
func TestTwoNodes(t *testing.T) {
	each(t, func(h *fixture) {
		other, err := Open(h.ctx(), Options{Path: filepath.Join(t.TempDir(), "search.db"), Now: h.index.Now, Log: h.index.Log})
		h.must(err)
		defer other.Close() //nolint:errcheck // it is thrown away
		indexer := NewIndexer(other, h.Folders)
		h.append(h.box, folder.Inbox, numbered(60)...)
		h.fill()
		for _, s := range []*search.Searcher{h.indexed, search.New(h.Folders, other)} {
			if got := h.search(s, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8}) {
				t.Errorf("found %v", got)
			}
		}
		for more := true; more; {
			more, err = indexer.indexBatch(h.ctx(), 0, h.index.Now().Add(1e12))
			h.must(err)
		}
		h.must(indexer.updateAllIndexedThrough(h.ctx()))
		v := h.view(h.box, folder.Inbox)
		found, err := other.Query(h.ctx(), h.box, search.IndexQuery{Folder: v.Folder().ID, Clause: seek("says <7>", search.BodyText), Limit: 9})
		h.must(err)
		if found == nil || found.IndexedThroughUID != 60 || len(found.Messages) != 1 {
			t.Errorf("the other node's index: %+v", found)
		}
	})
}

// TestSegments checks that messages in segments of several levels, in blocks and in the write
// buffer are found, and none of dissolved blocks.
func TestSegments(t *testing.T) {
	x, err := Open(t.Context(), Options{Path: filepath.Join(t.TempDir(), "search.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close() //nolint:errcheck // it is thrown away
	const box = 5
	r := rand.New(rand.NewPCG(7, 8))
	text := func(n int) []byte { return fmt.Appendf(nil, "subject %d of them", n*2654435761%1000003) }
	var ids []db.ID
	next := func(n int) (docs []doc) {
		for range n {
			d := doc{db.ID(len(ids) + 1), box, new(signature)}
			d.signature.add(1, text(len(ids)))
			ids = append(ids, d.id)
			docs = append(docs, d)
		}
		return docs
	}
	gone := map[db.ID]bool{}
	write := func(f func(tx *sql.Tx) error) {
		t.Helper()
		if err := x.write(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		write(func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), setIndexedThroughQuery, 1, box, 1)
			return err
		})
		for range 40 {
			n := r.IntN(len(ids))
			found, err := x.Query(t.Context(), box, search.IndexQuery{Folder: 1, Clause: seek(string(text(n)), 1), Limit: 500})
			if err != nil {
				t.Fatal(err)
			}
			if there := slices.Contains(found.Messages, ids[n]); there == gone[ids[n]] || len(found.Messages) > 20 {
				t.Errorf("%d: %d messages found, it among them: %v; deleted: %v", n, len(found.Messages), there, gone[ids[n]])
			}
		}
	}
	const large = segmentFanout * segmentFanout * segmentFanout
	for block := range large + segmentFanout*segmentFanout + segmentFanout + 3 {
		write(func(tx *sql.Tx) error {
			if err := writeBlock(t.Context(), tx, box, next(blockDocs), fieldBuckets/blockBucketsPerPage); err != nil {
				return err
			}
			return buildSegments(t.Context(), tx, box)
		})
		if block%20 == 9 {
			check()
		}
	}
	write(func(tx *sql.Tx) error { return addDocs(t.Context(), tx, next(100)) })
	check()
	levels, err := queryInt64s(t.Context(), x.reader, `SELECT level FROM search_shelf ORDER BY level`)
	if err != nil || fmt.Sprint(levels) != "[1 2 3]" {
		t.Errorf("shelves of levels %v, %v", levels, err)
	}
	write(func(tx *sql.Tx) error {
		for id := 1; id <= large+2; id++ {
			if _, err := tx.ExecContext(t.Context(), deleteBlockQuery, id); err != nil {
				return err
			}
			for n := range blockDocs {
				gone[db.ID((id-1)*blockDocs+n+1)] = true
			}
		}
		return compactSegments(t.Context(), tx, box)
	})
	check()
	if levels, err = queryInt64s(t.Context(), x.reader, `SELECT level FROM search_shelf ORDER BY level`); err != nil || fmt.Sprint(levels) != "[1 2]" {
		t.Errorf("shelves of levels %v are left, %v", levels, err)
	}
	for _, damage := range []string{
		`UPDATE search_field SET bits = CAST(bits || X'01' AS BLOB)`, `UPDATE search_field SET bits = SUBSTR(bits, 1, LENGTH(bits) - 2)`,
		`DELETE FROM search_field`, `UPDATE search_shelf SET blocks = X''`,
	} {
		write(func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), damage)
			return err
		})
		if _, err := x.Query(t.Context(), box, search.IndexQuery{Folder: 1, Clause: seek("subject", 1), Limit: 500}); !isDamageError(err) {
			t.Errorf("%s: %v", damage, err)
		}
	}
}

// TestBlockIDs checks that merging a segment while one of its blocks is dissolved does not include
// a block of another mailbox.
func TestBlockIDs(t *testing.T) {
	h := newFixture(t, dbtest.SQLite(t))
	const mine, other = db.ID(1), db.ID(2)
	next := db.ID(0)
	block := func(mailbox db.ID, rows int) {
		t.Helper()
		docs := make([]doc, blockDocs)
		for i := range docs {
			next++
			docs[i] = doc{next, mailbox, new(signature)}
			docs[i].signature.add(1, []byte("subject"))
		}
		h.must(h.index.write(h.ctx(), func(tx *sql.Tx) error {
			if err := writeBlock(h.ctx(), tx, mailbox, docs, rows); err != nil {
				return err
			}
			return buildSegments(h.ctx(), tx, mailbox)
		}))
	}
	const fields = fieldBuckets / blockBucketsPerPage
	for range segmentFanout - 1 {
		block(mine, fields)
	}
	block(mine, pagesPerBlock)
	h.must(h.index.write(h.ctx(), func(tx *sql.Tx) error {
		return dissolveBlock(h.ctx(), tx, segmentFanout, mine, make([]db.ID, blockDocs), nil) // all its messages are deleted
	}))
	block(other, fields)
	for range segmentFanout * (segmentFanout - 1) {
		block(mine, fields)
	}
	for mailbox, want := range map[db.ID]int{mine: (segmentFanout*segmentFanout - 1) * blockDocs, other: blockDocs} {
		_, err := h.index.writer.ExecContext(h.ctx(), setIndexedThroughQuery, mailbox, mailbox, 1)
		h.must(err)
		found, err := h.index.Query(h.ctx(), mailbox, search.IndexQuery{
			Folder: mailbox, LastUID: 1, Limit: 1 << 20, Clause: seek("subject", 1),
		})
		h.must(err)
		if len(found.Messages) != want {
			t.Errorf("mailbox %d: %d messages found, want %d", mailbox, len(found.Messages), want)
		}
	}
}
