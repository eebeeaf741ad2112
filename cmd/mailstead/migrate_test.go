// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The command copies a mailbox, tells how it went, and leaves nothing of the
// password behind.
func TestMigrate(t *testing.T) {
	s := servertest.Start(t)
	from, to := s.Dev.Mailboxes[0], s.Dev.Mailboxes[1]
	host, port, err := net.SplitHostPort(s.Addr("imaps"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(from.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(more ...string) (string, error) {
		args := append([]string{"migrate", "--mailbox", strings.ToUpper(to.Address), "--source-host", host, "--source-port", port, "--source-user", from.Address,
			"--url", s.Dev.BaseURL, "--key", s.Dev.APIKey}, more...)
		text, err := command(t, nil, args...).CombinedOutput()
		return string(text), err
	}
	text, err := run("--source-insecure", "--source-password-file", file)
	if err != nil || !strings.Contains(text, "completed: ") || strings.Contains(text, from.Password) {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = run("--source-password-file", file); err == nil || !strings.Contains(text, "the migration was not completed: The certificate of the source") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = run(); err == nil || !strings.Contains(text, "password is missing") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = run("--mailbox", "nobody@demo.test", "--source-password-file", file); err == nil || !strings.Contains(text, "no mailbox with this address") {
		t.Errorf("%v\n%s", err, text)
	}
}
