// SPDX-License-Identifier: Apache-2.0

package clientsetup

import (
	"bytes"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// A closed port, or another service's, is reported.
func TestCheckFails(t *testing.T) {
	port := uint16(dnstest.FreePort(t, "127.0.0.1"))
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // the test ends
	go func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = conn.Close()
		}
	}()
	web := other.Addr().(*net.TCPAddr).AddrPort().Port()
	s := &Service{Host: "127.0.0.1", IMAPS: port, IMAP: web, Submissions: web, Submission: web}
	trials, err := NewChecker(s, x509.NewCertPool(), nil).Check(t.Context())
	if err != nil || len(trials) != 4 {
		t.Fatal(trials, err)
	}
	if steps := trials[0].Steps; len(steps) != 1 || steps[0].OK || !strings.Contains(steps[0].Detail, "refused") {
		t.Errorf("a closed port: %+v", steps)
	}
	for _, trial := range trials[1:] {
		if trial.OK() || len(trial.Steps) != 2 || !trial.Steps[0].OK || trial.Steps[1].Detail == "" {
			t.Errorf("a port of HTTP: %+v", trial)
		}
	}
}

type spoken struct {
	io.Reader
	io.Writer
}

func TestDialogue(t *testing.T) {
	for _, c := range []struct {
		say  string
		run  func(*session) error
		good bool
	}{
		{"* OK hi\r\n* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\na OK done\r\n", func(d *session) error { return d.imapCheckAuth(true) }, true},
		{"* CAPABILITY IMAP4rev1 LOGINDISABLED\r\na OK done\r\n", func(d *session) error { return d.imapCheckAuth(false) }, false},
		{"* BYE full\r\n", func(d *session) error { return d.imapCheckAuth(true) }, false},
		{"* OK hi\r\na OK go\r\n", (*session).imapStartTLS, true},
		{"* OK hi\r\na BAD no\r\n", (*session).imapStartTLS, false},
		{"220-x\r\n220 y\r\n250-me\r\n250-AUTH LOGIN PLAIN\r\n250 SIZE\r\n", func(d *session) error { return d.smtpCheckAuth(true) }, true},
		{"250-me\r\n250 AUTH XOAUTH2\r\n", func(d *session) error { return d.smtpCheckAuth(false) }, false},
		{"220 y\r\n250 me\r\n220 go\r\n", (*session).smtpStartTLS, true},
		{"421 busy\r\n", (*session).smtpStartTLS, false},
		{"220 y\r\n", (*session).smtpStartTLS, false},
		{strings.Repeat("220-x\r\n", 200), (*session).smtpStartTLS, false},
		{strings.Repeat("x", 10_000), (*session).imapStartTLS, false},
	} {
		err := c.run(newSession(spoken{strings.NewReader(c.say), io.Discard}, "test"))
		if (err == nil) != c.good {
			t.Errorf("%.60q: %v", c.say, err)
		}
	}
}

func FuzzDialogue(f *testing.F) {
	f.Add([]byte("* OK hi\r\n* CAPABILITY AUTH=PLAIN\r\na OK\r\n"))
	f.Add([]byte("220 y\r\n250-me\r\n250 AUTH PLAIN\r\n"))
	f.Add([]byte("250"))
	f.Fuzz(func(_ *testing.T, say []byte) {
		for _, run := range []func(*session) error{
			(*session).imapStartTLS, (*session).smtpStartTLS,
			func(d *session) error { return d.imapCheckAuth(true) }, func(d *session) error { return d.smtpCheckAuth(true) },
		} {
			_ = run(newSession(spoken{bytes.NewReader(say), io.Discard}, "test"))
		}
	})
}
