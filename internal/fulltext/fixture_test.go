// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/foldertest"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// fixture is a store with one mailbox, and an index of it.
type fixture struct {
	testing.TB
	*folder.Folders
	plain, indexed *search.Searcher // without the index and with it
	index          *Index
	indexer        *Indexer
	db             *db.DB
	box            db.ID
	ahead          time.Duration // of the clock
}

func newFixture(t testing.TB, url string) *fixture {
	d, node := leasetest.Open(t, url)
	h := &fixture{TB: t, db: d}
	h.Folders = foldertest.New(t, d, node, folder.Options{
		Now: func() time.Time { return time.Now().Add(h.ahead) }, ExpungeGrace: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	h.plain = search.New(h.Folders, nil)
	h.open(filepath.Join(t.TempDir(), "search.db"))
	t.Cleanup(func() { h.must(h.index.Close()) })
	h.box = h.newMailbox()
	return h
}

// open opens the index, for the first time or again.
func (h *fixture) open(path string) {
	h.Helper()
	var err error
	h.index, err = Open(h.ctx(), Options{Path: path, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	h.must(err)
	h.indexed, h.indexer = search.New(h.Folders, h.index), NewIndexer(h.index, h.Folders)
}

func (h *fixture) newMailbox() db.ID { return foldertest.AddMailbox(h, h.Folders) }

func (h *fixture) ctx() context.Context { return h.Context() }

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) append(box db.ID, name string, texts ...string) {
	h.Helper()
	var all []folder.Upload
	for _, text := range texts {
		all = append(all, foldertest.NewUpload(h, h.Folders, text))
	}
	_, _, err := h.Append(h.ctx(), box, name, all...)
	h.must(err)
}

// fill makes the index process all messages.
func (h *fixture) fill() {
	h.Helper()
	for pass := range passes {
		for more := true; more; {
			var err error
			more, err = h.indexer.indexBatch(h.ctx(), pass, time.Now().Add(time.Hour))
			h.must(err)
		}
	}
	h.must(h.indexer.updateAllIndexedThrough(h.ctx()))
}

// sweep runs one complete sweep, from any starting point.
func (h *fixture) sweep() {
	h.Helper()
	for range 2 {
		for more := true; more; {
			var err error
			more, err = h.indexer.sweep(h.ctx())
			h.must(err)
		}
	}
}

func (h *fixture) view(box db.ID, name string) *folder.View {
	h.Helper()
	v, err := h.Open(h.ctx(), box, name, false)
	h.must(err)
	h.Cleanup(v.Close)
	return v
}

func (h *fixture) search(s *search.Searcher, v *folder.View, c search.Criterion) []uint32 {
	h.Helper()
	uids, err := s.Search(h.ctx(), v, c, nil)
	h.must(err)
	return uids
}
