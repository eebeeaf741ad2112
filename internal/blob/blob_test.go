// SPDX-License-Identifier: Apache-2.0

package blob_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/blob/blobtest"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

func newFolder(t *testing.T) (*blob.Dir, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "blobs")
	f, err := blob.NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

// age returns a func that sets the modification time of all files in a folder.
func age(t *testing.T, dir string) func(time.Time) {
	return func(at time.Time) {
		t.Helper()
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			return os.Chtimes(path, at, at)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFolder(t *testing.T) {
	f, dir := newFolder(t)
	blobtest.TestFileStore(t, f, age(t, dir))
	if _, err := blob.NewDir(dir); err != nil {
		t.Errorf("opening it again: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.NewDir(file); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// each runs f with a store on both engines.
func each(t *testing.T, f func(t *testing.T, s *blob.Store, dir string)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		files, dir := newFolder(t)
		f(t, &blob.Store{DB: d, Files: files, Now: time.Now}, dir)
	})
}

func text(size int) []byte {
	return bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz\r\n"), size/38+1)[:size]
}

func fromBytes(t *testing.T, s *blob.Store, b []byte) *blob.Blob {
	t.Helper()
	made, err := s.FromBytes(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// same checks every way of reading a blob.
func same(t *testing.T, s *blob.Store, id db.ID, want []byte) {
	t.Helper()
	b, err := s.Load(t.Context(), id)
	if err != nil || b.Size != int64(len(want)) {
		t.Fatalf("size %d, want %d, %v", b.Size, len(want), err)
	}
	r, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read
	if all, err := io.ReadAll(r.All()); err != nil || !bytes.Equal(all, want) || r.Size() != b.Size {
		t.Errorf("All: %d of %d bytes, %v", len(all), len(want), err)
	}
	var out bytes.Buffer
	if n, err := r.WriteTo(&out); err != nil || n != b.Size || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("WriteTo: %d of %d bytes, %v", n, len(want), err)
	}
	size := len(want)
	for _, from := range []int{0, 1, 5, 6, 100, blob.MaxInline - 1, blob.MaxInline, blob.MaxInline + 7, size - 1, size} {
		for _, n := range []int{0, 1, 3, 4096, size} {
			if from < 0 || from > size {
				continue
			}
			p := make([]byte, n)
			got, err := r.ReadAt(p, int64(from))
			left := min(n, size-from)
			if got != left || !bytes.Equal(p[:got], want[from:from+left]) || (got < n && !errors.Is(err, io.EOF)) {
				t.Errorf("ReadAt(%d bytes, %d) = %d, %v", n, from, got, err)
			}
		}
	}
	if _, err := r.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("read before the beginning")
	}
}

func TestSizes(t *testing.T) {
	each(t, func(t *testing.T, s *blob.Store, dir string) {
		for _, size := range []int{0, 1, 4096, blob.MaxInline, blob.MaxInline + 1, 1 << 20} {
			whole := fromBytes(t, s, text(size))
			w := s.Create(t.Context())
			for chunk := text(size); len(chunk) > 0; {
				n := min(len(chunk), 3000)
				if _, err := w.Write(chunk[:n]); err != nil {
					t.Fatal(err)
				}
				chunk = chunk[n:]
			}
			if w.Size() != int64(size) {
				t.Errorf("wrote %d, want %d", w.Size(), size)
			}
			written, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			w.Abort()
			dbtest.Exec(t, s.DB, whole.InsertStatement(), written.InsertStatement())
			for _, b := range []*blob.Blob{whole, written} {
				if inline, is := b.Bytes(); is != (size <= blob.MaxInline) || (is && len(inline) != size) {
					t.Errorf("size %d: %d bytes in the row, all: %v", size, len(inline), is)
				}
				same(t, s, b.ID, text(size))
			}
		}
		if _, err := s.Load(t.Context(), s.DB.NewID()); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPrepend(t *testing.T) {
	each(t, func(t *testing.T, s *blob.Store, dir string) {
		head := []byte("Received: by us\r\n")
		for _, size := range []int{100, blob.MaxInline, 200_000} {
			first := fromBytes(t, s, text(size))
			second := s.Prepend(first, head)
			third := s.Prepend(second, []byte("X: y\r\n"))
			dbtest.Exec(t, s.DB, first.InsertStatement(), second.InsertStatement(), third.InsertStatement())
			same(t, s, first.ID, text(size))
			same(t, s, second.ID, append(head[:len(head):len(head)], text(size)...))
			same(t, s, third.ID, append([]byte("X: y\r\n"+string(head)), text(size)...))
		}
	})
}

func TestAbortAndDiscard(t *testing.T) {
	each(t, func(t *testing.T, s *blob.Store, dir string) {
		w := s.Create(t.Context())
		if _, err := w.Write(text(200_000)); err != nil {
			t.Fatal(err)
		}
		w.Abort()
		fromBytes(t, s, text(200_000)).Discard(t.Context())
		fromBytes(t, s, text(10)).Discard(t.Context())
		if n := len(filesIn(t, dir)); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// A folder that is missing, or belongs to another service, is reported, and its files don't count
// as lost.
func TestOpenFolder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := filepath.Join(t.TempDir(), "blobs")
		open := func(owner string) (*blob.Dir, error) { return blob.OpenDir(t.Context(), d, dir, owner) }
		refused := func(owner, says string) {
			t.Helper()
			if _, err := open(owner); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		f, err := open("one")
		if err != nil {
			t.Fatal(err)
		}
		s := &blob.Store{DB: d, Files: f, Now: time.Now}
		b := fromBytes(t, s, text(70_000))
		dbtest.Exec(t, d, b.InsertStatement())
		refused("two", "another service's")
		if _, err := open("one"); err != nil {
			t.Error(err)
		}
		if files := filesIn(t, dir); len(files) != 2 {
			t.Errorf("files %q", files)
		}

		if err := os.Rename(dir, dir+" away"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Open(t.Context()); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("while the folder is away: %v", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil { // where it is mounted
			t.Fatal(err)
		}
		refused("one", "mounted")
		if err := os.Mkdir(filepath.Join(dir, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := open("one"); err != nil {
			t.Error(err)
		}
		if _, err := b.Open(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of a file that is lost: %v", err)
		}
	})
}

// A folder that was restored from a backup without its empty folders does not count as unmounted.
func TestOpenFolderRestored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := filepath.Join(t.TempDir(), "blobs")
		f, err := blob.OpenDir(t.Context(), d, dir, "one")
		if err != nil {
			t.Fatal(err)
		}
		s := &blob.Store{DB: d, Files: f, Now: time.Now}
		b := fromBytes(t, s, text(70_000))
		dbtest.Exec(t, d, b.InsertStatement())
		if err := errors.Join(os.Remove(filepath.Join(dir, "new")), os.Remove(filepath.Join(dir, "service"))); err != nil {
			t.Fatal(err)
		}
		if _, err := blob.OpenDir(t.Context(), d, dir, "one"); err != nil {
			t.Errorf("without new: %v", err)
		}
		same(t, s, b.ID, text(70_000))
	})
}

// A folder that can't be written to, for example on a full disk, can still be read.
func TestOpenFolderFull(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := t.TempDir()
		if _, err := blob.NewDir(dir); err != nil {
			t.Fatal(err)
		}
		fresh := filepath.Join(dir, "new")
		if err := errors.Join(os.Remove(fresh), os.Symlink("/proc/self", fresh)); err != nil { // no file can be created in it
			t.Fatal(err)
		}
		if _, err := blob.OpenDir(t.Context(), d, dir, "one"); err != nil {
			t.Error(err)
		}
	})
}

// The sweep keeps the owner's file, for any name of the folder.
func TestSweepLeavesOwner(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := filepath.Join(t.TempDir(), "new")
		f, err := blob.OpenDir(t.Context(), d, dir, "one")
		if err != nil {
			t.Fatal(err)
		}
		s := &blob.Store{DB: d, Files: f, Now: func() time.Time { return time.Now().Add(2 * blob.SweepAge) }}
		if _, err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := blob.OpenDir(t.Context(), d, dir, "two"); !fault.Is(err, fault.Conflict) {
			t.Errorf("another service has it: %v", err)
		}
	})
}

// Of two databases with the same secret key only the first one sweeps the folder, as it has no rows
// for the files of the other.
func TestSweepOfTwoDatabases(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := filepath.Join(t.TempDir(), "blobs")
		store := func(d *db.DB) *blob.Store {
			t.Helper()
			if err := d.BindSecretKey(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			f, err := blob.OpenDir(t.Context(), d, dir, "one")
			if err != nil {
				t.Fatal(err)
			}
			return &blob.Store{DB: d, Files: f, Now: time.Now}
		}
		// sweep makes both databases find each file twice, a day later.
		sweep := func(s *blob.Store) (err error) {
			for _, later := range []time.Duration{2 * blob.SweepAge, 3 * blob.SweepAge} {
				s.Now = func() time.Time { return time.Now().Add(later) }
				_, err = s.Sweep(t.Context())
			}
			return err
		}
		first := store(d)
		if err := first.Files.CheckOwner(); err != nil {
			t.Fatal(err)
		}
		b := fromBytes(t, first, text(70_000))
		dbtest.Exec(t, d, b.InsertStatement())

		again, _ := leasetest.Open(t, dbtest.SQLite(t))
		second := store(again)
		if err := sweep(second); !fault.Is(err, fault.Conflict) {
			t.Errorf("the sweep of another database: %v", err)
		}
		same(t, first, b.ID, text(70_000))

		if err := d.ResetInstanceName(t.Context()); err != nil { // as in a copy
			t.Fatal(err)
		}
		if err := sweep(store(d)); !fault.Is(err, fault.Conflict) {
			t.Errorf("the sweep of a copy: %v", err)
		}
		if err := sweep(first); err != nil {
			t.Errorf("its own sweep: %v", err)
		}

		if err := os.Remove(filepath.Join(dir, "database")); err != nil { // as an operator does to take the folder over
			t.Fatal(err)
		}
		if err := sweep(second); err != nil {
			t.Error(err)
		}
		if err := sweep(first); !fault.Is(err, fault.Conflict) {
			t.Errorf("the former one's sweep: %v", err)
		}
	})
}

// While the owner can't be recorded, for example on a full disk, the sweep deletes nothing, as the
// files may belong to another database.
func TestSweepNotNoted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dir := filepath.Join(t.TempDir(), "blobs")
		f, err := blob.OpenDir(t.Context(), d, dir, "one")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		s := &blob.Store{DB: d, Files: f, Now: func() time.Time { return now }}
		b := fromBytes(t, s, text(70_000))                           // its row is in another database
		if err := os.Remove(filepath.Join(dir, "new")); err != nil { // new files are created in it
			t.Fatal(err)
		}
		for range 2 {
			now = now.Add(2 * blob.SweepAge)
			if _, err := s.Sweep(t.Context()); err == nil {
				t.Error("it was swept")
			}
		}
		dbtest.Exec(t, d, b.InsertStatement())
		if err := os.Mkdir(filepath.Join(dir, "new"), 0o700); err != nil {
			t.Fatal(err)
		}
		same(t, s, b.ID, text(70_000))
	})
}

var cutRow = db.SQL(`UPDATE blob SET bytes = SUBSTR(bytes, 1, 10) WHERE id = $1`)

// A missing, truncated or unreadable file is reported as lost before any byte is returned. A file
// that is truncated while it is being read is never read as a shorter message.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, s *blob.Store, dir string) {
		for name, c := range map[string]struct {
			size int
			lose func(b *blob.Blob, file string) error
		}{
			"a file that is gone": {200_000, func(_ *blob.Blob, file string) error { return os.Remove(file) }},
			"a file that is cut":  {200_000, func(_ *blob.Blob, file string) error { return os.Truncate(file, 1000) }},
			"a file that can't be read": {200_000, func(_ *blob.Blob, file string) error {
				return errors.Join(os.Remove(file), os.Symlink("/proc/self/mem", file)) // EIO
			}},
			"a row that is gone": {1000, func(b *blob.Blob, _ string) error { dbtest.Exec(t, s.DB, blob.DeleteStatement(b.ID)); return nil }},
			"a row that is cut":  {1000, func(b *blob.Blob, _ string) error { dbtest.Exec(t, s.DB, cutRow.With(b.ID)); return nil }},
		} {
			made := fromBytes(t, s, text(c.size))
			dbtest.Exec(t, s.DB, made.InsertStatement())
			before, err := made.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			file := ""
			if c.size > blob.MaxInline {
				file = filesIn(t, dir)[0]
			}
			if err := c.lose(made, file); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "file that is cut") {
				if n, err := before.WriteTo(io.Discard); !blob.IsLost(err) || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s: %d bytes, %v", name, n, err)
				}
				if n, err := io.Copy(io.Discard, before.All()); !blob.IsLost(err) {
					t.Errorf("%s: %d bytes, %v", name, n, err)
				}
			}
			_ = before.Close() // only read
			b, err := s.Load(t.Context(), made.ID)
			if err == nil {
				if all, here := b.Bytes(); here {
					t.Errorf("%s: %d bytes are all", name, len(all))
				}
				_, err = b.Open(t.Context())
			}
			if !blob.IsLost(err) {
				t.Errorf("%s: %v", name, err)
			}
			if file != "" {
				_ = os.Remove(file) // it may be missing
			}
		}
		if blob.IsLost(io.ErrUnexpectedEOF) || blob.IsLost(nil) {
			t.Error("all is lost")
		}
	})
}

// The sweep only deletes files that no row refers to, that are at least a day old, and that had no
// row an hour before.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, s *blob.Store, dir string) {
		now := time.Now()
		s.Now = func() time.Time { return now }
		sweep := func(want, left int) {
			t.Helper()
			n, err := s.Sweep(t.Context())
			if files := len(filesIn(t, dir)); err != nil || n != want || files != left {
				t.Errorf("deleted %d, want %d; %d files left, want %d; %v", n, want, files, left, err)
			}
		}
		kept, shared, removed, back := fromBytes(t, s, text(70_000)), fromBytes(t, s, text(80_000)), fromBytes(t, s, text(90_000)), fromBytes(t, s, text(95_000))
		fromBytes(t, s, text(100_000)) // its row is never inserted
		if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0); err != nil {
			t.Fatal(err)
		}
		copied := s.Prepend(shared, []byte("head"))
		dbtest.Exec(t, s.DB, kept.InsertStatement(), shared.InsertStatement(), copied.InsertStatement(), removed.InsertStatement(), fromBytes(t, s, text(10)).InsertStatement())
		dbtest.Exec(t, s.DB, blob.DeleteStatement(shared.ID), blob.DeleteStatement(removed.ID))
		sweep(0, 5) // all files are too young
		now = now.Add(blob.SweepAge + time.Minute)
		sweep(0, 5) // seen without a row for the first time
		dbtest.Exec(t, s.DB, back.InsertStatement())
		now = now.Add(blob.SweepDelay - time.Minute)
		sweep(0, 5)
		now = now.Add(time.Minute)
		sweep(2, 3)
		same(t, s, kept.ID, text(70_000))
		same(t, s, copied.ID, append([]byte("head"), text(80_000)...))
		same(t, s, back.ID, text(95_000))
		dbtest.Exec(t, s.DB, blob.DeleteStatement(copied.ID))
		sweep(0, 3) // its delay begins again
		now = now.Add(blob.SweepDelay)
		sweep(1, 2)
	})
}
