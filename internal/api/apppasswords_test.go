// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net"
	"net/smtp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// loginSMTP signs in on the submission port.
func loginSMTP(t *testing.T, s *servertest.Server, user, password string) (*smtp.Client, error) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr("submission"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := smtp.NewClient(nc, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.StartTLS(s.TLS()); err != nil {
		t.Fatal(err)
	}
	return c, c.Auth(smtp.PlainAuth("", user, password, "localhost"))
}

// imapSession is a connection to the IMAP port with TLS.
type imapSession struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

// line reads one line from the server.
func (s *imapSession) line() string {
	s.t.Helper()
	line, err := s.r.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return line
}

// loginIMAP signs in and returns the server's response.
func loginIMAP(t *testing.T, s *servertest.Server, user, password string) (*imapSession, string) {
	t.Helper()
	nc, err := tls.Dial("tcp", s.Addr("imaps"), s.TLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	session := &imapSession{t, nc, bufio.NewReader(nc)}
	session.line()
	_, _ = fmt.Fprintf(nc, "a LOGIN %q %q\r\n", user, password)
	return session, session.line()
}

// An app password works for the protocols that it is made for, until it is revoked.
func TestAppPasswords(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		box := "/mailboxes/" + s.Dev.Mailboxes[0].ID.String()
		refused(t, "no name", s.API("POST", box+"/app-passwords", object{"name": " ", "protocols": []string{"imap"}}), 422, "validation_failed", "name invalid_name")
		refused(t, "no protocol", s.API("POST", box+"/app-passwords", object{"name": "x", "protocols": []string{"imap", "pop"}}), 422, "validation_failed", "protocols[1] unknown_value")
		made := func(protocols ...string) (id, password string) {
			t.Helper()
			a := s.API("POST", box+"/app-passwords", object{"name": strings.Join(protocols, " and "), "protocols": protocols})
			status(t, "an app password", a, 201)
			one := into(t, a)
			return one["id"].(string), one["password"].(string)
		}
		reads, readsWith := made("imap")
		sends, sendsWith := made("smtp")
		session, said := loginIMAP(t, s, "alice@demo.test", readsWith)
		if !strings.HasPrefix(said, "a OK ") {
			t.Errorf("IMAP: %s", said)
		}
		if _, said := loginIMAP(t, s, "alice@demo.test", sendsWith); !strings.HasPrefix(said, "a NO ") {
			t.Errorf("IMAP with a password for SMTP: %s", said)
		}
		c, err := loginSMTP(t, s, "alice@demo.test", sendsWith)
		if err != nil {
			t.Error(err)
		}
		if _, err := loginSMTP(t, s, "alice@demo.test", readsWith); err == nil || !strings.Contains(err.Error(), "5.7.13") {
			t.Errorf("SMTP with a password for IMAP: %v", err)
		}
		if err := c.Noop(); err != nil {
			t.Error(err)
		}
		if a := s.API("GET", box+"/app-passwords", nil); len(ids(t, a)) != 2 || strings.Contains(string(a.Body), sendsWith) {
			t.Errorf("listed %s", a.Body)
		}
		if a := s.API("GET", box+"/sign-ins", nil); strings.Count(string(a.Body), `"result":"ok"`) != 2 || strings.Count(string(a.Body), `"result":"wrong_protocol"`) != 2 {
			t.Errorf("signed in: %s", a.Body)
		}

		// Revoking it ends its sessions.
		status(t, "revoking", s.API("DELETE", box+"/app-passwords/"+reads, nil), 204)
		if said := session.line(); !strings.HasPrefix(said, "* BYE ") {
			t.Errorf("IMAP goes on: %s", said)
		}
		status(t, "revoking", s.API("DELETE", box+"/app-passwords/"+sends, nil), 204)
		if err := c.Mail("alice@demo.test"); err == nil || !strings.Contains(err.Error(), "421") {
			t.Errorf("SMTP goes on: %v", err)
		}
		_, key := newKey(t, s, object{"domain": "other.test"})
		for _, path := range []string{"/app-passwords", "/sign-ins"} {
			refused(t, "for a key of another domain", s.APIWithKey(key, "GET", box+path, nil), 404, "not_found")
		}
	})
}
