// SPDX-License-Identifier: Apache-2.0

// Package crash runs the real binary, loads it through every door, and takes
// away what it stands on: the process, the disk. What was acknowledged must be
// where it belongs afterwards.
package crash

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take on a slow machine that is shared.
const patience = 90 * time.Second

// binary is the built program; TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mailstead-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	binary = filepath.Join(dir, "mailstead")
	build := exec.Command("go", "build", "-o", binary, "github.com/mailstead/mailstead/cmd/mailstead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the binary: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// service is the program, as it runs now or will run again.
type service struct {
	t        testing.TB
	data     string // folder
	database string // "sqlite", or a URL
	base     int    // of its ports
	under    []string
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process is gone
	errors   *tail

	dev struct {
		BaseURL   string `json:"base_url"`
		APIKey    string `json:"api_key"`
		Mailboxes []struct {
			ID, Address, Password string
		}
		Ports  map[string]int
		CACert string `json:"ca_cert"`
	}
}

// newService makes a service on a data folder, whose database is a URL from
// dbtest, and ends it with the test.
func newService(t testing.TB, data, url string) *service {
	s := &service{t: t, data: data, database: "sqlite", base: freeBase(t), errors: &tail{}}
	if strings.HasPrefix(url, "postgres") {
		s.database = url
	}
	t.Cleanup(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
		if t.Failed() {
			t.Logf("the service's last words:\n%s", s.errors)
		}
	})
	return s
}

// freeBase finds a port base with all ports of the service free, below those
// that the system gives to clients.
func freeBase(t testing.TB) int {
	t.Helper()
next:
	for range 200 {
		base := 10000 + rand.IntN(20000)
		for _, port := range []int{25, 53, 80, 143, 443, 465, 587, 993} {
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

// start starts the program and returns once it says that it runs.
func (s *service) start() {
	s.t.Helper()
	args := append([]string{}, s.under...)
	args = append(args, binary, "dev", "--data", s.data, "--port-base", fmt.Sprint(s.base), "--database", s.database)
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.t.TempDir())
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = s.errors
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready, ended := make(chan bool, 1), make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Mailstead is running") {
				ready <- true
			}
		}
		_ = cmd.Wait() // ProcessState tells it all
		close(ended)
	}(s.cmd)
	select {
	case <-ready:
	case <-ended:
		state := s.cmd.ProcessState
		s.cmd = nil
		s.t.Fatalf("the service ended instead of starting: %v\n%s", state, s.errors)
	case <-time.After(patience):
		s.t.Fatalf("the service did not start within %v", patience)
	}
	text, err := os.ReadFile(filepath.Join(s.data, "dev.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s.dev); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the process at once, and checks that it lived until then.
func (s *service) kill() {
	s.t.Helper()
	s.end(syscall.SIGKILL, func(state *os.ProcessState) bool {
		w, ok := state.Sys().(syscall.WaitStatus)
		return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
	})
}

// stop ends the service as an operator does.
func (s *service) stop() {
	s.t.Helper()
	s.end(syscall.SIGTERM, (*os.ProcessState).Success)
}

func (s *service) end(by syscall.Signal, well func(*os.ProcessState) bool) {
	s.t.Helper()
	cmd := s.cmd
	if err := cmd.Process.Signal(by); err != nil {
		s.t.Errorf("the service had ended by itself: %v", err)
	}
	select {
	case <-s.ended:
		s.cmd = nil
	case <-time.After(patience):
		s.t.Fatalf("the service did not end within %v of %v", patience, by)
	}
	if !well(cmd.ProcessState) {
		s.t.Errorf("after %v the service ended with: %v\n%s", by, cmd.ProcessState, s.errors)
	}
}

func (s *service) addr(door string) string { return fmt.Sprintf("127.0.0.1:%d", s.dev.Ports[door]) }

func (s *service) tls() *tls.Config {
	s.t.Helper()
	pem, err := os.ReadFile(s.dev.CACert)
	if err != nil {
		s.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// get reads a resource of the API.
func (s *service) get(path string, into any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.dev.BaseURL+"/api/v1"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.dev.APIKey)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s %s, %v", path, resp.Status, text, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		s.t.Fatalf("GET %s: %v in %s", path, err, text)
	}
}

// eventually asks again and again until there is nothing left to complain of.
// The service runs in another process: there is no signal to wait for.
func eventually(t testing.TB, complaint func() string) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		what := complaint()
		if what == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("after %v still: %s", patience, what)
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - 16<<10; over > 0 {
		w.text = bytes.Clone(w.text[over:])
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.text)
}
