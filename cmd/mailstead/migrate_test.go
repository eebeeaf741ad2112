// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/term"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The command copies a mailbox, reports the result, and leaves no trace of the password.
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

// terminal creates a terminal and returns the program's end and the user's end.
func terminal(t *testing.T) (seen, behind *os.File) {
	t.Helper()
	behind, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	var locked, number int32
	for _, ask := range []struct {
		request uintptr
		of      *int32
	}{{syscall.TIOCSPTLCK, &locked}, {syscall.TIOCGPTN, &number}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, behind.Fd(), ask.request, uintptr(unsafe.Pointer(ask.of))); errno != 0 {
			t.Fatal(errno)
		}
	}
	seen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = seen.Close() })
	return seen, behind
}

// A user who cancels at the password prompt exits at once, and the terminal shows input again.
func TestMigrateGivenUp(t *testing.T) {
	s := servertest.Start(t)
	seen, _ := terminal(t)
	state := func() *term.State {
		now, err := term.GetState(int(seen.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := state()
	c := command(t, nil, "migrate", "--mailbox", s.Dev.Mailboxes[1].Address, "--source-host", "localhost", "--source-user", "bob", "--url", s.Dev.BaseURL, "--key", s.Dev.APIKey)
	c.Stdin = seen
	said, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	const asks = "Password of bob at localhost: "
	asked := make([]byte, len(asks))
	if _, err := io.ReadFull(said, asked); err != nil || string(asked) != asks {
		t.Fatalf("%q, %v", asked, err)
	}
	for reflect.DeepEqual(state(), before) { // until input is hidden
		runtime.Gosched()
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(said)
	if _ = c.Wait(); c.ProcessState.ExitCode() != 1 || string(rest) != "\nmailstead: interrupted; nothing was begun\n" {
		t.Errorf("%v: %q", c.ProcessState, rest)
	}
	if !reflect.DeepEqual(state(), before) {
		t.Error("the terminal was left as it is for passwords")
	}
}
