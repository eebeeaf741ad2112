// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	anAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, $3, 'active', 7)`)
	aBlob     = db.SQL(`INSERT INTO blob (id, size, file, bytes) VALUES ($1, 3, 0, $2)`)
	aPerson   = db.SQL(`INSERT INTO dashboard_user (id, email, name, password, totp, created_at) VALUES ($1, $2, '', '', $3, 0)`)
	aDomain   = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at, next_check_at,
			checks, mismatch_since, contested_since, verified_at, created_at)
		VALUES ($1, $2, $3, 'pending', TRUE, '', FALSE, TRUE, FALSE, '{}', 0, 0, 0, 0, 0, 0, 0)`)
)

// everyRow reads every row of a SQLite file, as text, in a fixed order.
func everyRow(t *testing.T, path string) map[string][]string {
	t.Helper()
	file, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // only read
	all := map[string][]string{}
	var joined string
	if err := file.QueryRow(`SELECT GROUP_CONCAT(name) FROM sqlite_master
		WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'schema_migration'`).Scan(&joined); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(joined, ",") {
		rows, err := file.Query(`SELECT * FROM "` + name + `"`)
		if err != nil {
			t.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range into {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], fmt.Sprintf("%#v", values))
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(all[name])
	}
	return all
}

// A snapshot of either engine, loaded into PostgreSQL, and a snapshot of that are the same.
func TestSnapshotAndLoad(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		account, other := d.NewID(), d.NewID()
		dbtest.Exec(t, d,
			anAccount.With(account, "a@shop.test", "Zoë 🐎 'quoted' \"twice\" \\ and\nmore"), anAccount.With(other, "b@shop.test", ""),
			aDomain.With(d.NewID(), account, "shop.test"),
			aBlob.With(d.NewID(), []byte{0, 0xff, '\n', 'x', 0}), aBlob.With(d.NewID(), []byte{}), aBlob.With(d.NewID(), []byte(strings.Repeat("long\r\n", 9000))),
			aPerson.With(d.NewID(), "p@shop.test", nil), aPerson.With(d.NewID(), "q@shop.test", []byte{1, 0}))
		for n := range 131 { // more than one statement inserts
			dbtest.Exec(t, d, aBlob.With(d.NewID(), bytes.Repeat([]byte{byte(n)}, 300_000*(n%50/49)+n)))
		}
		if err := d.BindSecretKey(t.Context(), "fingerprint"); err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(t.TempDir(), "first.db")
		if err := db.Snapshot(t.Context(), url, first); err != nil {
			t.Fatal(err)
		}
		to := dbtest.EmptyPostgres(t)
		if err := db.CopyToPostgres(t.Context(), first, to); err != nil {
			t.Fatal(err)
		}
		second := filepath.Join(t.TempDir(), "second.db")
		if err := db.Snapshot(t.Context(), to, second); err != nil {
			t.Fatal(err)
		}
		one, two := everyRow(t, first), everyRow(t, second)
		if len(one["account"]) != 2 || len(one["blob"]) != 134 || len(one["dashboard_user"]) != 2 {
			t.Errorf("the first snapshot holds %d accounts, %d blobs and %d people", len(one["account"]), len(one["blob"]), len(one["dashboard_user"]))
		}
		delete(one, "server_incarnation") // belongs to the server
		delete(two, "server_incarnation")
		for name := range one {
			if !reflect.DeepEqual(one[name], two[name]) {
				t.Errorf("%s:\n%q\nhas become\n%q", name, one[name], two[name])
			}
		}
		if len(one) != len(two) {
			t.Errorf("%d tables with rows have become %d", len(one), len(two))
		}

		var already *fault.Error
		if err := db.CopyToPostgres(t.Context(), first, to); !errors.As(err, &already) || already.Kind != fault.Conflict {
			t.Errorf("loaded into a service's database: %v", err)
		}
		// What was loaded is a database like any other.
		loaded := dbtest.Open(t, to)
		dbtest.Exec(t, loaded, anAccount.With(loaded.NewID(), "c@shop.test", ""))
	})
}

var (
	someEvents = db.SQL(`INSERT INTO event (id, position, account, kind, message, data, created_at, recipient)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT i, i, 7, 'bounce', 0, '', i, 'recipient-' || ((i * 48271) % 65521) || '@a-long-name.of-a-domain.shop.test' FROM n`)
	someRows = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT (i * 48271) % 97, i, (i * 48271) % 65521, 0, '', 1, 2000, i, i FROM n`)
)

// A snapshot is written in bulk: rows in the order of their keys, and each index from a sorted
// list, so that no page stays half empty. Its schema is that of the migrations.
func TestSnapshotIsPacked(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		dbtest.Exec(t, d, someEvents.With(1, 6_000), someRows.With(1, 6_000))
		folder := t.TempDir()
		path, packed := filepath.Join(folder, "snapshot.db"), filepath.Join(folder, "packed.db")
		if err := db.Snapshot(t.Context(), url, path); err != nil {
			t.Fatal(err)
		}
		if err := db.CheckSnapshot(t.Context(), path); err != nil {
			t.Error(err)
		}
		if err := db.Snapshot(t.Context(), "sqlite:"+path, packed); err != nil {
			t.Fatal(err)
		}
		var size [2]int64
		for i, path := range []string{path, packed} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size[i] = info.Size()
		}
		if size[0] > size[1]*102/100 {
			t.Errorf("it has %d bytes, of which %d would be enough", size[0], size[1])
		}
	})
}

// A cancelled snapshot ends, even while it waits for a lock.
func TestSnapshotEnds(t *testing.T) {
	url := dbtest.Postgres(t)
	d := dbtest.Open(t, url)
	dbtest.Exec(t, d, someEvents.With(1, 2_000))
	// It waits at a table that it reads after others.
	conn := plannerConn(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // nothing was written
	if _, err := tx.Exec(t.Context(), `LOCK TABLE webhook IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- db.Snapshot(ctx, url, filepath.Join(t.TempDir(), "snapshot.db")) }()
	for waits := false; !waits; {
		if err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'webhook'::regclass)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// SQLite accepts texts that PostgreSQL rejects.
func TestLoadOddTexts(t *testing.T) {
	url := dbtest.SQLite(t)
	d := dbtest.Open(t, url)
	dbtest.Exec(t, d, anAccount.With(d.NewID(), "a@shop.test", "nul\x00 and \xff"), anAccount.With(d.NewID(), "b@shop.test", []byte("bytes")))
	path := filepath.Join(t.TempDir(), "snapshot.db")
	to := dbtest.EmptyPostgres(t)
	if err := errors.Join(db.Snapshot(t.Context(), url, path), db.CopyToPostgres(t.Context(), path, to)); err != nil {
		t.Fatal(err)
	}
	loaded := dbtest.Open(t, to)
	names, err := db.All(t.Context(), loaded, db.SQL(`SELECT name FROM account ORDER BY email`).With(), func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if want := []string{"nul\uFFFD and \uFFFD", "bytes"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v; want %q", names, err, want)
	}
}

// A snapshot is consistent, even during many writes.
func TestSnapshotIsOfOneMoment(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d := dbtest.Open(t, url)
		ctx, stop := context.WithCancel(t.Context())
		written := make(chan struct{}, 1)
		ended := make(chan error, 1)
		go func() {
			var err error
			for n := 0; ctx.Err() == nil && err == nil; n++ {
				err = d.Tx(context.Background(), func(tx *db.Tx) error {
					_, first := tx.Exec(context.Background(), anAccount.With(d.NewID(), fmt.Sprintf("%d@shop.test", n), ""))
					_, second := tx.Exec(context.Background(), aPerson.With(d.NewID(), fmt.Sprintf("%d@shop.test", n), nil))
					return errors.Join(first, second)
				})
				select {
				case written <- struct{}{}:
				default:
				}
			}
			ended <- err
		}()
		next := func() {
			select {
			case <-written:
			case err := <-ended:
				t.Fatal("writing ended: ", err)
			}
		}
		next()
		for i := range 5 {
			path := filepath.Join(t.TempDir(), fmt.Sprint(i, ".db"))
			if err := db.Snapshot(t.Context(), url, path); err != nil {
				t.Fatal(err)
			}
			if all := everyRow(t, path); len(all["account"]) == 0 || len(all["account"]) != len(all["dashboard_user"]) {
				t.Errorf("%d of one and %d of the other, which were written together", len(all["account"]), len(all["dashboard_user"]))
			}
			next()
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A migration during a snapshot, which may rewrite a table, does not make the snapshot lose its
// rows.
func TestSnapshotBesideMigration(t *testing.T) {
	url := dbtest.Postgres(t)
	d := dbtest.Open(t, url)
	dbtest.Exec(t, d, anAccount.With(d.NewID(), "a@shop.test", ""), aPerson.With(d.NewID(), "p@shop.test", nil))
	conn := plannerConn(t, url)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // committed
	if _, err := tx.Exec(t.Context(), `ALTER TABLE dashboard_user ALTER COLUMN name TYPE VARCHAR(300)`); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	taken := make(chan error, 1)
	go func() { taken <- db.Snapshot(context.Background(), url, path) }()
	for waits := false; !waits; {
		if err := tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted
			AND relation = 'dashboard_user'::regclass)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if len(taken) > 0 {
			t.Fatal("it was taken without the table: ", <-taken)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if all := everyRow(t, path); len(all["dashboard_user"]) != 1 || len(all["account"]) != 1 {
		t.Errorf("the snapshot holds %q and %q", all["account"], all["dashboard_user"])
	}
}

// Snapshot does not overwrite an existing file, and does not copy a database without a service.
func TestSnapshotRefuses(t *testing.T) {
	dbtest.EachEmptyURL(t, func(t *testing.T, url string) {
		path := filepath.Join(t.TempDir(), "snapshot.db")
		if err := db.Snapshot(t.Context(), url, path); err == nil {
			t.Error("a snapshot of a database without a service")
		}
		dbtest.Open(t, url)
		if err := db.Snapshot(t.Context(), url, path); err == nil {
			t.Error("a snapshot over a file that was there")
		}
	})
}
