// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/needtest"
)

var blobSize = db.SQL(`SELECT size FROM blob WHERE id = $1`)

// The disk fills up in the middle of a batch: every caller gets its own result, and writes succeed
// again once there is space.
func TestDiskFullSQLite(t *testing.T) {
	dir := t.TempDir()
	smallDisk(t, dir, 12<<20, "")
	free := ballast(t, dir)
	d := dbtest.Open(t, "sqlite:"+filepath.Join(dir, "mailstead.db"))
	fillDisk(t, d, free)
}

// On PostgreSQL the table with the bytes is on the small disk.
func TestDiskFullPostgres(t *testing.T) {
	server := serverFolder(t)
	dir, err := os.MkdirTemp(server, "small-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var owner syscall.Stat_t
	if err := syscall.Stat(filepath.Join(server, "data"), &owner); err != nil {
		t.Fatal(err)
	}
	smallDisk(t, dir, 12<<20, fmt.Sprintf(",mode=0700,uid=%d,gid=%d", owner.Uid, owner.Gid))
	free := ballast(t, dir)
	space := "small_" + strings.ToLower(rand.Text())
	admin := connect(t, dbtest.Server(t))
	exec(t, admin, fmt.Sprintf("CREATE TABLESPACE %s LOCATION '%s'", space, dir))
	t.Cleanup(func() { exec(t, admin, "DROP TABLESPACE "+space) })
	u := dbtest.Postgres(t)
	d := dbtest.Open(t, u)
	exec(t, connect(t, u), "ALTER TABLE blob SET TABLESPACE "+space)
	fillDisk(t, d, free)
}

func fillDisk(t *testing.T, d *db.DB, free func(leave int64)) {
	const callers = 40
	bytes := make([]byte, 65<<10)
	_, _ = rand.Read(bytes) // never fails; PostgreSQL would compress zeros
	var last error          // last error of a caller
	round := func() (stored, refused int) {
		var wg sync.WaitGroup
		ids, told := make([]db.ID, callers), make([]error, callers)
		committed := make([]int, callers)
		for i := range callers {
			ids[i] = d.NewID()
			size := (1 + i%5*16) << 10 // where a large one does not fit, a small one may
			add := []db.Statement{addAccount.With(ids[i], ids[i].String(), "A"), benchBlob.With(ids[i], size, 0, bytes[:size]), setName.With(ids[i], "B")}
			wg.Go(func() {
				if i%10 == 9 { // an ordinary transaction among the batchers' jobs
					told[i] = d.Tx(t.Context(), func(tx *db.Tx) error {
						tx.AfterCommit(func() { committed[i]++ })
						for _, s := range add {
							// A caller that goes on after an error must not
							// have half of its work stored either.
							_, _ = tx.Exec(t.Context(), s)
						}
						return nil
					})
					return
				}
				told[i] = d.Write(t.Context(), ids[i], &db.Mutation{
					Guard:       func(b *db.Batch) { b.Queue(add[0]) },
					Apply:       func(b *db.Batch) { b.Queue(add[1]); b.Queue(add[2]) },
					AfterCommit: func() { committed[i]++ },
				})
			})
		}
		wg.Wait()
		for i, id := range ids {
			var name string
			account, blob := d.One(t.Context(), nameOf.With(id), &name), d.One(t.Context(), blobSize.With(id), new(int64))
			want, once := error(nil), 1
			if told[i] != nil {
				want, once = db.ErrNoRow, 0
				refused++
				last = told[i]
			} else {
				stored++
			}
			if !errors.Is(account, want) || !errors.Is(blob, want) || committed[i] != once || (want == nil && name != "B") {
				t.Fatalf("caller %d was told %v; account %v (%q), blob %v, after commit %d times", i, told[i], account, name, blob, committed[i])
			}
		}
		return stored, refused
	}
	split, ballast := false, int64(ballastSize)
	for n := 0; ; n++ {
		stored, refused := round()
		split = split || (stored > 0 && refused > 0)
		if refused == callers && (split || n > 50) {
			break
		}
		if refused == callers { // the disk became full just at the end of a round
			ballast -= 400 << 10
			free(ballast)
		}
		if n > 100 {
			t.Fatal("the disk does not fill")
		}
	}
	if !split {
		t.Error("the disk did not fill within a round")
	}
	free(0)
	if stored, refused := round(); refused > 0 {
		t.Errorf("with room again %d were stored and %d refused: %v", stored, refused, last)
	}
}

// smallDisk mounts a tmpfs of size bytes over dir.
func smallDisk(t *testing.T, dir string, size int, options string) {
	t.Helper()
	needtest.Root(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d%s", size, options)); err != nil {
		t.Fatalf("mounting a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
}

const ballastSize = 6 << 20

// ballast fills the disk. The returned function frees all but leave bytes of that.
func ballast(t *testing.T, dir string) (free func(leave int64)) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), ballastSize), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(leave int64) {
		if err := os.Truncate(name, leave); err != nil {
			t.Fatal(err)
		}
	}
}

// serverFolder returns the folder of the server that script/with-postgres started.
func serverFolder(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(dbtest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := u.Query().Get("host")
	if _, err := os.Stat(filepath.Join(dir, "data")); dir == "" || err != nil {
		needtest.Missing(t, "this test puts a small disk under the PostgreSQL that script/with-postgres starts (unset MAILSTEAD_TEST_POSTGRES): %v", err)
	}
	return dir
}

func connect(t *testing.T, u string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}
