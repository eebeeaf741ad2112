// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

func look(t *testing.T, o db.InspectOptions) *db.Inspector {
	t.Helper()
	l, err := db.OpenInspector(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

var (
	newerSchema = db.SQL(`INSERT INTO schema_migration (version_id, is_applied) VALUES (99999, true)`)
	lookInsert  = db.SQL(`INSERT INTO leader_job (name, lease, fence, expires_at) VALUES ('look', 1, 1, 1) RETURNING fence`)
)

// An inspector reads the data, and can't write.
func TestLook(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		if err := d.BindSecretKey(t.Context(), "0123"); err != nil {
			t.Fatal(err)
		}
		l := look(t, db.InspectOptions{URL: url})
		s, err := l.Schema(t.Context())
		if err != nil || s.Version == 0 || s.Version != s.Latest || s.Missing != 0 {
			t.Errorf("schema %+v, %v", s, err)
		}
		if key, err := l.KeyFingerprint(t.Context()); err != nil || key != "0123" {
			t.Errorf("key %q, %v", key, err)
		}
		if now, err := l.Now(t.Context()); err != nil || now.IsZero() {
			t.Errorf("now %v, %v", now, err)
		}
		err = l.One(t.Context(), lookInsert.With(), new(int64))
		if err == nil || !strings.Contains(err.Error(), "read") {
			t.Errorf("a write through a look: %v", err)
		}
		dbtest.Exec(t, d, newerSchema.With())
		if s, err := l.Schema(t.Context()); err != nil || s.Version != 99999 || s.Latest >= s.Version || s.Missing != 0 {
			t.Errorf("newer schema %+v, %v", s, err)
		}
	})
}

// An empty database stays empty, and a missing file is not created.
func TestLookEmpty(t *testing.T) {
	l := look(t, db.InspectOptions{URL: dbtest.EmptyPostgres(t)})
	if s, err := l.Schema(t.Context()); err != nil || s.Version != 0 || s.Missing == 0 {
		t.Errorf("empty: %+v, %v", s, err)
	}
	url := dbtest.NoSQLite(t)
	if _, err := db.OpenInspector(t.Context(), db.InspectOptions{URL: url, Offline: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if files, err := os.ReadDir(filepath.Dir(strings.TrimPrefix(url, "sqlite:"))); err != nil || len(files) > 0 {
		t.Errorf("made %v, %v", files, err)
	}
}

// An inspector sees what a crash left in SQLite's log. Nothing in the folder changes, after a crash
// or a clean shutdown.
func TestLookLeavesFiles(t *testing.T) {
	url := dbtest.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	d, err := db.Open(t.Context(), db.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, d, newerSchema.With())
	// A copy of the folder in this state is what a crash leaves. Reading a file of the
	// database releases this process's locks on it; that is harmless, as it only has to
	// close it now.
	crashed := t.TempDir()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		text, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(crashed, "mailstead.db"+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"crashed": filepath.Join(crashed, "mailstead.db"), "ended": path} {
		before := contents(t, filepath.Dir(path))
		l := look(t, db.InspectOptions{URL: "sqlite:" + path, Offline: true})
		if s, err := l.Schema(t.Context()); err != nil || s.Version != 99999 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if faults, err := l.QuickCheck(t.Context()); err != nil || len(faults) > 0 {
			t.Errorf("%s: %v, %v", name, faults, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if after := contents(t, filepath.Dir(path)); after != before {
			t.Errorf("%s: the files have changed", name)
		}
	}
	if err := os.Remove(filepath.Join(crashed, "mailstead.db-shm")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.OpenInspector(t.Context(), db.InspectOptions{URL: "sqlite:" + filepath.Join(crashed, "mailstead.db"), Offline: true}); err == nil {
		t.Error("a log without its index was opened, for which one had to be made")
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(f.Name() + "\n" + string(text))
	}
	return all.String()
}

// The inspector returns the settings of the PostgreSQL server.
func TestLookPostgres(t *testing.T) {
	url := dbtest.Postgres(t)
	s, err := look(t, db.InspectOptions{URL: url}).Postgres(t.Context())
	if err != nil || !s.Fsync || !s.FullPageWrites || s.SynchronousCommit != "on" || s.Standby || s.MaxConnections < 100 || s.InUse < 1 || s.Version == "" {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = db.OpenInspector(t.Context(), db.InspectOptions{URL: "postgres://me:hunter2@127.0.0.1:1/x"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("nobody there: %v", err)
	}
}
