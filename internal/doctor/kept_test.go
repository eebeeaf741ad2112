// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/doctor"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
	"github.com/mailstead/mailstead/internal/webhook"
)

// kept is a service and its data, as the doctor sees it.
type kept struct {
	*doctor.Data
	url, dir string
	service  *servertest.Server
}

// each runs a test with a service on each engine, with the sandbox's domain.
func each(t *testing.T, f func(t *testing.T, k *kept)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) {
		k := &kept{url: url, dir: t.TempDir()}
		if strings.HasPrefix(url, "sqlite:") {
			k.url = "sqlite:" + filepath.Join(k.dir, "mailstead.db")
		}
		k.service = servertest.Start(t, servertest.Database(url), servertest.Data(k.dir))
		l, err := db.OpenInspector(t.Context(), db.InspectOptions{URL: k.url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		key, err := secret.ReadKey(filepath.Join(k.dir, "secret.key"))
		if err != nil {
			t.Fatal(err)
		}
		d := &doctor.Database{Inspector: l, Path: filepath.Join(k.dir, "mailstead.db"), Running: true, Now: time.Now}
		k.Data = &doctor.Data{Database: d, Blobs: filepath.Join(k.dir, "blobs"), Key: key, Host: k.service.Config.Host, Postmaster: k.service.Config.Postmaster}
		k.nodes(t)
		f(t, k)
	})
}

// nodes reloads the nodes.
func (k *kept) nodes(t *testing.T) {
	t.Helper()
	var err error
	if k.Nodes, err = lease.Nodes(t.Context(), k.Inspector); err != nil {
		t.Fatal(err)
	}
}

// later moves the doctor's clock ahead.
func (k *kept) later(d time.Duration) {
	k.Database.Now = func() time.Time { return time.Now().Add(d) }
}

// stop stops the service and opens its database for the test alone.
func (k *kept) stop(t *testing.T) *db.DB {
	t.Helper()
	if err := k.service.Stop(); err != nil {
		t.Fatal(err)
	}
	d, _ := leasetest.Open(t, k.url)
	k.nodes(t)
	return d
}

// A healthy service has no findings.
func TestHealthy(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		checks := map[string]func(context.Context, *doctor.Report){
			"clock": k.CheckClock, "nodes": k.CheckNodes, "key": k.CheckSecretKey, "files": k.CheckBlobFiles, "domains": k.CheckDomains,
			"queue": k.CheckQueue, "events": k.CheckEvents, "webhooks": k.CheckWebhooks,
		}
		if k.Engine() == db.SQLite {
			checks["log"], checks["whole"] = k.CheckWAL, k.CheckIntegrity
		} else {
			checks["server"] = k.CheckPostgres
		}
		for _, k.Deep = range []bool{false, true} {
			for name, check := range checks {
				t.Run(name, func(t *testing.T) { expect(t, check, doctor.OK, "") })
			}
		}
		s, err := k.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expect(t, k.schema(s), doctor.OK, "answers; schema version")
	})
}

func (k *kept) schema(s db.SchemaState) func(context.Context, *doctor.Report) {
	return func(_ context.Context, r *doctor.Report) { k.CheckSchema(r, s) }
}

func TestSchema(t *testing.T) {
	k := &kept{Data: &doctor.Data{Database: &doctor.Database{Inspector: &db.Inspector{}}}}
	expect(t, k.schema(db.SchemaState{Version: 41, Latest: 42, Missing: 1}), doctor.Warning, "of an older release: version 41 of 42")
	expect(t, k.schema(db.SchemaState{Version: 43, Latest: 42}), doctor.Error, "of a newer release: version 43")
	expect(t, k.schema(db.SchemaState{Latest: 42, Missing: 40}), doctor.OK, "is empty")
}

func TestWAL(t *testing.T) {
	d := &doctor.Database{Inspector: &db.Inspector{}, Path: filepath.Join(t.TempDir(), "mailstead.db")}
	expect(t, d.CheckWAL, doctor.OK, "is not there")
	log := write(t, 0o600, d.Path+"-wal")
	expect(t, d.CheckWAL, doctor.OK, "has 1 B")
	if err := os.Truncate(log, 256<<20); err != nil { // sparse
		t.Fatal(err)
	}
	expect(t, d.CheckWAL, doctor.Warning, "has 256 MB: ")
}

var pageOfBlobs = db.SQL(`SELECT rootpage FROM sqlite_schema WHERE name = 'blob'`)

// The check of everything finds an overwritten page.
func TestWhole(t *testing.T) {
	url := dbtest.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	o, err := db.Open(t.Context(), db.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	var page int64
	if err := o.One(t.Context(), pageOfBlobs.With(), &page); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("damage", 600)), (page-1)*4096); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := db.OpenInspector(t.Context(), db.InspectOptions{URL: url, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only read
	expect(t, (&doctor.Database{Inspector: l, Path: path}).CheckIntegrity, doctor.Error, "is damaged or can't be read: ")
}

// Problems that a test server can't have: each of these loses mail, or soon will.
func TestPostgres(t *testing.T) {
	good := db.PostgresState{Version: "17", Fsync: true, FullPageWrites: true, SynchronousCommit: "on", MaxConnections: 100, Reserved: 3, InUse: 10}
	verify := func(change func(*db.PostgresState), here bool) func(context.Context, *doctor.Report) {
		s := good
		change(&s)
		return func(_ context.Context, r *doctor.Report) { (&doctor.Database{Running: here}).ReportPostgres(r, s) }
	}
	expect(t, verify(func(*db.PostgresState) {}, false), doctor.OK, "87 of 100 connections left")
	expect(t, verify(func(s *db.PostgresState) { s.Fsync = false }, true), doctor.Error, "fsync is off")
	expect(t, verify(func(s *db.PostgresState) { s.SynchronousCommit = "off" }, true), doctor.Error, "synchronous_commit is off")
	expect(t, verify(func(s *db.PostgresState) { s.FullPageWrites = false }, true), doctor.Warning, "full_page_writes is off")
	expect(t, verify(func(s *db.PostgresState) { s.Standby = true }, true), doctor.Error, "standby")
	expect(t, verify(func(s *db.PostgresState) { s.InUse = 80 }, true), doctor.OK, "17 of 100")
	expect(t, verify(func(s *db.PostgresState) { s.InUse = 80 }, false), doctor.Warning, "17 of 100 connections left")
	expect(t, verify(func(s *db.PostgresState) { s.InUse = 97 }, true), doctor.Warning, "0 of 100 connections left")
}

func TestClock(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		if k.Engine() == db.Postgres {
			k.later(10 * time.Second)
			expect(t, k.CheckClock, doctor.Warning, " s apart: nodes that are alive")
			k.later(48 * time.Hour)
			expect(t, k.CheckClock, doctor.Error, "does not start")
		}
		k.later(-time.Hour)
		found := look(t, k.CheckClock)
		if found[0].Status != doctor.Error || !strings.Contains(found[0].Message, "before the newest mark in the database") {
			t.Errorf("%+v", found)
		}
	})
}

var (
	silence = db.SQL(`UPDATE lease SET expires_at = 1000000 WHERE expires_at > $1`)
	wound   = db.SQL(`DELETE FROM lease WHERE expires_at <= $1`)
)

func TestNodes(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		expect(t, k.CheckNodes, doctor.OK, "at work: dev")
		d := k.stop(t)
		dbtest.Exec(t, d, silence.With(0))
		k.nodes(t)
		expect(t, k.CheckNodes, doctor.Warning, "node test fell silent")
		dbtest.Exec(t, d, wound.With(int64(1)<<62))
		k.nodes(t)
		expect(t, k.CheckNodes, doctor.OK, "no node is at work; the last was seen")
	})
}

var (
	spoilKeys     = db.SQL(`UPDATE dkim_key SET private_key = $1 WHERE algorithm = 'rsa'`)
	spoilHostKey  = db.SQL(`UPDATE host_key SET private_key = $1`)
	swapHostKey   = db.SQL(`UPDATE host_key SET private_key = (SELECT private_key FROM dkim_key WHERE algorithm = 'rsa' LIMIT 1)`)
	forgetHostKey = db.SQL(`DELETE FROM host_key`)
)

func TestKey(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		right, dir := k.Key, t.TempDir()
		other, err := secret.LoadOrCreateKey(filepath.Join(dir, "secret.key"))
		if err != nil {
			t.Fatal(err)
		}
		k.Key = other
		expect(t, k.CheckSecretKey, doctor.Error, "used with another secret key")
		k.Key, k.KeyErr = nil, fs.ErrNotExist
		expect(t, k.CheckSecretKey, doctor.Error, "there is no secret key")
		k.KeyErr = os.ErrPermission
		expect(t, k.CheckSecretKey, doctor.Error, "permission denied")
		k.Key = right
		if _, err := k.service.Domains.HostDKIMKey(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, k.CheckSecretKey, doctor.OK, "opens")
		dbtest.Exec(t, k.service.DB, swapHostKey.With())
		expect(t, k.CheckSecretKey, doctor.Error, "can't sign reports and the service's own mail: its private half is not that of its record")
		dbtest.Exec(t, k.service.DB, spoilHostKey.With(other.Seal("dkim", []byte("another's"))))
		expect(t, k.CheckSecretKey, doctor.Error, "the DKIM key of "+k.Host+" can't sign")
		dbtest.Exec(t, k.service.DB, forgetHostKey.With())
		dbtest.Exec(t, k.service.DB, spoilKeys.With(other.Seal("dkim", []byte("another's"))))
		expect(t, k.CheckSecretKey, doctor.Error, "1 DKIM key can't be opened, among them ms1r-")
	})
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		expect(t, k.CheckBlobFiles, doctor.OK, "names none")
		for range 3 {
			b, err := k.service.Blobs.FromBytes(t.Context(), make([]byte, 100<<10))
			if err != nil {
				t.Fatal(err)
			}
			// Several recipients have a copy of each, with a header of its own.
			dbtest.Exec(t, k.service.DB, b.InsertStatement(), k.service.Blobs.Prepend(b, []byte("Received: here\r\n")).InsertStatement())
		}
		expect(t, k.CheckBlobFiles, doctor.OK, "the newest 3 ")
		files, err := filepath.Glob(filepath.Join(k.Blobs, "??", "*"))
		if err != nil || len(files) != 3 {
			t.Fatalf("%v, %v", files, err)
		}
		if err := os.Truncate(files[0], 17); err != nil {
			t.Fatal(err)
		}
		expect(t, k.CheckBlobFiles, doctor.Error, "of the newest 3, 0 missing and 1 of a wrong size, such as "+files[0])
		if err := os.Remove(files[1]); err != nil {
			t.Fatal(err)
		}
		k.Deep = true
		expect(t, k.CheckBlobFiles, doctor.Error, "of the newest 3, 1 missing and 1 of a wrong size")
		if err := os.Symlink(files[1], files[1]); err != nil { // unreadable
			t.Fatal(err)
		}
		expect(t, k.CheckBlobFiles, doctor.Error, "of the newest 3, 0 missing, 1 of a wrong size and 1 that can't be looked at: stat "+files[1])
		right := k.Blobs
		k.Blobs = t.TempDir()
		expect(t, k.CheckBlobFiles, doctor.Error, "are not in "+k.Blobs)
		k.Blobs = right
		noted := filepath.Join(k.Blobs, "database")
		if err := os.Rename(noted, noted+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(noted, []byte("ABC\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, k.CheckBlobFiles, doctor.Error, "the folder of another database")
		if err := os.Rename(noted+".away", noted); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(k.Blobs, "service"), []byte("0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, k.CheckBlobFiles, doctor.Error, "the folder of another service")
	})
}

var degrade = db.SQL(`UPDATE domain SET status = 'degraded' WHERE status <> $1`)

func TestDomains(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		expect(t, k.CheckDomains, doctor.OK, "1 verified")
		dbtest.Exec(t, k.service.DB, degrade.With("degraded"))
		expect(t, k.CheckDomains, doctor.Warning, "1 of 1 are degraded or failed: "+k.service.Dev.Domain.Name)
	})
}

// includes requires a finding with this status and text among those of a check.
func includes(t *testing.T, check func(context.Context, *doctor.Report), status doctor.Status, part string) {
	t.Helper()
	found := look(t, check)
	for _, f := range found {
		if f.Status == status && strings.Contains(f.Message, part) && (status == doctor.OK) == (f.Fix == "") {
			return
		}
	}
	t.Errorf("%+v, want %s with %q", found, status, part)
}

var suspend = db.SQL(`UPDATE account SET status = $2 WHERE id = $1`)

func TestPostmaster(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		ctx, s := t.Context(), k.service
		demo, alice, host := s.Dev.Domain.Name, s.Dev.Mailboxes[0].Address, "postmaster@"+k.Host+": "
		includes(t, k.CheckPostmaster, doctor.OK, host+"mailbox "+alice)
		includes(t, k.CheckPostmaster, doctor.OK, "postmaster@"+demo+": mailbox "+alice)
		k.Postmaster = "you@far.example"
		includes(t, k.CheckPostmaster, doctor.OK, host+"forwarded to you@far.example")
		k.Postmaster = "nobody@" + demo
		includes(t, k.CheckPostmaster, doctor.Warning, host+k.Postmaster+" is no mailbox here that takes mail; senders are told to try again (450)")
		k.Postmaster = ""
		includes(t, k.CheckPostmaster, doctor.Error, host+"nobody")
		k.Postmaster = alice
		box, err := s.Mailboxes.ByID(ctx, s.Dev.Mailboxes[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, s.DB, suspend.With(box.Account, "suspended"))
		includes(t, k.CheckPostmaster, doctor.Warning, host+alice+" is no mailbox here that takes mail")
		dbtest.Exec(t, s.DB, suspend.With(box.Account, "active"))

		// An account without mailboxes, first without an owner.
		acc, err := s.Accounts.Create(ctx, "other@far.example", "")
		if err != nil {
			t.Fatal(err)
		}
		held := func(n int) {
			t.Helper()
			for i := range n {
				d, err := s.Domains.Create(ctx, acc.ID, fmt.Sprintf("other%d.test", i))
				if err == nil {
					_, err = s.Domains.CheckDNS(ctx, acc.ID, d.ID)
				}
				if err != nil && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
			}
		}
		held(1)
		includes(t, k.CheckPostmaster, doctor.Warning, "postmaster@other0.test: nobody; the mail is refused (550)")
		held(5)
		includes(t, k.CheckPostmaster, doctor.Warning, "postmaster@other0.test, postmaster@other1.test, postmaster@other2.test and 2 more: nobody")
		if _, err := s.Users.Create(ctx, user.CreateParams{Email: "eve@far.example", Name: "Eve", Password: "Correct-horse-7"}, acc.ID); err != nil {
			t.Fatal(err)
		}
		includes(t, k.CheckPostmaster, doctor.OK, "postmaster@other4.test: the account's owner eve@far.example")
		held(20)
		includes(t, k.CheckPostmaster, doctor.OK, "1 domain has a mailbox or alias for it, 20 have their owner")
		if found := look(t, k.CheckPostmaster); len(found) != 2 {
			t.Errorf("of many domains: %+v", found)
		}
	})
}

var waits = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at, expires_at, lease, attempts,
		sequence, code, enhanced, reply, remote_host, updated_at)
	VALUES ($1, 0, 1, 'a@example.org', 'to', 'example.org', 'queued', $2, $2, $3, 0, 0, 0, '', '', '', 0)`)

func TestQueue(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		expect(t, k.CheckQueue, doctor.OK, "0 deliveries wait")
		d := k.stop(t)
		dbtest.Exec(t, d, waits.With(1, db.Micros(time.Now()), nil), waits.With(2, db.Micros(time.Now()), 0))
		expect(t, k.CheckQueue, doctor.OK, "1 delivery waits, 1 is held, the longest due for ")
		k.later(time.Hour)
		expect(t, k.CheckQueue, doctor.Error, ", and nothing is being delivered: the queue stands still")
		dbtest.Exec(t, d, waits.With(3, db.Micros(time.Now()), int64(k.Nodes[0].LeaseID)))
		k.nodes(t)
		expect(t, k.CheckQueue, doctor.Warning, "the queue lags")
		dbtest.Exec(t, d, silence.With(0))
		k.nodes(t)
		expect(t, k.CheckQueue, doctor.Warning, "no node is at work")
	})
}

var happened = db.SQL(`INSERT INTO event (id, account, kind, message, data, created_at) VALUES ($1, 1, 'bounce', 0, '{}', 0)`)

func TestEvents(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		servertest.Eventually(t, func() string { // the service numbers those of its start
			var r doctor.Report
			k.CheckEvents(t.Context(), &r)
			if findings := fmt.Sprint(r); !strings.Contains(findings, "0 events are to be numbered") {
				return findings
			}
			return ""
		})
		d := k.stop(t)
		expect(t, k.CheckEvents, doctor.OK, "0 events are to be numbered")
		dbtest.Exec(t, d, happened.With(d.NewID()))
		expect(t, k.CheckEvents, doctor.OK, "1 event is to be numbered")
		k.later(10 * time.Minute)
		expect(t, k.CheckEvents, doctor.Warning, " min: webhooks and streams don't hear of them")
	})
}

var giveUp = db.SQL(`UPDATE webhook SET status = 'disabled', reason = $1 WHERE status = 'enabled' OR status = 'disabled'`)

func TestWebhooks(t *testing.T) {
	each(t, func(t *testing.T, k *kept) {
		acc, err := k.service.Accounts.ByEmail(t.Context(), k.service.Dev.Dashboard.Email)
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := k.service.Webhooks.Create(t.Context(), acc.ID, webhook.Spec{URL: "http://127.0.0.1:8080/hook", Kinds: []string{webhook.AllKinds}})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, k.CheckWebhooks, doctor.OK, "1 webhook, none")
		dbtest.Exec(t, k.service.DB, giveUp.With(webhook.ReasonManual))
		expect(t, k.CheckWebhooks, doctor.OK, "1 webhook, none")
		dbtest.Exec(t, k.service.DB, giveUp.With(webhook.ReasonFailing))
		expect(t, k.CheckWebhooks, doctor.Warning, "1 of 1 were disabled because they failed, such as "+w.ID.String())
	})
}
