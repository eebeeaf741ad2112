// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"modernc.org/sqlite/vfs"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
)

var (
	hideMessages = db.SQL(`ALTER TABLE message RENAME TO away`)
	hideFolders  = db.SQL(`ALTER TABLE folder RENAME TO away`)
	hideBlobs    = db.SQL(`ALTER TABLE blob RENAME TO away`)
	showBlobs    = db.SQL(`ALTER TABLE away RENAME TO blob`)
	loseLast     = db.SQL(`DELETE FROM folder_message WHERE folder = $1 AND uid >= $2`)
	giveAgain    = db.SQL(`UPDATE folder SET uid_next = $2 WHERE id = $1`)
)

// TestTroubleOfMail checks that errors of the mail's database, which may be SQLite as well, don't
// make the index rebuild.
func TestTroubleOfMail(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(40)...)
		h.fill()
		h.append(h.box, folder.Inbox, numbered(1)...)
		dbtest.Exec(t, h.db, hideMessages.With())
		_, err := h.indexer.indexBatch(h.ctx(), 0, time.Now().Add(time.Hour))
		if err == nil || isDamageError(err) || h.index.repair(h.ctx(), err) == nil {
			t.Errorf("filling: %v", err)
		}
		_, err = h.indexer.sweep(h.ctx())
		for more := true; more && err == nil; {
			more, err = h.indexer.sweep(h.ctx())
		}
		if err == nil || isDamageError(err) {
			t.Errorf("sweeping: %v", err)
		}
		if n := h.count(`SELECT COUNT(*) FROM search_tail`); n != 40 {
			t.Errorf("%d messages are left in the index", n)
		}
	})
}

// TestUnreadYet checks that messages that can't be read temporarily are not indexed as if they
// could have any text: the second pass indexes them when they can be read.
func TestUnreadYet(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(3)...)
		dbtest.Exec(t, h.db, hideBlobs.With())
		_, err := h.indexer.indexBatch(h.ctx(), 0, time.Now().Add(time.Hour))
		h.must(err)
		if _, err := h.indexer.indexBatch(h.ctx(), 1, time.Now().Add(time.Hour)); err == nil {
			t.Error("the second pass goes on without them")
		}
		if n := h.count(`SELECT COUNT(*) FROM search_tail`); n != 0 {
			t.Errorf("%d messages are indexed", n)
		}
		dbtest.Exec(t, h.db, showBlobs.With())
		h.fill()
		if known, may := h.narrowed(search.BodyText, "says <1>"); known != 3 || may != 1 {
			t.Errorf("%d messages are known, of which %d may have the text", known, may)
		}
	})
}

// TestUIDsGivenAgain checks that after a restore from a backup the index does not treat reused UIDs
// as indexed.
func TestUIDsGivenAgain(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(40)...)
		h.fill()
		id := h.view(h.box, folder.Inbox).Folder().ID
		dbtest.Exec(t, h.db, loseLast.With(id, 31), giveAgain.With(id, 31))
		h.index.requestUpdate(h.box)
		h.must(h.indexer.updateAllIndexedThrough(h.ctx()))
		if upto := h.count(`SELECT upto FROM search_folder`); upto != 30 {
			t.Errorf("indexed up to %d", upto)
		}
	})
}

// TestTroubleIsToldOnce checks that a persistent error is not logged at each attempt.
func TestTroubleIsToldOnce(t *testing.T) {
	was := passes[0].every
	passes[0].every = time.Millisecond
	t.Cleanup(func() { passes[0].every = was })
	h := newFixture(t, dbtest.SQLite(t))
	told := &bytes.Buffer{}
	h.index.Log = slog.New(slog.NewTextHandler(told, nil))
	now, looks := time.Now(), make(chan struct{})
	ctx, cancel := context.WithCancel(h.ctx())
	h.index.Now = func() time.Time {
		select {
		case looks <- struct{}{}:
		case <-ctx.Done():
		}
		return now
	}
	h.indexer.updatedMailboxes[h.box] = true
	dbtest.Exec(t, h.db, hideFolders.With())
	ended := make(chan error, 1)
	go func() { ended <- h.indexer.Run(ctx) }()
	for range 100 {
		<-looks
	}
	cancel()
	h.must(<-ended)
	if n := strings.Count(told.String(), "tending the search index failed"); n == 0 || n > len(passes)+1 {
		t.Errorf("told %d times:\n%.2000s", n, told)
	}
}

// badDisk is a file system on which the pages of a file after the first one can't be read.
type badDisk struct{ fs.FS }

func (d badDisk) Open(name string) (fs.File, error) {
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &badFile{File: f}, nil
}

type badFile struct {
	fs.File
	at int64
}

func (f *badFile) Seek(off int64, whence int) (int64, error) {
	at, err := f.File.(interface {
		Seek(off int64, whence int) (int64, error)
	}).Seek(off, whence)
	f.at = at
	return at, err
}

func (f *badFile) Read(p []byte) (int, error) {
	if f.at >= 4096 {
		return 0, syscall.EIO
	}
	n, err := f.File.Read(p)
	f.at += int64(n)
	return n, err
}

// TestBadSector checks that an unreadable page counts as damage, and that recreating the file
// repairs it.
func TestBadSector(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), `CREATE TABLE a (b)`); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	name, disk, err := vfs.New(badDisk{fstest.MapFS{"a.db": {Data: raw}}})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close() //nolint:errcheck // only read
	bad, err := sql.Open("sqlite", "file:a.db?vfs="+name)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close() //nolint:errcheck // only read
	if err := bad.QueryRowContext(t.Context(), `SELECT b FROM a`).Scan(new(int)); errors.Is(err, sql.ErrNoRows) || !isDamageError(err) {
		t.Errorf("%v is no damage", err)
	}
}
