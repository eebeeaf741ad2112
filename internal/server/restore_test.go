// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"

	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/backup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// taken returns a backup with three large messages.
func taken(t *testing.T) (dir string, about backup.Info) {
	t.Helper()
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	s := servertest.Start(t, servertest.Data(data))
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	boxes, _, err := s.Mailboxes.List(t.Context(), acc.ID, mailbox.Filter{}, db.Page{Limit: 1})
	if err != nil || len(boxes) != 1 {
		t.Fatal(boxes, err)
	}
	for n := range 3 {
		text := "Subject: large\r\n\r\n" + strings.Repeat(string(rune('a'+n))+" line\r\n", 20_000)
		b, err := s.Blobs.FromBytes(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		index, header, err := message.ScanReader(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		d, err := folder.NewMetadata(header, index)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Folders.Append(t.Context(), boxes[0].ID, folder.Inbox, folder.Upload{Blob: b, Metadata: d}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Users.CreateInviteLink(t.Context(), acc.ID, "colleague@example.com", "member", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Accounts.CreateKey(t.Context(), acc.ID, account.KeyParams{Name: "printer", Scopes: []string{"mail.read"}}); err != nil {
		t.Fatal(err)
	}
	if about, err = server.Backup(t.Context(), server.Config{Data: data, Database: "sqlite"}, dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	return dir, about
}

// copyOf returns a copy of a folder.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func restore(ctx context.Context, data, from string, o backup.RestoreOptions) (backup.RestoreResult, error) {
	return server.Restore(ctx, server.Config{Data: data, Database: "sqlite"}, from, o)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// large lists the files of large messages.
func large(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "blobs", "??", "*"))
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	return all
}

func replace(t *testing.T, path string, with func(path string) error) {
	t.Helper()
	must(t, os.RemoveAll(path))
	must(t, with(path))
}

func pipe(path string) error { return syscall.Mkfifo(path, 0o600) }
func socket(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err == nil {
		l.SetUnlinkOnClose(false)
		err = l.Close()
	}
	return err
}
func bottomless(path string) error { return os.Symlink("/dev/zero", path) }
func dir(path string) error        { return os.Mkdir(path, 0o700) }

// damage changes a byte of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	text[len(text)/2] ^= 1
	must(t, os.WriteFile(path, text, 0o600))
}

// alter runs statements on the backup's database.
func alter(t *testing.T, folder string, statements ...string) {
	t.Helper()
	d, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "mailstead.db"))
	must(t, err)
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	must(t, d.Close())
}

// Restore rejects a folder with contents that the backup did not write, without blocking.
func TestHostileFolder(t *testing.T) {
	original, about := taken(t)
	manifest := filepath.Base(about.Manifest)
	for name, c := range map[string]struct {
		change  func(t *testing.T, dir string)
		options backup.RestoreOptions
		words   string
	}{
		"the database is a link": {func(t *testing.T, dir string) {
			moved := filepath.Join(t.TempDir(), "x")
			must(t, os.Rename(filepath.Join(dir, "mailstead.db"), moved))
			must(t, os.Symlink(moved, filepath.Join(dir, "mailstead.db")))
		}, backup.RestoreOptions{}, "no regular file"},
		"the database is a pipe":   {func(t *testing.T, d string) { replace(t, filepath.Join(d, "mailstead.db"), pipe) }, backup.RestoreOptions{Unverified: true}, "no regular file"},
		"the database is a device": {func(t *testing.T, d string) { replace(t, filepath.Join(d, "mailstead.db"), bottomless) }, backup.RestoreOptions{Unverified: true}, "no regular file"},
		"the database is a folder": {func(t *testing.T, d string) { replace(t, filepath.Join(d, "mailstead.db"), dir) }, backup.RestoreOptions{}, "no regular file"},
		"a byte of the database":   {func(t *testing.T, d string) { damage(t, filepath.Join(d, "mailstead.db")) }, backup.RestoreOptions{}, "was changed"},
		"the key is a pipe":        {func(t *testing.T, d string) { replace(t, filepath.Join(d, "secret.key"), pipe) }, backup.RestoreOptions{}, "no regular file"},
		"the key is a socket":      {func(t *testing.T, d string) { replace(t, filepath.Join(d, "secret.key"), socket) }, backup.RestoreOptions{}, "no regular file"},
		"the folder of messages a link": {func(t *testing.T, d string) {
			replace(t, filepath.Join(d, "blobs"), func(p string) error { return os.Symlink(original+"/blobs", p) })
		}, backup.RestoreOptions{}, "no regular file"},
		"no manifest":             {func(t *testing.T, d string) { must(t, os.Remove(filepath.Join(d, manifest))) }, backup.RestoreOptions{}, "has no manifest"},
		"the manifest is a pipe":  {func(t *testing.T, d string) { replace(t, filepath.Join(d, manifest), pipe) }, backup.RestoreOptions{}, "no regular file"},
		"the manifest is changed": {func(t *testing.T, d string) { damage(t, filepath.Join(d, manifest)) }, backup.RestoreOptions{}, "was changed"},
		"the manifest is cut off": {func(t *testing.T, d string) {
			must(t, os.Truncate(filepath.Join(d, manifest), 200))
		}, backup.RestoreOptions{}, "was changed"},
		"the manifest of another key": {func(t *testing.T, d string) {
			text, err := os.ReadFile(filepath.Join(d, manifest))
			must(t, err)
			at := bytes.Index(text, []byte("hmac-sha256 "))
			must(t, os.WriteFile(filepath.Join(d, manifest), append(text[:at:at], "hmac-sha256 "+strings.Repeat("ab", 32)+"\n"...), 0o600))
		}, backup.RestoreOptions{}, "another secret key"},
		"another backup than the one that is meant": {func(*testing.T, string) {}, backup.RestoreOptions{Manifest: strings.Repeat("00", 32)}, "not that backup"},
		"a trigger": {func(t *testing.T, d string) {
			alter(t, d, `CREATE TRIGGER spy AFTER INSERT ON message BEGIN DELETE FROM api_key; END`)
		}, backup.RestoreOptions{Unverified: true}, "trigger spy"},
		"a view": {func(t *testing.T, d string) { alter(t, d, `CREATE VIEW more AS SELECT * FROM api_key`) }, backup.RestoreOptions{Unverified: true}, "view more"},
		"a view for a table": {func(t *testing.T, d string) {
			alter(t, d, `ALTER TABLE idempotency RENAME TO hidden`, `CREATE VIEW idempotency AS SELECT * FROM hidden`)
		}, backup.RestoreOptions{Unverified: true}, "none of this service's"},
		"a view for the version": {func(t *testing.T, d string) {
			alter(t, d, `ALTER TABLE schema_migration RENAME TO hidden`, `CREATE VIEW schema_migration AS SELECT 1 AS version_id, 1 AS is_applied`)
		}, backup.RestoreOptions{Unverified: true}, "no schema version"},
		"an index":     {func(t *testing.T, d string) { alter(t, d, `CREATE INDEX one ON account (status)`) }, backup.RestoreOptions{Unverified: true}, "index one"},
		"a lost index": {func(t *testing.T, d string) { alter(t, d, `DROP INDEX mailbox_live`) }, backup.RestoreOptions{Unverified: true}, "index mailbox_live"},
		"a table":      {func(t *testing.T, d string) { alter(t, d, `CREATE TABLE extra (x)`) }, backup.RestoreOptions{Unverified: true}, "table extra"},
		"a column":     {func(t *testing.T, d string) { alter(t, d, `ALTER TABLE account ADD COLUMN x TEXT DEFAULT (1)`) }, backup.RestoreOptions{Unverified: true}, "table account"},
		"a newer version": {func(t *testing.T, d string) {
			alter(t, d, `INSERT INTO schema_migration (version_id, is_applied) VALUES (99999, 1)`)
		}, backup.RestoreOptions{Unverified: true}, "newer release"},
		"a constraint hidden in a comment": {func(t *testing.T, d string) {
			alter(t, d, `PRAGMA writable_schema = 1;
				UPDATE sqlite_schema SET sql = replace(sql, 'TEXT NOT NULL UNIQUE', 'TEXT /*/ NOT NULL/**/ UNIQUE') WHERE name = 'account'`)
		}, backup.RestoreOptions{Unverified: true}, "table account"},
		"a condition behind a NUL": {func(t *testing.T, d string) {
			alter(t, d, `PRAGMA writable_schema = 1;
				UPDATE sqlite_schema SET sql = replace(sql, ' WHERE', ' --' || char(0) || char(10) || 'WHERE') WHERE name = 'mailbox_live'`)
		}, backup.RestoreOptions{Unverified: true}, "none of this service's"},
		"a constraint on the version": {func(t *testing.T, d string) {
			alter(t, d, `PRAGMA writable_schema = 1;
				UPDATE sqlite_schema SET sql = replace(sql, 'is_applied INTEGER', 'is_applied INTEGER CHECK (is_applied < 2)') WHERE name = 'schema_migration'`)
		}, backup.RestoreOptions{Unverified: true}, "table schema_migration"},
		"an id of zero":    {func(t *testing.T, d string) { alter(t, d, `UPDATE api_key SET id = 0 WHERE name = 'printer'`) }, backup.RestoreOptions{Unverified: true}, "table api_key"},
		"a negative file":  {func(t *testing.T, d string) { alter(t, d, `UPDATE blob SET file = -file WHERE file > 0`) }, backup.RestoreOptions{Unverified: true}, "table blob"},
		"a negative id":    {func(t *testing.T, d string) { alter(t, d, `UPDATE event SET id = -id`) }, backup.RestoreOptions{Unverified: true}, "table event"},
		"a size below all": {func(t *testing.T, d string) { alter(t, d, `UPDATE blob SET size = -1 WHERE file > 0`) }, backup.RestoreOptions{Unverified: true}, "table blob"},
		"no database": {func(t *testing.T, d string) {
			must(t, os.WriteFile(filepath.Join(d, "mailstead.db"), []byte(strings.Repeat("x", 5000)), 0o600))
		}, backup.RestoreOptions{Unverified: true}, "none of this service's"},
		"a page of the database": {func(t *testing.T, d string) {
			f, err := os.OpenFile(filepath.Join(d, "mailstead.db"), os.O_WRONLY, 0)
			must(t, err)
			info, err := f.Stat()
			must(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0xA5}, 4096), info.Size()/2/4096*4096)
			must(t, errors.Join(err, f.Close()))
		}, backup.RestoreOptions{Unverified: true}, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			from, data := copyOf(t, original), filepath.Join(t.TempDir(), "data")
			c.change(t, from)
			_, err := restore(t.Context(), data, from, c.options)
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v; want %q", err, c.words)
			}
			if _, err := os.Lstat(filepath.Join(data, "mailstead.db")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("there is a database")
			}
			if _, err := os.Lstat(filepath.Join(data, "secret.key")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("there is a key")
			}
		})
	}
}

// A changed or missing file of a message or certificate is left out and reported. Everything else
// is restored.
func TestWrongFiles(t *testing.T) {
	original, _ := taken(t)
	elsewhere := filepath.Join(t.TempDir(), "stolen")
	must(t, os.WriteFile(elsewhere, []byte("of the machine's own"), 0o600))
	// Usually all three: a message's folder is named by the last byte of its ID,
	// which is a sequence number within a millisecond.
	together, err := filepath.Glob(filepath.Join(filepath.Dir(large(t, original)[0]), "*"))
	must(t, err)
	for name, c := range map[string]struct {
		change         func(t *testing.T, d string)
		missing, wrong int
		extra          int
	}{
		"honest":               {func(*testing.T, string) {}, 0, 0, 0},
		"a message is gone":    {func(t *testing.T, d string) { must(t, os.Remove(large(t, d)[0])) }, 1, 0, 0},
		"a message is cut off": {func(t *testing.T, d string) { must(t, os.Truncate(large(t, d)[0], 100)) }, 0, 1, 0},
		"a byte of a message":  {func(t *testing.T, d string) { damage(t, large(t, d)[0]) }, 0, 1, 0},
		"a message is a link": {func(t *testing.T, d string) {
			replace(t, large(t, d)[0], func(p string) error { return os.Symlink(elsewhere, p) })
		}, 0, 1, 0},
		"a message is a pipe":   {func(t *testing.T, d string) { replace(t, large(t, d)[1], pipe) }, 0, 1, 0},
		"a message is a device": {func(t *testing.T, d string) { replace(t, large(t, d)[1], bottomless) }, 0, 1, 0},
		"a message is a folder": {func(t *testing.T, d string) { replace(t, large(t, d)[2], dir) }, 0, 1, 0},
		"a folder of messages is a link": {func(t *testing.T, d string) {
			at := filepath.Dir(large(t, d)[0])
			moved := filepath.Join(t.TempDir(), "x")
			must(t, os.Rename(at, moved))
			must(t, os.Symlink(moved, at))
		}, 0, len(together), 1},
		"a certificate is a link": {func(t *testing.T, d string) {
			replace(t, filepath.Join(d, "ca.pem"), func(p string) error { return os.Symlink(elsewhere, p) })
		}, 0, 1, 0},
		"a certificate is another": {func(t *testing.T, d string) { damage(t, filepath.Join(d, "ca.key")) }, 0, 1, 0},
		"a certificate is gone":    {func(t *testing.T, d string) { must(t, os.Remove(filepath.Join(d, "ca.pem"))) }, 1, 0, 0},
		"files of others": {func(t *testing.T, d string) {
			must(t, os.MkdirAll(filepath.Join(d, "acme"), 0o700))
			must(t, os.Symlink(elsewhere, filepath.Join(d, "acme", "account.key")))
			must(t, os.WriteFile(filepath.Join(d, "README"), nil, 0o600))
			must(t, os.WriteFile(filepath.Join(filepath.Dir(large(t, d)[0]), "x"), nil, 0o600))
			must(t, pipe(filepath.Join(d, "pipe")))
		}, 0, 0, 4},
	} {
		t.Run(name, func(t *testing.T) {
			from, data := copyOf(t, original), filepath.Join(t.TempDir(), "data")
			c.change(t, from)
			done, err := restore(t.Context(), data, from, backup.RestoreOptions{})
			if err != nil || len(done.Missing) != c.missing || len(done.Mismatched) != c.wrong || done.Extra != c.extra {
				t.Errorf("%+v, %v", done, err)
			}
			if _, err := os.Lstat(filepath.Join(data, "mailstead.db")); err != nil {
				t.Error(err)
			}
			err = filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					var text []byte
					if text, err = os.ReadFile(path); bytes.Contains(text, []byte("of the machine's own")) {
						t.Errorf("%s was made of a file outside the backup", path)
					}
				} else if err == nil && !e.IsDir() {
					t.Errorf("%s is %s", path, e.Type())
				}
				return err
			})
			must(t, err)
		})
	}
}

// The backup's sessions and links are deleted, and its keys are listed or deleted.
func TestRestoreEndsAccess(t *testing.T) {
	from, about := taken(t)
	sum, err := os.ReadFile(filepath.Join(from, about.Manifest))
	must(t, err)
	if got := about.ManifestSum; got != fmt.Sprintf("%x", sha256.Sum256(sum)) {
		t.Errorf("the manifest's sum is told as %s", got)
	}
	for _, end := range []bool{false, true} {
		data := filepath.Join(t.TempDir(), "data")
		done, err := server.Restore(t.Context(), server.Config{Data: data, Database: "sqlite"}, from,
			backup.RestoreOptions{RevokeKeys: end, Manifest: about.ManifestSum})
		must(t, err)
		if done.Links != 1 || done.Keys < 2 || end != (len(done.KeyNames) == 0) {
			t.Errorf("%+v", done)
		}
		named := false
		for _, k := range done.KeyNames {
			named = named || k.Name == "printer" && k.Email == "you@demo.test"
		}
		if named == end {
			t.Errorf("named: %+v", done.KeyNames)
		}
		d, err := sql.Open("sqlite", "file:"+filepath.Join(data, "mailstead.db"))
		must(t, err)
		for _, table := range []string{"dashboard_session", "dashboard_ticket", "profile_link"} {
			var n int
			must(t, d.QueryRow(`SELECT COUNT(*) FROM `+table).Scan(&n))
			if n != 0 {
				t.Errorf("%s has %d rows", table, n)
			}
		}
		var keys int64
		must(t, d.QueryRow(`SELECT COUNT(*) FROM api_key`).Scan(&keys))
		if end != (keys == 0) {
			t.Errorf("%d keys are left", keys)
		}
		must(t, d.Close())
	}
}

// countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context
	left  atomic.Int64
	ended chan struct{}
}

func (c *countdown) Err() error {
	if c.left.Add(-1) == 0 {
		close(c.ended)
	}
	select {
	case <-c.ended:
		return context.Canceled
	default:
		return nil
	}
}

func (c *countdown) Done() <-chan struct{}       { return c.ended }
func (c *countdown) Deadline() (time.Time, bool) { return time.Time{}, false }

// A restore can be interrupted at any point, and the next one succeeds.
func TestRestoreInterrupted(t *testing.T) {
	from, _ := taken(t)
	data := filepath.Join(t.TempDir(), "data")
	interrupted := 0
	for n := int64(1); ; n = n*3/2 + 1 {
		ctx := &countdown{Context: t.Context(), ended: make(chan struct{})}
		ctx.left.Store(n)
		_, err := restore(ctx, data, from, backup.RestoreOptions{})
		if err == nil {
			break
		}
		interrupted++
		if !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "interrupt") {
			t.Fatalf("interrupted at %d: %v", n, err)
		}
		if _, err := os.Lstat(filepath.Join(data, "mailstead.db")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("interrupted at %d, there is a database", n)
		}
	}
	if interrupted < 5 {
		t.Errorf("it was interrupted at %d places only", interrupted)
	}
	if list, err := filepath.Glob(filepath.Join(data, ".restore*")); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// A backup does not block on files that others put into its folder.
func TestBackupIntoHostileFolder(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	servertest.Start(t, servertest.Data(data))
	c := server.Config{Data: data, Database: "sqlite"}
	_, err := server.Backup(t.Context(), c, to)
	must(t, err)
	for _, name := range []string{"backup.json", "secret.key"} {
		path := filepath.Join(to, name)
		text, err := os.ReadFile(path)
		must(t, err)
		replace(t, path, pipe)
		if _, err := server.Backup(t.Context(), c, to); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", name, err)
		}
		replace(t, path, func(path string) error { return os.WriteFile(path, text, 0o600) })
	}
	manifests, err := filepath.Glob(filepath.Join(to, "manifest-*"))
	must(t, err)
	for _, path := range manifests {
		replace(t, path, pipe)
	}
	about, err := server.Backup(t.Context(), c, to) // a backup needs none
	must(t, err)
	if _, err := restore(t.Context(), filepath.Join(t.TempDir(), "data"), to, backup.RestoreOptions{Manifest: about.ManifestSum}); err != nil {
		t.Error(err)
	}
}

// A backup without checksums, from an older release, is restored only on request, and gets
// checksums when it is updated.
func TestBackupWithoutManifest(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	servertest.Start(t, servertest.Data(data))
	c := server.Config{Data: data, Database: "sqlite"}
	about, err := server.Backup(t.Context(), c, to)
	must(t, err)
	must(t, os.Remove(filepath.Join(to, about.Manifest)))
	done, err := restore(t.Context(), filepath.Join(t.TempDir(), "data"), to, backup.RestoreOptions{Unverified: true})
	if err != nil || len(done.Missing)+len(done.Mismatched) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	_, err = server.Backup(t.Context(), c, to)
	must(t, err)
	_, err = restore(t.Context(), filepath.Join(t.TempDir(), "data"), to, backup.RestoreOptions{})
	must(t, err)
}
