// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mailstead-cmd-")
	if err == nil {
		binary, err = servertest.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// command returns a call of the program with its own environment.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // in case it doesn't end
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, binary, args...)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "MAILSTEAD_POSTMASTER=" + servertest.OperatorAddress}, env...)
	return c
}

// run runs the program until it ends.
func run(t *testing.T, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c := command(t, env, args...)
	c.Stdout, c.Stderr = &out, &errs
	var ended *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// refused requires exit status 1 and one line with the reason.
func refused(t *testing.T, why string, env []string, args ...string) {
	t.Helper()
	status, _, stderr := run(t, env, args...)
	if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "mailstead: ") || !strings.Contains(stderr, why) {
		t.Errorf("%v %v: status %d, %q; want status 1 and one line with %q", env, args, status, stderr, why)
	}
}

// service is a running `mailstead serve`.
type service struct {
	*exec.Cmd
	t     *testing.T
	base  int
	ready string // log line
	errs  *bufio.Scanner
}

// serve starts the service and waits until it is ready.
func serve(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	s := &service{t: t, base: servertest.FreePortBase(t)}
	s.Cmd = command(t, env, append([]string{"serve", "--bind", "127.0.0.1", "--port-base", fmt.Sprint(s.base)}, args...)...)
	errs, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill() })
	s.errs = bufio.NewScanner(errs)
	for s.errs.Scan() {
		if strings.Contains(s.errs.Text(), "msg=ready") {
			s.ready = s.errs.Text()
			return s
		}
		t.Log(s.errs.Text())
	}
	t.Fatalf("it ended: %v", s.Wait())
	return nil
}

// stop stops the service like an operator, and checks its exit status.
func (s *service) stop() {
	s.t.Helper()
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	for s.errs.Scan() {
		if strings.Contains(s.errs.Text(), "level=ERROR") {
			s.t.Error(s.errs.Text())
		}
	}
	if err := s.Wait(); err != nil {
		s.t.Errorf("after SIGTERM: %v", err)
	}
}

func (s *service) addr(port int) string { return fmt.Sprintf("127.0.0.1:%d", s.base+port) }

// kebab returns a setting's name as a flag.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' && i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z') {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// The help of serve documents each setting with its default and its variable.
func TestHelp(t *testing.T) {
	status, help, _ := run(t, nil, "serve", "--help")
	if status != 0 {
		t.Fatalf("status %d", status)
	}
	help = strings.Join(strings.Fields(help), " ")
	config := reflect.TypeFor[server.Config]()
	for i := range config.NumField() {
		f := config.Field(i)
		if f.Tag.Get("kong") == "-" {
			continue
		}
		name := f.Tag.Get("name")
		if name == "" {
			name = kebab(f.Name)
		}
		want := "$MAILSTEAD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + ")."
		if value := f.Tag.Get("default"); value != "" {
			want = "(default " + value + "; " + want
		}
		if f.Tag.Get("help") == "" || !strings.Contains(help, "--"+name) || !strings.Contains(help, want) {
			t.Errorf("the help lacks --%s with %q", name, want)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "mailstead.toml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := []string{"serve", "--host", "mail.example.com", "--data", dir, "--bind", "127.0.0.1", "--port-base", fmt.Sprint(servertest.FreePortBase(t)), "--tls", "self-signed"}
	for _, c := range []struct {
		why  string
		env  []string
		args []string
	}{
		{"--host", nil, []string{"--host", "not a name"}},
		{"--bind", nil, []string{"--bind", "here"}},
		{"--port-base", nil, []string{"--port-base", "65000"}},
		{"--port-base", nil, []string{"--port-base", "x"}},
		{"--database", nil, []string{"--database", "mysql://x"}},
		{"--blobs", nil, []string{"--blobs", "s3://bucket"}},
		{"--tls", nil, []string{"--tls", "none"}},
		{"no such file", nil, []string{"--tls", "/no/cert.pem,/no/key.pem"}},
		{"--resolver", nil, []string{"--resolver", "192.0.2.1"}},
		{"--relay", nil, []string{"--relay", "http://user:secret@host:25"}},
		{"--smtp-port", nil, []string{"--smtp-port", "0"}},
		{"--allow-private", nil, []string{"--allow-private", "10.0.0.1/99"}},
		{"--postmaster must be an e-mail address", nil, []string{"--postmaster", "nobody"}},
		{"--postmaster is required: give the operator's e-mail address", []string{"MAILSTEAD_POSTMASTER="}, nil},
		{"--postmaster is required", nil, []string{"--postmaster", ""}},
		{"--postmaster must not be at mail.example.com", nil, []string{"--postmaster", "root@Mail.Example.Com"}},
		{"--postmaster must not be at bounces.mail.example.com", nil, []string{"--postmaster", "root@bounces.mail.example.com"}},
		{"secret key", nil, []string{"--secret-key", "short"}},
		{"--max-quota-mb", nil, []string{"--max-quota-mb", "0"}},
		{"--keep-messages", nil, []string{"--keep-messages", "6"}},
		{"--keep-attempts", nil, []string{"--keep-attempts", "-1"}},
		{"--keep-threads", nil, []string{"--keep-threads", "40000"}},
		{"--keep-events", nil, []string{"--keep-events", "9"}},
		{"--drain", nil, []string{"--drain", "soon"}},
		{"--drain", nil, []string{"--drain", "0s"}},
		{"--lease", nil, []string{"--lease", "1s"}},
		{"--lease", nil, []string{"--lease", "1h"}},
		{"--database-connections must be from 12", nil, []string{"--database-connections", "11"}},
		{"--database-wait must be from 1s to 1m", nil, []string{"--database-wait", "100ms"}},
		{"--resolver names the server of all names", nil, []string{"--resolver-for", ".=127.0.0.1:53"}},
		{"--resolver-for names two servers of corp.test", nil, []string{"--resolver-for", "corp.test=127.0.0.1:53,Corp.Test.=127.0.0.2:53"}},
		{"--log-level", nil, []string{"--log-level", "loud"}},
		{"--no-such", nil, []string{"--no-such"}},
		{"--smtp-port", []string{"MAILSTEAD_SMTP_PORT=0"}, nil},
		{"--smtp-port", nil, []string{"--config", file("smtp_port = 0\n")}},
		{"--limit-sends-per-day must be from 0", nil, []string{"--limit-sends-per-day=-1"}},
		{"--limit-storage-mb must be from 0", nil, []string{"--config", file("limit_storage_mb = 1000000000001\n")}},
		{`"smtp-prot"`, nil, []string{"--config", file("smtp_prot = 25\n")}},
		{`"email"`, nil, []string{"--config", file("email = \"you@example.com\"\n")}},
		{"configuration file", nil, []string{"--config", file("host = ")}},
		{"no such file", nil, []string{"--config", filepath.Join(dir, "none.toml")}},
	} {
		refused(t, c.why, c.env, append(append([]string{}, good...), c.args...)...)
	}
	if _, _, stderr := run(t, nil, append(good, "--relay", "http://user:secret@host:25")...); strings.Contains(stderr, "secret") {
		t.Errorf("a password is repeated: %s", stderr)
	}
	refused(t, "no service has run", nil, "account", "create", "--email", "you@example.com", "--data", t.TempDir())
}
