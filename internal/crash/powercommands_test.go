// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The power fails as soon as a command has reported success. Everything that it wrote exists,
// including new directories.
func TestPowerAfterCommands(t *testing.T) {
	eachDisk(t, func(t *testing.T, d *disk, r *rand.Rand) {
		s := newService(t, filepath.Join(d.dir, "new", "data"), dbtest.NoSQLite(t))
		s.Start()
		l := newLedger()
		s.fill(l, "mail", r)
		s.settle(l)
		all := s.read()
		alice, bob := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]

		mbox, maildir := filepath.Join(d.dir, "alice.mbox"), filepath.Join(d.dir, "alice")
		s.run("export", "--mailbox", alice.Address, mbox)
		s.losePower(d)
		s.Start()
		s.run("export", "--mailbox", alice.Address, "--format", "maildir", maildir)
		s.losePower(d)
		s.Start()
		if again := s.read(); !maps.EqualFunc(all, again, maps.Equal) {
			t.Errorf("two losses of power later: %v, before: %v", again, all)
		}

		backup := filepath.Join(d.dir, "backups", "of", "today")
		s.run("backup", backup)
		s.losePower(d)
		restored := newService(t, filepath.Join(d.dir, "restored", "data"), dbtest.NoSQLite(t))
		restored.run("restore", backup)
		d.cut()
		d.restart(t, func() {})
		restored.Start()
		if again := restored.read(); !maps.EqualFunc(all, again, maps.Equal) {
			t.Errorf("restored: %v, before: %v", again, all)
		}

		for i, path := range []string{mbox, maildir} {
			folder := fmt.Sprintf("Imported%d", i)
			restored.run("import", "--mailbox", bob.Address, "--folder", folder, path)
			restored.losePower(d)
			restored.Start()
			restored.holds(folder, len(all[alice.Address]))
		}
		restored.migrate()
		restored.losePower(d)
		restored.Start()
		restored.holds("INBOX", len(all[alice.Address])+len(all[bob.Address]))
		restored.Stop()
		restored.examine()
	})
}

// fill submits some mail of every kind.
func (s *service) fill(l *ledger, name string, r *rand.Rand) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	wait := s.load(ctx, l, name, r.Uint64(), 3)
	servertest.Eventually(s.t, func() string {
		if n := l.count(); n < 50 {
			return fmt.Sprintf("only %d messages were acknowledged", n)
		}
		return ""
	})
	cancel()
	wait()
}

// migrate copies alice's mailbox into bob's, over IMAP.
func (s *service) migrate() {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), binary, "migrate", "--data", s.Data, "--mailbox", s.Dev.Mailboxes[1].Address,
		"--source-host", "127.0.0.1", "--source-port", fmt.Sprint(s.Dev.Ports["imaps"]), "--source-insecure",
		"--source-user", s.Dev.Mailboxes[0].Address)
	cmd.Env = append(cmd.Environ(), "MAILSTEAD_SOURCE_PASSWORD="+s.Dev.Mailboxes[0].Password)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("mailstead migrate: %v\n%s", err, out)
	}
}

// holds checks the number of messages in one of bob's folders.
func (s *service) holds(folder string, want int) {
	s.t.Helper()
	c := s.imap(1, nil)
	defer c.Close() //nolint:errcheck // only read
	in, err := c.Select(folder, nil).Wait()
	if err != nil {
		s.t.Fatalf("%s: %v", folder, err)
	}
	if int(in.NumMessages) != want {
		s.t.Errorf("%s holds %d messages, not %d", folder, in.NumMessages, want)
	}
}
