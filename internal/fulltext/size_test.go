// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// TestNoFile checks that a service starts if the file can't be created, runs searches without it,
// and creates it later.
func TestNoFile(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(40)...)
		place := filepath.Join(t.TempDir(), "place")
		h.must(os.WriteFile(place, nil, 0o600))
		h.must(h.index.Close())
		h.open(filepath.Join(place, "search.db"))
		if got := h.search(h.indexed, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8}) {
			t.Errorf("found %v", got)
		}
		h.must(h.index.ReleaseMemory(h.ctx()))
		_, err := h.indexer.indexBatch(h.ctx(), 0, h.index.Now())
		if err = h.index.repair(h.ctx(), err); err == nil {
			t.Error("a file in a file was opened")
		}
		h.must(os.Remove(place))
		h.must(os.Mkdir(place, 0o700))
		_, err = h.indexer.indexBatch(h.ctx(), 0, h.index.Now())
		h.must(h.index.repair(h.ctx(), err))
		h.fill()
		if known, _ := h.narrowed(1, "number"); known != 40 {
			t.Errorf("%d messages are known", known)
		}
	})
}

// TestFullDisk checks that a full disk does not damage the index, and that indexing continues where
// it was.
func TestFullDisk(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(40)...)
		h.fill()
		capacity := func(pages int) {
			t.Helper()
			_, err := h.index.writer.ExecContext(h.ctx(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
			h.must(err)
		}
		capacity(1) // no more pages than exist
		h.append(h.box, folder.Inbox, numbered(blockDocs)...)
		var err error
		for more := true; more && err == nil; {
			more, err = h.indexer.indexBatch(h.ctx(), 0, h.index.Now().Add(1e12))
		}
		if err == nil || isDamageError(err) || h.index.repair(h.ctx(), err) == nil {
			t.Errorf("without room: %v", err)
		}
		if known, _ := h.narrowed(1, "number"); known < 40 {
			t.Errorf("%d messages are known", known)
		}
		if got := h.search(h.indexed, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8, 48}) {
			t.Errorf("found %v", got)
		}
		capacity(1 << 20)
		h.fill()
		if known, _ := h.narrowed(1, "number"); known != 40+blockDocs {
			t.Errorf("%d messages are known", known)
		}
	})
}

// TestDeletedFile checks that an index whose file is deleted while it is open is rebuilt.
func TestDeletedFile(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(40)...)
		h.fill()
		h.must(os.Remove(h.index.Path))
		h.index.reader.SetMaxIdleConns(-1) // as with many concurrent searches
		v := h.view(h.box, folder.Inbox)
		if got := h.search(h.indexed, v, bodySays7); !slices.Equal(got, []uint32{8}) {
			t.Errorf("found %v", got)
		}
		select {
		case err := <-h.index.damage:
			h.must(h.index.repair(h.ctx(), err))
		default:
			t.Fatal("it is not seen that the file is another one")
		}
		h.fill()
		if known, _ := h.narrowed(1, "number"); known != 40 {
			t.Errorf("%d messages are known", known)
		}
	})
}

// TestSparseSegments checks that segments hold at most three times as many dissolved blocks as
// remaining ones, and that the remaining messages are found.
func TestSparseSegments(t *testing.T) {
	h := newFixture(t, dbtest.SQLite(t))
	const blocks = segmentFanout * segmentFanout
	next := db.ID(0)
	for range blocks {
		docs := make([]doc, blockDocs)
		for i := range docs {
			next++
			docs[i] = doc{next, h.box, new(signature)}
			docs[i].signature.add(1, []byte("subject"))
		}
		h.must(h.index.write(h.ctx(), func(tx *sql.Tx) error {
			if err := writeBlock(h.ctx(), tx, h.box, docs, pagesPerBlock); err != nil {
				return err
			}
			return buildSegments(h.ctx(), tx, h.box)
		}))
	}
	_, err := h.index.writer.ExecContext(h.ctx(), setIndexedThroughQuery, 1, h.box, 1)
	h.must(err)
	check := func(left int, levels string) {
		t.Helper()
		found, err := h.index.Query(h.ctx(), h.box, search.IndexQuery{Folder: 1, LastUID: 1, Limit: 1 << 20, Clause: seek("subject", 1)})
		h.must(err)
		if n := len(slices.Compact(slices.Sorted(slices.Values(found.Messages)))); n != left*blockDocs || n != len(found.Messages) {
			t.Errorf("%d messages found, %d of them different; want %d", len(found.Messages), n, left*blockDocs)
		}
		if got, err := queryInt64s(h.ctx(), h.index.reader, `SELECT level FROM search_shelf ORDER BY level`); err != nil || fmt.Sprint(got) != levels {
			t.Errorf("of %d blocks there are shelves of levels %v, %v", left, got, err)
		}
	}
	check(blocks, "[2]")
	for left := blocks - 1; left >= 0; left-- {
		h.must(h.index.write(h.ctx(), func(tx *sql.Tx) error {
			return dissolveBlock(h.ctx(), tx, int64(blocks-left), h.box, make([]db.ID, blockDocs), nil) // all its messages are deleted
		}))
		switch {
		case left > segmentFanout:
			check(left, "[2]")
		case left > 1:
			check(left, "[1]")
		default:
			check(left, "[]")
		}
	}
	if n := h.count(`SELECT (SELECT COUNT(*) FROM search_field) + (SELECT COUNT(*) FROM search_slice)`); n != 0 {
		t.Errorf("%d rows of blocks are left", n)
	}
}
