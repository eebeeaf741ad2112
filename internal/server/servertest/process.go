// SPDX-License-Identifier: Apache-2.0

package servertest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/demo"
)

// Timeout is how long to wait for another process, on a slow shared machine.
const Timeout = 90 * time.Second

// Build builds the program into a folder and returns its path.
func Build(dir string) (path string, err error) {
	path = filepath.Join(dir, "mailstead")
	build := exec.Command("go", "build", "-o", path, "github.com/mailstead/mailstead/cmd/mailstead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the binary: %w\n%s", err, out)
	}
	return path, nil
}

// Process is the built program as a separate process, which can be stopped and started again. It
// runs as the sandbox or, with ServeFlags, as the service.
type Process struct {
	Path       string        // path of the program
	Data       string        // data folder
	Database   string        // "sqlite", or a URL
	ServeFlags []string      // flags of `mailstead serve`; nil runs `mailstead dev`
	Wrapper    []string      // command that runs the program, if any
	Dev        demo.Info     // for the sandbox; for the service the ports, and what a test adds
	Cmd        *exec.Cmd     // nil while the program isn't running
	Done       chan struct{} // closed when the process has ended

	t        testing.TB
	portBase int // base of its ports
	client   *client.Client
	stderr   *tailBuffer
}

// NewProcess prepares a process of the program at path, with a data folder and a database URL
// from dbtest. It doesn't start the process, but stops it at the end of the test.
func NewProcess(t testing.TB, path, data, url string) *Process {
	b := &Process{t: t, Path: path, Data: data, Database: "sqlite", portBase: FreePortBase(t), stderr: &tailBuffer{}}
	if strings.HasPrefix(url, "postgres") {
		b.Database = url
	}
	t.Cleanup(func() {
		if b.Cmd != nil {
			_ = b.Cmd.Process.Kill()
			<-b.Done
		}
		if t.Failed() {
			t.Logf("the service's last words, on %s:\n%s", b.Data, b.stderr)
		}
	})
	return b
}

// ports are the ports of the service.
var ports = map[string]int{
	"smtp": 25, "dns": 53, "http": 80, "imap": 143, "https": 443, "submissions": 465, "submission": 587, "imaps": 993,
}

// FreePortBase returns a port base for which all ports of the service are free, below the system's
// ephemeral ports.
func FreePortBase(t testing.TB) int {
	t.Helper()
next:
	for range 200 {
		base := 10000 + rand.IntN(20000)
		for _, port := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+port))
			if err != nil {
				continue next
			}
			_ = l.Close()
		}
		return base
	}
	t.Fatal("no free ports")
	return 0
}

// Start starts the program and returns once it reports that it is ready.
func (b *Process) Start() {
	b.t.Helper()
	if err := b.TryStart(); err != nil {
		b.t.Fatal(err)
	}
}

// TryStart is Start for a program that may exit at once: it returns an error with the end of the
// program's output.
func (b *Process) TryStart() error {
	b.t.Helper()
	b.Cmd = b.command()
	out, ready, err := b.output()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.Cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	says, ended := make(chan struct{}), make(chan struct{})
	b.Done = ended
	go func(cmd *exec.Cmd) {
		told := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if b.ServeFlags != nil {
				_, _ = b.stderr.Write(append(lines.Bytes(), '\n'))
			}
			if !told && strings.Contains(lines.Text(), ready) {
				told = true
				close(says)
			}
		}
		_, _ = io.Copy(b.stderr, out) // after a line that was too long
		_ = cmd.Wait()                // ProcessState has the result
		close(ended)
	}(b.Cmd)
	select {
	case <-says:
	case <-ended:
		state := b.Cmd.ProcessState
		b.Cmd = nil
		return fmt.Errorf("the service ended instead of starting: %v\n%s", state, b.stderr)
	case <-time.After(Timeout):
		b.t.Fatalf("the service did not start within %v", Timeout)
	}
	b.loadInfo()
	return nil
}

func (b *Process) command() *exec.Cmd {
	args := append([]string{}, b.Wrapper...)
	args = append(args, b.Path)
	if b.ServeFlags == nil {
		args = append(args, "dev")
	} else {
		args = append(args, "serve", "--bind", "127.0.0.1", "--tls", "self-signed", "--postmaster", OperatorAddress)
		args = append(args, b.ServeFlags...)
	}
	args = append(args, "--data", b.Data, "--port-base", fmt.Sprint(b.portBase), "--database", b.Database)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output returns the pipe on which the program reports that it is ready, and the text of that.
func (b *Process) output() (out io.ReadCloser, ready string, err error) {
	if b.ServeFlags != nil {
		out, err = b.Cmd.StderrPipe()
		return out, "msg=ready", err
	}
	b.Cmd.Stderr = b.stderr
	out, err = b.Cmd.StdoutPipe()
	return out, "Mailstead is running", err
}

// loadInfo fills Dev for the running program.
func (b *Process) loadInfo() {
	b.t.Helper()
	b.client = nil // its connections led to the earlier process
	if b.ServeFlags != nil {
		b.Dev.BaseURL = fmt.Sprintf("https://127.0.0.1:%d", b.portBase+443)
		b.Dev.CACert = filepath.Join(b.Data, "ca.pem")
		b.Dev.Ports = map[string]int{}
		for listener, port := range ports {
			b.Dev.Ports[listener] = b.portBase + port
		}
		return
	}
	text, err := os.ReadFile(filepath.Join(b.Data, "dev.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b.Dev); err != nil {
		b.t.Fatal(err)
	}
}

// Stderr returns the end of the program's standard error, over all its runs.
func (b *Process) Stderr() string { return b.stderr.String() }

// Freeze pauses the process until Thaw. It returns once all threads are paused.
func (b *Process) Freeze() {
	b.t.Helper()
	b.signal(syscall.SIGSTOP)
	Eventually(b.t, func() string {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.Cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			b.t.Fatalf("the threads of process %d: %v", b.Cmd.Process.Pid, err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			_, state, _ := strings.Cut(string(text), ") ") // proc_pid_stat(5)
			if err == nil && !strings.HasPrefix(state, "T") {
				return "a thread runs: " + string(text)
			}
		}
		return ""
	})
}

// Thaw resumes the process, which has not noticed the pause.
func (b *Process) Thaw() { b.signal(syscall.SIGCONT) }

func (b *Process) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.Cmd.Process.Signal(s); err != nil {
		b.t.Fatalf("the service had ended by itself: %v", err)
	}
}

// Kill kills the process, and checks that it was running until then.
func (b *Process) Kill() {
	b.t.Helper()
	b.terminate(syscall.SIGKILL, func(state *os.ProcessState) bool {
		w, ok := state.Sys().(syscall.WaitStatus)
		return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
	})
}

// Stop ends the service as an operator does.
func (b *Process) Stop() {
	b.t.Helper()
	b.terminate(syscall.SIGTERM, (*os.ProcessState).Success)
}

func (b *Process) terminate(by syscall.Signal, well func(*os.ProcessState) bool) {
	b.t.Helper()
	cmd := b.Cmd
	if err := cmd.Process.Signal(by); err != nil {
		b.t.Errorf("the service had ended by itself: %v", err)
	}
	select {
	case <-b.Done:
		b.Cmd = nil
	case <-time.After(Timeout):
		b.t.Fatalf("the service did not end within %v of %v", Timeout, by)
	}
	if !well(cmd.ProcessState) {
		b.t.Errorf("after %v the service ended with: %v\n%s", by, cmd.ProcessState, b.stderr)
	}
}

// Addr returns a listener's address: http, smtp, submission, submissions, imap, imaps.
func (b *Process) Addr(listener string) string {
	return fmt.Sprintf("127.0.0.1:%d", b.Dev.Ports[listener])
}

// Memory returns a figure of the running process in bytes, by its name in proc_pid_status(5):
// VmRSS is the resident memory, VmHWM its peak.
func (b *Process) Memory(name string) int64 {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name+":" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			return kb << 10
		}
	}
	b.t.Fatalf("there is no %s", name)
	return 0
}

// TLS returns the configuration for a client that trusts the service's certificate authority.
func (b *Process) TLS() *tls.Config {
	b.t.Helper()
	return tlsConfig(b.t, b.Dev.CACert)
}

// HTTP returns an HTTP client that trusts the service's certificate authority.
func (b *Process) HTTP() *http.Client {
	b.t.Helper()
	return &http.Client{Transport: &http.Transport{TLSClientConfig: b.TLS()}}
}

// Client returns an API client for the running process, with the account's key in Dev. It does not
// retry, so that errors show.
func (b *Process) Client() *client.Client {
	b.t.Helper()
	if b.client == nil {
		c, err := client.New(b.Dev.BaseURL, b.Dev.APIKey, client.WithAttempts(1), client.WithHTTPClient(b.HTTP()))
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(c.CloseIdleConnections)
		b.client = c
	}
	return b.client
}

// Eventually polls complaint until it returns "". It is for actions of another process, which
// sends no signal to wait for.
func Eventually(t testing.TB, complaint func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(Timeout)
	for {
		what := complaint()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("after %v still: %s", Timeout, what)
		}
	}
}

// tailBuffer is a writer that keeps the end of its input.
type tailBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (w *tailBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - 16<<10; over > 0 {
		w.text = bytes.Clone(w.text[over:])
	}
	return len(p), nil
}

func (w *tailBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
