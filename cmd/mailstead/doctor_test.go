// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// doctorRun is the JSON output of doctor.
type doctorRun struct {
	Checks []struct {
		Status, Check, Message, Fix string
	}
	Errors, Warnings int
}

// examine runs doctor, and checks that the exit status matches the report.
func examine(t *testing.T, env []string, args ...string) (e doctorRun) {
	t.Helper()
	status, out, stderr := run(t, env, append([]string{"doctor", "--json"}, args...)...)
	if strings.Contains(stderr, "hunter2") {
		t.Errorf("a secret is told: %s", stderr)
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	want := 0
	if e.Errors > 0 {
		want = 1
	}
	if status != want || (want == 1) != (strings.Count(stderr, "\n") == 1) {
		t.Errorf("status %d, %q, with %d errors", status, stderr, e.Errors)
	}
	return e
}

// expect requires a finding with this status and text.
func (e doctorRun) expect(t *testing.T, check, status, says string) {
	t.Helper()
	for _, c := range e.Checks {
		if c.Check == check && c.Status == status && strings.Contains(c.Message, says) {
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", status, check, says, e.Checks)
}

// well requires no errors, and no warnings except from these checks.
func (e doctorRun) well(t *testing.T, but ...string) {
	t.Helper()
	for _, c := range e.Checks {
		if c.Status == "error" || c.Status == "warning" && !slices.Contains(but, c.Check) {
			t.Errorf("%+v", c)
		}
	}
}

const doctorHost = "mail.example.com"

// A healthy service has no errors, running, stopped or killed. The checks change nothing.
func TestDoctor(t *testing.T) {
	resolver, _ := dnstest.Start(t, doctorHost+". A 127.0.0.1")
	dbtest.EachURL(t, func(t *testing.T, url string) {
		data := t.TempDir()
		settings := []string{"--data", data, "--host", doctorHost, "--tls", "self-signed", "--resolver", resolver}
		if strings.HasPrefix(url, "postgres") {
			settings = append(settings, "--database", url)
		}
		if err := os.Chmod(data, 0o700); err != nil {
			t.Fatal(err)
		}
		// The test service has only local addresses, and the disk's state depends on the machine.
		but := []string{"host name", "DNS records", "listening address", "certificate", "disk"}
		base := servertest.FreePortBase(t)
		fresh := append([]string{"--bind", "127.0.0.1", "--port-base", fmt.Sprint(base)}, settings...)
		examine(t, nil, fresh...).well(t, but...)
		if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
			t.Errorf("before the first start: %v, %v", left, err)
		}

		s := serve(t, nil, settings...)
		here := append([]string{"--bind", "127.0.0.1", "--port-base", fmt.Sprint(s.base)}, settings...)
		e := examine(t, nil, here...)
		e.well(t, but...)
		e.expect(t, "service", "ok", fmt.Sprintf("process %d", s.Process.Pid))
		e.expect(t, "smtp", "ok", "greets")
		e.expect(t, "https", "ok", "greets")
		status, out, stderr := run(t, nil, append([]string{"doctor", "--deep"}, here...)...)
		if status != 0 || stderr != "" || !strings.Contains(out, "\nok       nodes ") || !strings.Contains(out, "\n0 errors, ") {
			t.Errorf("status %d, %q\n%s", status, stderr, out)
		}
		s.stop()
		unchanged(t, data, url, func() {
			e := examine(t, nil, append(here, "--deep")...)
			e.well(t, but...)
			e.expect(t, "service", "ok", "stopped")
			e.expect(t, "smtp", "ok", "is free")
		})

		s = serve(t, nil, settings...)
		if err := s.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = s.Wait() // it was killed
		unchanged(t, data, url, func() {
			e := examine(t, nil, here...)
			e.well(t, append(but, "nodes")...) // once its lease has expired
			e.expect(t, "service", "ok", "stopped")
		})
	})
}

// unchanged checks that do leaves the data directory, and the rows of a PostgreSQL database,
// unchanged.
func unchanged(t *testing.T, data, url string, do func()) {
	t.Helper()
	before := state(t, data, url)
	do()
	after := state(t, data, url)
	for name, sum := range after {
		if before[name] != sum {
			t.Errorf("changed or made: %s", name)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d before, %d after", len(before), len(after))
	}
}

func state(t *testing.T, data, url string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			all[path] = "folder"
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%v %v %x", info.Mode(), info.ModTime(), sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(url, "postgres") {
		return all
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // nothing to lose
	rows, err := conn.Query(t.Context(), `SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, name := range tables {
		var sum string
		if err := conn.QueryRow(t.Context(), `SELECT COALESCE(md5(string_agg(x::text, '' ORDER BY x::text)), '') FROM `+name+` AS x`).Scan(&sum); err != nil {
			t.Fatal(err)
		}
		all["table "+name] = sum
	}
	return all
}

var newerRelease = db.SQL(`INSERT INTO schema_migration (version_id, is_applied) VALUES (99999, true)`)

// Problems of a service, and how doctor reports them.
func TestDoctorTrouble(t *testing.T) {
	resolver, zone := dnstest.Start(t, doctorHost+". A 127.0.0.1")
	data := t.TempDir()
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := []string{"--host", doctorHost, "--tls", "self-signed", "--resolver", resolver}
	s := serve(t, nil, append(settings, "--data", data)...)
	port := []string{"--bind", "127.0.0.1", "--port-base", fmt.Sprint(s.base)}
	at := append(append(settings, "--data", data), port...)

	// With other settings than the running service.
	examine(t, nil, append(at, "--port-base", fmt.Sprint(servertest.FreePortBase(t)))...).expect(t, "smtp", "error", "nothing answers")
	examine(t, nil, append(at, "--host", "other.example.com")...).expect(t, "smtp", "warning", "greets by another name")
	other := examine(t, nil, append(at, "--data", filepath.Join(t.TempDir(), "new"))...)
	other.expect(t, "service", "warning", "not on the data folder")
	other.expect(t, "data folder", "warning", "is not there")
	s.stop()

	for _, c := range []struct {
		what                string
		args                []string
		check, status, says string
	}{
		{"another key", []string{"--secret-key", strings.Repeat("ab", 32)}, "secret key", "error", "another secret key"},
		{"a key that is none", []string{"--secret-key", "hunter2"}, "settings", "error", "secret key: must be 32 bytes"},
		{"no host", []string{"--host", "not a name"}, "settings", "error", "--host must be"},
		{"a certificate that is not there", []string{"--tls", "/nowhere/c.pem,/nowhere/k.pem"}, "certificate", "error", "there is none"},
		{"no certificate yet", []string{"--tls", "acme"}, "certificate", "warning", "yet"},
		{"what is no kind of certificate", []string{"--tls", "none"}, "settings", "error", "--tls must be"},
		{"another server's password", []string{"--database", "postgres://me:hunter2@127.0.0.1:1/x"}, "database", "error", "refused"},
		{"a relay that is away", []string{"--relay", "smtp://me:hunter2@127.0.0.1:1"}, "relay", "error", "refused"},
		{"a relay that can't be", []string{"--relay", "smtp://me:hunter2@relay.example.com"}, "settings", "error", "--relay must look like"},
		{"a probe of nothing", []string{"--probe", "nowhere.example.com"}, "mail to nowhere.example.com", "error", "does not exist"},
		{"a probe that is none", []string{"--probe", "?"}, "settings", "error", "--probe must be"},
		{"filters that are away", []string{"--rspamd", "http://127.0.0.1:1", "--clamav", "127.0.0.1:1", "--spam-fail", "closed"}, "clamd", "error", "refused"},
		{"an address of another machine", []string{"--bind", "192.0.2.7"}, "listening address", "error", "no address of this machine"},
		{"a resolver that is away", []string{"--resolver", "127.0.0.1:1"}, "resolver", "error", "no answer from 127.0.0.1:1"},
		{"a postmaster elsewhere", []string{"--postmaster", "root@example.com"}, "postmaster", "ok", "postmaster@" + doctorHost + ": forwarded to root@example.com"},
		{"no postmaster", []string{"--postmaster", ""}, "settings", "error", "mailstead serve does not start: --postmaster is required"},
		{"an empty folder of large messages", []string{"--blobs", t.TempDir()}, "large messages", "ok", "names none"},
	} {
		t.Run(c.what, func(t *testing.T) {
			e := examine(t, nil, append(at, c.args...)...)
			e.expect(t, c.check, c.status, c.says)
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, "hunter2") || strings.Contains(text, "abababab") {
				t.Errorf("a secret is told: %s", text)
			}
		})
	}

	key := filepath.Join(data, "secret.key")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	examine(t, nil, at...).expect(t, "secret key", "error", key+": others may read it (mode 0644)")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	examine(t, nil, at...).expect(t, "secret key", "error", "there is no secret key")

	l, err := net.Listen("tcp", s.addr(25))
	if err != nil {
		t.Fatal(err)
	}
	examine(t, nil, at...).expect(t, "smtp", "error", "is taken by another program")
	_ = l.Close()

	t.Run("newer release", func(t *testing.T) { // the program still has the database open
		d, _ := leasetest.Open(t, "sqlite:"+filepath.Join(data, "mailstead.db"))
		examine(t, nil, at...).expect(t, "nodes", "ok", "no node is at work")
		dbtest.Exec(t, d, newerRelease.With())
		examine(t, nil, at...).expect(t, "database", "error", "of a newer release: version 99999")
	})

	zone.NXDomain(doctorHost)
	examine(t, nil, at...).expect(t, "host name", "error", "has no address")
	if err := os.Truncate(filepath.Join(data, "mailstead.db"), 4096); err != nil {
		t.Fatal(err)
	}
	examine(t, nil, at...).expect(t, "database", "error", "can't be looked at")
}

// doctor accepts serve's settings file, and its own flags are not settings.
func TestDoctorSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mailstead.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("host = \"file.example.com\"\ntls = \"self-signed\"\nport_base = 20000\ndata = \"" + filepath.Join(t.TempDir(), "data") + "\"\n")
	examine(t, nil, "--config", file).expect(t, "settings", "ok", "those of file.example.com")
	examine(t, []string{"MAILSTEAD_HOST=variable.example.com", "MAILSTEAD_CONFIG=" + file}).expect(t, "settings", "ok", "those of variable.example.com")
	write("deep = true\n")
	refused(t, `a setting "deep" that does not exist`, nil, "doctor", "--config", file)
}
