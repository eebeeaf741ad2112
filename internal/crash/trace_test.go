// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/needtest"
)

// call is a system call of the service. Its line numbers in the trace serve as the clock.
type call struct {
	name       string
	path       string // file or connection
	text       string // arguments as strace shows them
	result     int
	start, end int
}

// The program runs under strace. No 202 or 250 is sent before the message's bytes are written and a
// later fsync has returned. This holds both for messages in the database and for those in files.
func TestAcknowledgedAfterFsync(t *testing.T) {
	strace := needtest.Program(t, "strace")
	file := filepath.Join(t.TempDir(), "trace")
	s := newService(t, t.TempDir(), dbtest.SQLite(t))
	// -D: the service is our child, and receives our signals.
	s.Wrapper = []string{strace, "-D", "-f", "--seccomp-bpf", "-yy", "-s", "8192", "-o", file,
		"-e", "trace=write,writev,sendto,sendmsg,pwrite64,fsync,fdatasync,rename,renameat,renameat2"}
	s.Start()
	type sent struct {
		token, listener string
		port            int
		large           bool
	}
	var mu sync.Mutex
	var all []sent
	var listeners sync.WaitGroup
	for _, listener := range []string{"api", "smtp", "submission"} {
		listeners.Go(func() {
			for i := range 4 {
				one := sent{token: fmt.Sprintf("token%s%d", listener, i), listener: listener, large: i == 3}
				size := 1000
				if one.large {
					size = 200 << 10
				}
				port, err := s.sendOne(t.Context(), listener, one.token, size)
				if err != nil {
					t.Errorf("%s: %v", one.token, err)
					return
				}
				one.port = port
				mu.Lock()
				all = append(all, one)
				mu.Unlock()
			}
		})
	}
	listeners.Wait()
	s.Stop()
	if t.Failed() {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	calls := readTrace(t, f)
	wal := filepath.Join(s.Data, "mailstead.db-wal")
	for _, one := range all {
		var bad string
		ack, synced := acknowledged(calls, wal, one.token, one.port)
		switch {
		case ack == nil:
			bad = "was never written to the WAL, or not acknowledged after that"
		case synced == nil:
			bad = fmt.Sprintf("was acknowledged at line %d of the trace before its fsync", ack.start)
		case one.listener == "api" && !strings.Contains(ack.text, "202 Accepted"),
			one.listener == "smtp" && !strings.Contains(ack.text, `"250 2.0.0 `),
			one.listener == "submission" && ack.result < 40: // in TLS; the close alert is shorter
			bad = fmt.Sprintf("was followed by this answer: %.200s", ack.text)
		case one.large:
			bad = unsyncedFile(calls, filepath.Join(s.Data, "blobs"), one.token, ack)
		}
		if bad != "" {
			t.Errorf("%s %s", one.token, bad)
		}
	}
}

// sendOne sends a message over its own connection, and returns the client's port.
func (s *service) sendOne(ctx context.Context, listener, token string, size int) (port int, err error) {
	body := strings.Repeat(token+"\r\n", size/len(token))
	if listener == "api" {
		return s.postOne(ctx, token, body)
	}
	conn, c, err := s.dial(listener)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // QUIT would be answered, and that look like the 250
	from := s.Dev.Mailboxes[0].Address
	if err := c.Mail(from); err != nil {
		return 0, err
	}
	if err := c.Rcpt(s.Dev.Mailboxes[1].Address); err != nil {
		return 0, err
	}
	w, err := c.Data()
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(w, "From: %s\r\nSubject: %s\r\n\r\n%s", from, token, body); err != nil {
		return 0, err
	}
	return conn.LocalAddr().(*net.TCPAddr).Port, w.Close()
}

func (s *service) postOne(ctx context.Context, token, body string) (port int, err error) {
	text, err := json.Marshal(map[string]any{
		"from_email": s.Dev.Mailboxes[0].Address, "to": []string{s.Dev.Mailboxes[1].Address}, "subject": token, "text": body,
	})
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				port = conn.LocalAddr().(*net.TCPAddr).Port
			}
			return conn, err
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Dev.BaseURL+"/api/v1/outbound/send", strings.NewReader(string(text)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+s.Dev.APIKey)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return port, err
}

// acknowledged finds the first response to the client after its message was written to the
// database's log. It also finds the fsync of the log between the two.
func acknowledged(calls []*call, wal, token string, port int) (ack, synced *call) {
	client := fmt.Sprintf(":%d]", port)
	var stored *call
	for _, c := range calls {
		switch {
		case stored == nil:
			if c.path == wal && strings.Contains(c.text, token) {
				stored = c
			}
		case c.start > stored.end && c.path == wal && strings.HasSuffix(c.name, "sync"):
			if synced == nil && c.result == 0 {
				synced = c
			}
		case strings.HasSuffix(c.path, client) && c.start > stored.start:
			if synced == nil || c.start < synced.end {
				return c, nil
			}
			return c, synced
		}
	}
	return nil, nil
}

// unsyncedFile describes the missing step. The file's bytes must be synced, then the file renamed,
// then its directory synced, all before the acknowledgement.
func unsyncedFile(calls []*call, dir, token string, ack *call) string {
	var written, synced, named *call
	folder := ""
	for _, c := range calls {
		if c.start > ack.start {
			break
		}
		switch {
		case strings.HasPrefix(c.path, dir) && strings.Contains(c.name, "write") && strings.Contains(c.text, token):
			if written == nil || c.path == written.path {
				written, synced, named = c, nil, nil
			}
		case written == nil:
		case synced == nil:
			if c.path == written.path && strings.HasSuffix(c.name, "sync") && c.start > written.end && c.result == 0 {
				synced = c
			}
		case named == nil:
			if strings.HasPrefix(c.name, "rename") && strings.Contains(c.text, `"`+written.path+`"`) && c.start > synced.end {
				named = c
				paths := strings.Split(c.text, `"`)
				folder = filepath.Dir(paths[len(paths)-2])
			}
		case c.path == folder && strings.HasSuffix(c.name, "sync") && c.start > named.end && c.end < ack.start && c.result == 0:
			return ""
		}
	}
	switch {
	case written == nil:
		return "was not written to a file before it was acknowledged"
	case synced == nil:
		return "was acknowledged before its file was synced"
	case named == nil:
		return "was acknowledged before its file had its name"
	}
	return "was acknowledged before the folder of its file was synced"
}

var (
	begun   = regexp.MustCompile(`^(\d+) +([a-z0-9]+)\((.*)$`)
	resumed = regexp.MustCompile(`^(\d+) +<\.\.\. ([a-z0-9]+) resumed>(.*)$`)
	of      = regexp.MustCompile(`^\d+<((?:TCP:\[[^\]]*\])|[^>]*)>`)
	result  = regexp.MustCompile(`\) += (-?\d+)(?: .*)?$`)
)

// readTrace parses strace's output, in the order in which calls began.
func readTrace(t *testing.T, trace io.Reader) (calls []*call) {
	t.Helper()
	open := map[string]*call{} // unfinished calls by thread
	lines := bufio.NewScanner(trace)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		var c *call
		rest := ""
		if m := begun.FindStringSubmatch(line); m != nil {
			c = &call{name: m[2], text: m[3], start: n}
			if p := of.FindStringSubmatch(m[3]); p != nil {
				c.path = p[1]
			}
			calls = append(calls, c)
			if strings.HasSuffix(line, "<unfinished ...>") {
				open[m[1]] = c
				continue
			}
			rest = m[3]
		} else if m := resumed.FindStringSubmatch(line); m != nil && open[m[1]] != nil {
			c, rest = open[m[1]], m[3]
			c.text += rest
			delete(open, m[1])
		} else {
			continue // a signal, or an exit
		}
		c.end, c.result = n, -1
		if r := result.FindStringSubmatch(rest); r != nil {
			var err error
			if c.result, err = strconv.Atoi(r[1]); err != nil {
				t.Fatalf("line %d of the trace: %v", n, err)
			}
		}
	}
	for _, c := range open {
		c.end, c.result = 1<<62, -1
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return calls
}

// The checks of traces find errors.
func TestTraceBites(t *testing.T) {
	const (
		write  = `7 pwrite64(9</d/x-wal>, "..token..", 4096, 0) = 4096`
		begin  = `7 fdatasync(9</d/x-wal> <unfinished ...>`
		end    = `7 <... fdatasync resumed>)               = 0`
		failed = `7 <... fdatasync resumed>)               = -1 EIO (Input/output error)`
		ack    = `8 write(12<TCP:[127.0.0.1:25->127.0.0.1:999]>, "250 2.0.0 Accepted", 18) = 18`
		other  = `8 write(13<TCP:[127.0.0.1:25->127.0.0.1:1999]>, "250 2.0.0 Accepted", 18) = 18`
		file   = `8 fsync(14</d/y>) = 0`
	)
	for name, c := range map[string]struct {
		lines         []string
		acked, synced bool
	}{
		"in order":               {[]string{write, begin, other, end, ack}, true, true},
		"too early":              {[]string{write, begin, ack, end}, true, false},
		"never synced":           {[]string{write, ack}, true, false},
		"synced before":          {[]string{begin, end, write, ack}, true, false},
		"sync begun before":      {[]string{begin, write, end, ack}, true, false},
		"another file synced":    {[]string{write, file, ack}, true, false},
		"sync failed":            {[]string{write, begin, failed, ack}, true, false},
		"acknowledged unwritten": {[]string{ack, write, begin, end}, false, false},
		"never acknowledged":     {[]string{write, begin, end, other}, false, false},
	} {
		calls := readTrace(t, strings.NewReader(strings.Join(c.lines, "\n")+"\n"))
		a, s := acknowledged(calls, "/d/x-wal", "token", 999)
		if (a != nil) != c.acked || (s != nil) != c.synced {
			t.Errorf("%s: acknowledged %v, synced %v", name, a, s)
		}
	}
}
