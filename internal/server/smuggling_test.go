// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Byte sequences that other servers accept as the end of a message (SMTP smuggling, CVE-2023-51764
// to 51766, and later findings) don't create a second message: not on the MX, not by submission,
// not by BDAT.
func TestSmuggling(t *testing.T) {
	s := servertest.Start(t)
	const hidden = "MAIL FROM:<eve@smuggled.com>\r\nRCPT TO:<bob@demo.test>\r\nDATA\r\nFrom: eve@smuggled.com\r\nSubject: smuggled\r\n\r\nx\r\n"
	for _, end := range []string{
		"\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r.\r\n", "\r\n.\r", "\r.\n", "\n.\r", "\r\r\n.\r\r\n", "\r\n.\r\r\n", "\n\n.\r\n", "\n\r.\r\n", "\n\r\n.\n\r\n",
		"\r\n\x00.\r\n", "\r\n.\x00\r\n", "\r\x00\n.\r\n", "\r\n.\r\x00\n", "\r\x00\n.\r\x00\n", "\x00\n.\n", "\r\n. \r\n", "\r\n.\t\r\n", "\r\n .\r\n", "\r\n..\r\n",
		"\u2028.\u2028", "\u2029.\u2029", "\u0085.\u0085", "\r\n\uFF0E\r\n", "\v.\v", "\f.\f", "\x1a", "\x04", "\r\n.\x1a\r\n",
	} {
		name := strconv.QuoteToASCII(end)
		for listener, dial := range map[string]func(*testing.T) *textproto.Conn{"MX": dialMX(s), "submission": dialSubmission(s)} {
			c := dial(t)
			sender := "a@outside.com"
			if listener == "submission" {
				sender = "alice@demo.test"
			}
			for _, step := range []struct {
				command string
				want    int
			}{{"MAIL FROM:<" + sender + "> BODY=8BITMIME", 250}, {"RCPT TO:<bob@demo.test>", 250}, {"DATA", 354}} {
				if err := c.PrintfLine("%s", step.command); err != nil {
					t.Fatal(err)
				}
				if _, said, err := c.ReadResponse(step.want); err != nil {
					t.Fatalf("%s: %s %v", step.command, said, err)
				}
			}
			_, _ = io.WriteString(c.W, "From: "+sender+"\r\nSubject: first\r\n\r\na"+end+hidden+".\r\n")
			// One answer to the message, and one to NOOP: none in between.
			if err := c.PrintfLine("NOOP"); err != nil {
				t.Fatal(err)
			}
			code, said, _ := c.ReadResponse(0)
			if code != 250 && code != 550 {
				t.Errorf("%s, %s: %d %s", listener, name, code, said)
			}
			if bare := strings.Trim(end, "\r\n") == "." && end != "\r\n.\r\n"; bare && listener == "MX" && code != 550 {
				t.Errorf("%s, %s: taken in spite of its line ends: %s", listener, name, said)
			}
			if next, said, err := c.ReadResponse(250); err != nil || !strings.HasPrefix(said, "2.0.0 OK") {
				t.Errorf("%s, %s: then %d %s", listener, name, next, said)
			}
			_ = c.Close()
		}
	}
	// With BDAT only the length counts, not the content.
	c := dialMX(s)(t)
	defer c.Close() //nolint:errcheck // only a client
	body := "From: a@outside.com\r\nSubject: first\r\n\r\na\r\n.\r\n" + hidden
	_, _ = fmt.Fprintf(c.W, "MAIL FROM:<a@outside.com>\r\nRCPT TO:<bob@demo.test>\r\nBDAT %d LAST\r\n%sNOOP\r\n", len(body), body)
	if err := c.W.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if code, said, err := c.ReadResponse(250); err != nil {
			t.Errorf("BDAT: %d %s", code, said)
		}
	}
	var list struct{ Data []struct{ Subject string } }
	for after := ""; ; {
		var one struct {
			Data       []struct{ ID, Subject string }
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		s.API("GET", "/mailboxes/"+s.Dev.Mailboxes[1].ID.String()+"/messages?limit=100"+after, nil).Decode(t, &one)
		for _, m := range one.Data {
			list.Data = append(list.Data, struct{ Subject string }{m.Subject})
		}
		if after = "&after=" + one.NextCursor; !one.HasMore {
			break
		}
	}
	if len(list.Data) == 0 {
		t.Error("nothing was taken at all")
	}
	for _, m := range list.Data {
		if m.Subject != "first" {
			t.Errorf("%q was smuggled in", m.Subject)
		}
	}
}

func dialMX(s *servertest.Server) func(*testing.T) *textproto.Conn {
	return func(t *testing.T) *textproto.Conn {
		t.Helper()
		nc, err := net.Dial("tcp", s.Addr("smtp"))
		if err != nil {
			t.Fatal(err)
		}
		return greet(t, textproto.NewConn(nc))
	}
}

func dialSubmission(s *servertest.Server) func(*testing.T) *textproto.Conn {
	return func(t *testing.T) *textproto.Conn {
		t.Helper()
		nc, err := tls.Dial("tcp", s.Addr("submissions"), s.TLS())
		if err != nil {
			t.Fatal(err)
		}
		c := greet(t, textproto.NewConn(nc))
		box := s.Dev.Mailboxes[0]
		if err := c.PrintfLine("AUTH PLAIN %s", base64.StdEncoding.EncodeToString([]byte("\x00"+box.Address+"\x00"+box.Password))); err != nil {
			t.Fatal(err)
		}
		if _, said, err := c.ReadResponse(235); err != nil {
			t.Fatal(said, err)
		}
		return c
	}
}

// greet sends EHLO.
func greet(t *testing.T, c *textproto.Conn) *textproto.Conn {
	t.Helper()
	if _, said, err := c.ReadResponse(220); err != nil {
		t.Fatal(said, err)
	}
	if err := c.PrintfLine("EHLO client.outside.com"); err != nil {
		t.Fatal(err)
	}
	if _, said, err := c.ReadResponse(250); err != nil {
		t.Fatal(said, err)
	}
	return c
}
