// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// pipes is a listener for one end of net.Pipe.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// states are the commands that lead to each state in which the fuzzer's octets begin.
func states() []string {
	return []string{
		"",
		"EHLO a.example\r\n",
		"EHLO a.example\r\nMAIL FROM:<ann@example.com> SMTPUTF8\r\n",
		"EHLO a.example\r\nMAIL FROM:<ann@example.com>\r\nRCPT TO:<bob@demo.test>\r\n",
		"EHLO a.example\r\nMAIL FROM:<ann@example.com>\r\nRCPT TO:<bob@demo.test>\r\nDATA\r\n",
		"EHLO a.example\r\nMAIL FROM:<ann@example.com>\r\nRCPT TO:<bob@demo.test>\r\nBDAT 0\r\n",
	}
}

// FuzzSession sends arbitrary octets to a session in each of its states. The session must end when
// the client is done, send well-formed replies, and accept no message with a bare CR or LF.
func FuzzSession(f *testing.F) {
	files, err := filepath.Glob("testdata/dialogs/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var octets strings.Builder
		for _, line := range strings.Split(string(text), "\n") {
			if raw, ok := strings.CutPrefix(line, ">> "); ok && len(raw) < 1000 {
				s, err := strconv.Unquote(raw)
				if err != nil {
					f.Fatal(err)
				}
				octets.WriteString(s)
			} else if line, ok := strings.CutPrefix(line, "> "); ok {
				octets.WriteString(line + "\r\n")
			}
		}
		for state := range states() {
			f.Add(uint8(state), []byte(octets.String()))
		}
	}
	taken := &mails{}
	server := &smtpd.Server{Host: "mail.host.test", Backend: taken, ConnLimiter: &ratelimit.ConnLimiter{}, Log: discard, MaxSize: 10_000, MaxRecipients: 3}
	ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	f.Cleanup(func() {
		if err := server.Shutdown(f.Context()); err != nil {
			f.Log(err)
		}
		<-ended //nolint:errcheck // it was shut down
	})
	f.Fuzz(func(t *testing.T, state uint8, input []byte) {
		near, far := net.Pipe()
		ln.conns <- far
		go func() {
			all := states()
			_, _ = io.WriteString(near, all[int(state)%len(all)])
			_, _ = near.Write(input)
			_, _ = io.WriteString(near, "\r\n.\r\nQUIT\r\n")
			_ = near.Close()
		}()
		var out bytes.Buffer
		_, _ = io.Copy(&out, near)
		checkReplies(t, out.String())
		for _, one := range taken.empty() {
			if strings.ContainsAny(strings.ReplaceAll(one.body, "\r\n", ""), "\r\n") {
				t.Errorf("a message with bare line ends was taken: %q", one.body)
			}
			if len(one.body) > 10_000 {
				t.Errorf("a message of %d octets was taken", len(one.body))
			}
		}
	})
}

func (l *mails) empty() []receivedMail {
	all := l.taken()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
	return all
}

// checkReplies checks the format of all complete replies.
func checkReplies(t *testing.T, out string) {
	lines := strings.Split(out, "\r\n")
	for _, line := range lines[:len(lines)-1] {
		if len(line) < 4 || line[0] < '2' || line[0] > '5' || line[3] != ' ' && line[3] != '-' || strings.ContainsAny(line, "\r\n") {
			t.Errorf("not a reply: %q", line)
		}
	}
}
