// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// Without an empty line after the header, the body begins with the first line that is not a field,
// unless more header fields follow.
func TestNoEmptyLine(t *testing.T) {
	const structure = `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" `
	for _, c := range []struct{ name, mail, header, body string }{
		{"a body", "Subject: x\nHello\nworld\n\nmore\n", "Subject: x\n", "Hello\nworld\n\nmore\n"},
		{"without an end", "Subject: x\nHello", "Subject: x\n", "Hello"},
		{"a blank line", "Subject: x\n \nHello\n\nmore\n", "Subject: x\n \n", "Hello\n\nmore\n"},
		{"a link first", "Subject: x\nSee this:\nhttp://x.example/\n\nmore", "Subject: x\n", "See this:\nhttp://x.example/\n\nmore"},
		{"no field at all", "Hello\nworld", "", "Hello\nworld"},
		{"no field, lines end there", "Hello\n\nworld", "", "Hello\n\nworld"},
		{"an indented line", "Subject: x\nHello\n  world\n", "Subject: x\n", "Hello\n  world\n"},
		{"as it should be", "Subject: x\n\nHello\n\nTo: y\n", "Subject: x\n\n", "Hello\n\nTo: y\n"},
		{"an odd line in the header", "Subject: x\nodd line\nX-Spam: no\n\nHello\n", "Subject: x\nodd line\nX-Spam: no\n\n", "Hello\n"},
		{"a second author", "From: a@x.example\nodd line\nFrom: b@x.example\n\nHello\n", "From: a@x.example\nodd line\nFrom: b@x.example\n\n", "Hello\n"},
		{"of an mbox", "From ann Thu Nov 26\nSubject: x\n\nHello\n", "From ann Thu Nov 26\nSubject: x\n\n", "Hello\n"},
		{"of a broken mbox", ">From ann Thu Nov 26\nSubject: x\nHello\n", ">From ann Thu Nov 26\nSubject: x\n", "Hello\n"},
		{"with a mark", "\xef\xbb\xbfSubject: x\n\nHello\n", "\xef\xbb\xbfSubject: x\n\n", "Hello\n"},
		{"with a mark alone", "\xef\xbb\xbfSubject: x\nHello\n", "\xef\xbb\xbfSubject: x\n", "Hello\n"},
	} {
		mail := []byte(crlf(c.mail))
		ix := message.Scan(mail)
		checkIndex(t, mail, ix)
		p := &ix.Parts[0]
		header, body := string(mail[:p.Header.Len]), string(mail[p.Body.Start:p.Body.End()])
		if header != crlf(c.header) || body != crlf(c.body) || p.Lines != int64(strings.Count(body, "\n")) {
			t.Errorf("%s: header %q, body %q of %d lines", c.name, header, body, p.Lines)
		}
		if got := string(ix.BodyStructure()); !strings.HasPrefix(got, structure) {
			t.Errorf("%s: %s", c.name, got)
		}
		envelope := message.Header(header).Envelope()
		if strings.Contains(header, "Subject") != (envelope.Subject == "x") || strings.Contains(header, "Subject") != bytes.Contains(message.AppendEnvelope(nil, []byte(header)), []byte(`"x"`)) {
			t.Errorf("%s: envelope %+v", c.name, envelope)
		}
		for at := range mail {
			var s message.Scanner
			_, _ = s.Write(mail[:at])
			_, _ = s.Write(mail[at:])
			if got := s.Finish(); !bytes.Equal(got.BodyStructure(), ix.BodyStructure()) || string(s.Header()) != header {
				t.Fatalf("%s: cut at %d, %s with the header %q", c.name, at, got.BodyStructure(), s.Header())
			}
		}
	}
}

func TestNoEmptyLineInParts(t *testing.T) {
	const text = `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" `
	for _, c := range []struct{ name, mail, want string }{
		{"before the first delimiter", "Content-Type: multipart/mixed; boundary=b\n--b\nContent-Type: text/html\n\n<p>\n--b--\n", `(("text" "html" ("charset" "us-ascii") NIL NIL "7bit" 3 0) "mixed")`},
		{"but another author", "From: a@x.example\nContent-Type: multipart/mixed; boundary=b\n--b\nFrom: b@x.example\n\nx\n--b--\n", `("text" "plain" ("boundary" "b") NIL NIL "7bit" 10 2)`},
		{"parts without a header", "Content-Type: multipart/mixed; boundary=b\n\n--b\nHello\nworld\n--b\nbye\n--b--\n", `(` + text + `12 1)` + text + `3 0) "mixed")`},
		{"part after part", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/alternative; boundary=c\n--c\nHello\n--c\nbye\n--c--\n--b--\n", `((` + text + `5 0)` + text + `3 0) "alternative") "mixed")`},
		{"a message in it", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: message/rfc822\n\nSubject: x\nHello\n--b--\n", `(("message" "rfc822" NIL NIL NIL "7bit" 17 (NIL "x" NIL NIL NIL NIL NIL NIL NIL NIL) ` + text + `5 0) 1) "mixed")`},
	} {
		mail := []byte(crlf(c.mail))
		ix := message.Scan(mail)
		checkIndex(t, mail, ix)
		if got := string(ix.Body()); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Nested headers of this kind cost no more than others of their size.
func TestNoEmptyLineLinear(t *testing.T) {
	nested := strings.Repeat("Content-Type: multipart/mixed; boundary=b\r\n--b\r\n", 2000)
	mail := []byte("Content-Type: multipart/mixed; boundary=o\r\n\r\n" + strings.Repeat("--o\r\n"+nested, 20))
	checkIndex(t, mail, message.Scan(mail))
}
