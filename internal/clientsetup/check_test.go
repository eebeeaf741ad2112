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

// A door that is closed, or not ours, is told as such.
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
	trials, err := NewChecker(s, x509.NewCertPool()).Check(t.Context())
	if err != nil || len(trials) != 4 {
		t.Fatal(trials, err)
	}
	if steps := trials[0].Steps; len(steps) != 1 || steps[0].OK || !strings.Contains(steps[0].Words, "refused") {
		t.Errorf("a closed door: %+v", steps)
	}
	for _, trial := range trials[1:] {
		if trial.OK() || len(trial.Steps) != 2 || !trial.Steps[0].OK || trial.Steps[1].Words == "" {
			t.Errorf("a door of the web: %+v", trial)
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
		run  func(*dialogue) error
		good bool
	}{
		{"* OK hi\r\n* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\na OK done\r\n", func(d *dialogue) error { return d.imapOffer(true) }, true},
		{"* CAPABILITY IMAP4rev1 LOGINDISABLED\r\na OK done\r\n", func(d *dialogue) error { return d.imapOffer(false) }, false},
		{"* BYE full\r\n", func(d *dialogue) error { return d.imapOffer(true) }, false},
		{"* OK hi\r\na OK go\r\n", (*dialogue).imapTLS, true},
		{"* OK hi\r\na BAD no\r\n", (*dialogue).imapTLS, false},
		{"220-x\r\n220 y\r\n250-me\r\n250-AUTH LOGIN PLAIN\r\n250 SIZE\r\n", func(d *dialogue) error { return d.smtpOffer(true) }, true},
		{"250-me\r\n250 AUTH XOAUTH2\r\n", func(d *dialogue) error { return d.smtpOffer(false) }, false},
		{"220 y\r\n250 me\r\n220 go\r\n", (*dialogue).smtpTLS, true},
		{"421 busy\r\n", (*dialogue).smtpTLS, false},
		{"220 y\r\n", (*dialogue).smtpTLS, false},
		{strings.Repeat("220-x\r\n", 200), (*dialogue).smtpTLS, false},
		{strings.Repeat("x", 10_000), (*dialogue).imapTLS, false},
	} {
		err := c.run(newDialogue(spoken{strings.NewReader(c.say), io.Discard}, "test"))
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
		for _, run := range []func(*dialogue) error{
			(*dialogue).imapTLS, (*dialogue).smtpTLS,
			func(d *dialogue) error { return d.imapOffer(true) }, func(d *dialogue) error { return d.smtpOffer(true) },
		} {
			_ = run(newDialogue(spoken{bytes.NewReader(say), io.Discard}, "test"))
		}
	})
}
