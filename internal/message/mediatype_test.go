// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// A malformed type counts as what it clearly means, else as plain text (RFC 2045 §5.2).
func TestContentTypes(t *testing.T) {
	const plain, html, file = `"text" "plain" ("charset" "us-ascii")`, `"text" "html" ("charset" "us-ascii")`, `"application" "octet-stream" NIL`
	for _, c := range []struct{ head, want string }{
		{"Content-Type:", plain},
		{"Content-Type: text", plain},
		{"Content-Type: text/", plain},
		{"Content-Type: /html", plain},
		{"Content-Type: html", plain},
		{"Content-Type: ;;=; \"", plain},
		{"Content-Type: @@", plain},
		{"Content-Type: (text/html)", plain},
		{"Content-Type: text/plain; charset", plain},
		{"Content-Type: \"text/plain\"", plain},
		{"Content-Type: 'text/html'", html},
		{"Content-Type: <text/html>", html},
		{"Content-Type: TEXT / HTML", html},
		{"Content-Type: text/html; ; =x; y", html},
		{"Content-Type: text/html, text/plain", html},
		{"Content-Type: Content-Type: text/html", html},
		{"Content-Type: text/html (a; b=c)", html},
		{"Content-Type: text/html\r\n charset=utf-8", `"text" "html" ("charset" "utf-8")`},
		{"Content-Type: \"text/html; charset=utf-8\"", `"text" "html" ("charset" "utf-8")`},
		{"Content-Type: text/html charset=utf-8 x=1; y=2", `"text" "html" ("charset" "utf-8" "x" "1" "y" "2")`},
		{"Content-Type: text/html, charset=\"utf-8\"; y=2", `"text" "html" ("charset" "utf-8" "y" "2")`},
		{"Content-Type: text/html:charset=utf-8", `"text" "html" ("charset" "utf-8")`},
		{"Content-Type: charset=utf-8", `"text" "plain" ("charset" "utf-8")`},
		{"Content-Type: application/pdf name=\"a b.pdf\"", `"application" "pdf" ("name" "a b.pdf")`},
		{"Content-Type: pdf; name=a.pdf", `"application" "octet-stream" ("name" "a.pdf")`},
		{"Content-Type: pdf\r\nContent-Disposition: \"attachment\"", file},
		{"Content-Disposition: inline; filename=a.pdf\r\nContent-Type: application", file},
		{"Content-Type: x\r\nContent-Type: text/html", plain},
		{"Content-Type: x/y/z", `"x" "y" NIL`},
	} {
		mail := c.head + "\r\n\r\n<p>"
		if got := string(message.Scan([]byte(mail)).BodyStructure()); !strings.HasPrefix(got, "("+c.want+" NIL NIL ") {
			t.Errorf("%q is %s, want %s", c.head, got, c.want)
		}
	}
	multipart := message.Scan([]byte("Content-Type: multipart/mixed boundary=b\r\n\r\n--b\r\nContent-Type: ?\r\n\r\nx\r\n--b--\r\n"))
	if got := string(multipart.BodyStructure()); !strings.HasPrefix(got, "(("+plain) || !strings.Contains(got, `"mixed" ("boundary" "b")`) {
		t.Errorf("a multipart is %s", got)
	}
	many := message.Scan([]byte("Content-Type: text/html" + strings.Repeat(" a=b", 1000) + strings.Repeat("; a=b", 1000) + "\r\n\r\n"))
	if n := len(many.Parts[0].Params); n > 64 {
		t.Errorf("%d parameters", n)
	}
}

func TestContentEncodings(t *testing.T) {
	for _, c := range []struct{ value, in, want string }{
		{"\"base64\"", "SGk=", "Hi"},
		{"base64;", "SGk=", "Hi"},
		{"(x) BASE64 (y)", "SGk=", "Hi"},
		{"'quoted-printable'", "=48i", "Hi"},
		{"8-Bit", "as it is=20", "as it is=20"},
	} {
		p := &message.Scan([]byte("Content-Transfer-Encoding: " + c.value + "\r\n\r\n" + c.in)).Parts[0]
		got, err := io.ReadAll(p.Decode(strings.NewReader(c.in)))
		if err != nil || !p.Decodable() || string(got) != c.want {
			t.Errorf("%s: %q, %v, decodable %t", c.value, got, err, p.Decodable())
		}
	}
}
