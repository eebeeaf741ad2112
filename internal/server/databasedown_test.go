// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"encoding/base64"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// While the database does not answer, each server asks its clients to retry, and continues with the
// same connections when the database is back.
func TestDatabaseAwayAtListeners(t *testing.T) {
	proxy := dbtest.StartProxy(t, dbtest.Postgres(t))
	s := servertest.Start(t, servertest.Database(proxy.URL), func(c *server.Config) { c.DatabaseWait = time.Second })
	box := s.Dev.Mailboxes[0]
	dial := func(port string) *textproto.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.Addr(port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if strings.HasSuffix(port, "s") {
			c = tls.Client(c, s.TLS())
		}
		return textproto.NewConn(c)
	}
	// ask sends a line, and returns the last line of the answer, which begins with last.
	ask := func(c *textproto.Conn, line, last string) string {
		t.Helper()
		if line != "" {
			if err := c.PrintfLine("%s", line); err != nil {
				t.Fatal(err)
			}
		}
		for {
			got, err := c.ReadLine()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if regexp.MustCompile(`^(?:` + last + `)`).MatchString(got) {
				return got
			}
		}
	}
	const smtp, tagged = `[0-9]{3} `, `a `
	mx, submission, signedIn, signingIn := dial("smtp"), dial("submissions"), dial("imaps"), dial("imaps")
	for _, c := range []*textproto.Conn{mx, submission} {
		ask(c, "", smtp)
		ask(c, "EHLO client.example", smtp)
	}
	ask(mx, "MAIL FROM:<x@sender.example>", smtp)
	for _, c := range []*textproto.Conn{signedIn, signingIn} {
		ask(c, "", `\* OK`)
	}
	login := "a LOGIN " + box.Address + " " + box.Password
	if got := ask(signedIn, login, tagged); got[:4] != "a OK" {
		t.Fatal(got)
	}
	signIn := func() (int, http.Header) {
		t.Helper()
		a, err := http.PostForm(s.Dev.BaseURL+"/mailbox/sign-in", url.Values{"address": {box.Address}, "password": {box.Password}})
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return a.StatusCode, a.Header
	}
	plain := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00"+box.Address+"\x00"+box.Password))
	steps := []struct {
		on         *textproto.Conn
		line, last string
		away, back string
	}{
		{mx, "RCPT TO:<" + box.Address + ">", smtp, "451 4.3.0", "250"},
		{submission, plain, smtp, "454 4.7.0", "235"},
		{signedIn, "a SELECT INBOX", tagged, `a NO \[UNAVAILABLE\]`, "a OK"},
		{signedIn, `a STATUS INBOX (MESSAGES)`, tagged, `a NO \[UNAVAILABLE\]`, "a OK"},
		{signingIn, login, tagged, `a NO \[UNAVAILABLE\]`, "a OK"},
	}
	proxy.Silent.Store(true)
	for _, step := range steps {
		if got := ask(step.on, step.line, step.last); !regexp.MustCompile("^" + step.away).MatchString(got) {
			t.Errorf("%s: %s; want %s", step.line, got, step.away)
		}
	}
	for what, a := range map[string]func() (int, http.Header){
		"a page": signIn,
		"a read": func() (int, http.Header) { a := s.API("GET", "/domains", nil); return a.Status, a.Header },
		"a send": func() (int, http.Header) {
			a := s.API("POST", "/outbound/send", map[string]any{"from_email": box.Address, "to": []string{"x@far.example"}, "subject": "x", "text": "x"})
			return a.Status, a.Header
		},
	} {
		if status, header := a(); status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, %v", what, status, header)
		}
	}
	proxy.Cut()
	proxy.Silent.Store(false)
	for _, step := range steps {
		servertest.Eventually(t, func() string {
			if got := ask(step.on, step.line, step.last); !regexp.MustCompile("^" + step.back).MatchString(got) {
				return step.line + " when it is back: " + got
			}
			return ""
		})
	}
}
