// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
)

// fixture is a store with one mailbox, and an index of it.
type fixture struct {
	testing.TB
	*folder.Folders
	plain   *folder.Folders // the same, without an index
	index   *Index
	indexer *Indexer
	db      *db.DB
	box     db.ID
	ahead   time.Duration // of the clock
}

func newFixture(t testing.TB, url string) *fixture {
	d, node := leasetest.Open(t, url)
	h := &fixture{TB: t, db: d}
	files, err := blob.NewDir(t.TempDir())
	h.must(err)
	now := func() time.Time { return time.Now().Add(h.ahead) }
	o := folder.Options{DB: d, Hub: &notify.Hub{}, Now: now, ExpungeGrace: time.Minute, Log: slog.New(slog.DiscardHandler)}
	o.Blobs = &blob.Store{DB: d, Files: files, Now: now}
	o.Events = &event.Log{DB: d, Node: node, Hub: o.Hub, Now: now}
	h.plain, h.Folders = folder.New(o), folder.New(o)
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
	h.Index, h.indexer = h.index, NewIndexer(h.index, h.Folders)
}

func (h *fixture) newMailbox() db.ID {
	box := testkit.AddMailbox(h, h.db, 1<<40)
	h.must(h.db.Tx(h.ctx(), func(tx *db.Tx) error { return h.Provision(h.ctx(), tx, box) }))
	return box
}

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
		b, err := h.Blobs.FromBytes(h.ctx(), []byte(text))
		h.must(err)
		ix, header, err := message.ScanReader(strings.NewReader(text))
		h.must(err)
		d, err := folder.NewMetadata(header, ix)
		h.must(err)
		all = append(all, folder.Upload{Blob: b, Metadata: d})
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

func (h *fixture) view(s *folder.Folders, box db.ID, name string) *folder.View {
	h.Helper()
	v, err := s.Open(h.ctx(), box, name, false)
	h.must(err)
	h.Cleanup(v.Close)
	return v
}

func (h *fixture) search(v *folder.View, c folder.Criterion) []uint32 {
	h.Helper()
	uids, err := v.Search(h.ctx(), c, nil)
	h.must(err)
	return uids
}
