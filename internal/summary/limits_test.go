// SPDX-License-Identifier: Apache-2.0

package summary_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// check fails the test unless the result is within the limits, valid for JSON, and the same each
// time.
func check(t *testing.T, mail []byte) (summary.Summary, summary.Content) {
	t.Helper()
	ix := message.Scan(mail)
	s, c, err := summary.Read(bytes.NewReader(mail), ix)
	if err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal([]any{s, c})
	if err != nil {
		t.Fatal(err)
	}
	// Values without a named limit in summary.go have these limits. A file's name and type have
	// their own test.
	bounded := func(what, s string, most int) {
		t.Helper()
		if len(s) > most || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x1b\x7f\r") {
			t.Fatalf("%s of %d bytes: %.200q", what, len(s), s)
		}
	}
	for _, people := range [][]summary.Address{s.From, s.To, s.Cc, c.ReplyTo} {
		if len(people) > summary.MaxAddresses {
			t.Fatalf("%d people", len(people))
		}
		for _, p := range people {
			bounded("a name", string(p.Name), 512)
			bounded("an address", p.Email, 512)
		}
	}
	bounded("the subject", s.Subject, 2000)
	bounded("the id", s.MessageID, 998)
	bounded("the id of the answered", c.InReplyTo, 998)
	for _, id := range c.References {
		bounded("a reference", id, 998)
	}
	header := 0
	for _, f := range c.Headers {
		bounded("a field's name", f.Name, summary.MaxHeaderBytes)
		bounded("a field", f.Value, summary.MaxHeaderBytes)
		header += len(f.Name) + len(f.Value)
	}
	if len(c.References) > 20 || len(c.Headers) > summary.MaxHeaderFields || header > summary.MaxHeaderBytes || len(c.Attachments) > summary.MaxAttachments {
		t.Fatalf("%d references, %d fields of %d bytes, %d files", len(c.References), len(c.Headers), header, len(c.Attachments))
	}
	for _, text := range []*string{c.Text, c.HTML} {
		if text != nil {
			bounded("a text", *text, summary.MaxText)
		}
	}
	for i, f := range c.Attachments {
		bounded("a file's name", f.Filename, 255)
		bounded("a file's type", f.ContentType, 127)
		bounded("a file's id", string(f.ContentID), 255)
		if f.Number != i || f.Size < 0 || f.Size > int64(len(mail)) || strings.ContainsAny(f.Filename, `/\`) || f.Disposition != "inline" && f.Disposition != "attachment" {
			t.Fatalf("file %d is %+v", i, f)
		}
	}
	s, c, err = summary.Read(bytes.NewReader(mail), message.Scan(mail))
	again, _ := json.Marshal([]any{s, c})
	if err != nil || !bytes.Equal(all, again) {
		t.Fatalf("read again it is another: %v", err)
	}
	if short, err := summary.ReadSummary(bytes.NewReader(mail), ix); err != nil || fmt.Sprint(short.From, short.Subject) != fmt.Sprint(s.From, s.Subject) {
		t.Fatalf("the summary alone is %+v, %v", short, err)
	}
	return s, c
}

// Texts are cut between two characters, and the flag reports it. A text that just fits is complete.
func TestTextIsCut(t *testing.T) {
	repeat := func(s string, n int) string { return strings.Repeat(s, n/len(s)+1)[:n] }
	for _, c := range []struct {
		name, field, body string
		want              string
		more              bool
	}{
		{"just fits", "", repeat("abcdefg ", summary.MaxText), repeat("abcdefg ", summary.MaxText), false},
		{"one too many", "", repeat("abcdefg ", summary.MaxText+1), repeat("abcdefg ", summary.MaxText), true},
		{"with line ends it just fits", "", strings.Repeat("a\r\n", summary.MaxText/2), strings.Repeat("a\n", summary.MaxText/2), false},
		{"characters of three", "charset=utf-8", strings.Repeat("€", summary.MaxText), strings.Repeat("€", summary.MaxText/3), true},
		{"characters of four", "charset=utf-8", "x" + strings.Repeat("😀", summary.MaxText), "x" + strings.Repeat("😀", summary.MaxText/4-1), true},
		{"grown by a charset", "charset=iso-8859-1", strings.Repeat("\xe4", summary.MaxText), strings.Repeat("ä", summary.MaxText/2), true},
		{"grown to just fit", "charset=iso-8859-1", strings.Repeat("\xe4", summary.MaxText/2), strings.Repeat("ä", summary.MaxText/2), false},
		{"two octets each", "charset=gb18030", strings.Repeat("\xc4\xe3", summary.MaxText), strings.Repeat("你", summary.MaxText/3), true},
		{"controls, then the limit of what is decoded", "charset=utf-8", strings.Repeat("\x01", 131_075) + "€€", "", true},
	} {
		_, got := check(t, []byte("Content-Type: text/plain; "+c.field+"\r\n\r\n"+c.body))
		if got.Text == nil || *got.Text != c.want || got.TextTruncated != c.more || got.HTMLTruncated {
			t.Errorf("%s: %d bytes (%.20q…), %t, want %d", c.name, len(*got.Text), *got.Text, got.TextTruncated, len(c.want))
		}
	}
	// A megabyte of base64 text is decoded, even if the result is empty.
	raw := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x01", 786_430) + "€€€"))
	if _, got := check(t, []byte("Content-Transfer-Encoding: base64\r\n\r\n"+raw)); strings.Trim(*got.Text, "€") != "" || !got.TextTruncated {
		t.Errorf("a cut in the base64: %q, %t", *got.Text, got.TextTruncated)
	}
	parts := func(n int, body string) []byte {
		return []byte("Content-Type: multipart/mixed; boundary=x\r\n\r\n" + strings.Repeat("--x\r\nContent-Type: text/html\r\n\r\n"+body+"\r\n", n) + "--x--\r\n")
	}
	for _, c := range []struct {
		n    int
		body string
		want string
		more bool
	}{
		{100, "ä", strings.Repeat("ä\n", 99) + "ä", false},
		{101, "ä", strings.Repeat("ä\n", 99) + "ä\n", true},
		{3, strings.Repeat("x", 30_000), strings.Repeat("x", 30_000) + "\n" + strings.Repeat("x", 30_000) + "\n" + strings.Repeat("x", 5534), true},
	} {
		_, got := check(t, parts(c.n, c.body))
		if strings.TrimSuffix(*got.HTML, "\n") != strings.TrimSuffix(c.want, "\n") || got.HTMLTruncated != c.more || got.Text != nil {
			t.Errorf("%d parts: %d bytes, %t", c.n, len(*got.HTML), got.HTMLTruncated)
		}
	}
}

func TestHeaderIsCut(t *testing.T) {
	_, c := check(t, []byte(strings.Repeat("A: b\r\n", summary.MaxHeaderFields)+"\r\n"))
	if len(c.Headers) != summary.MaxHeaderFields || c.HeadersTruncated {
		t.Errorf("%d fields, %t", len(c.Headers), c.HeadersTruncated)
	}
	_, c = check(t, []byte(strings.Repeat("A: b\r\n", summary.MaxHeaderFields+1)+"\r\n"))
	if len(c.Headers) != summary.MaxHeaderFields || !c.HeadersTruncated {
		t.Errorf("%d fields, %t", len(c.Headers), c.HeadersTruncated)
	}
	for _, long := range []string{strings.Repeat("€", 100_000), "x" + strings.Repeat("€", 100_000), strings.Repeat("=?utf-8?Q?=E2=82=AC?= ", 20_000)} {
		_, c = check(t, []byte("A: b\r\nX: "+long+"\r\nB: c\r\n\r\n"))
		if len(c.Headers) != 2 || !c.HeadersTruncated {
			t.Fatalf("%d fields, %t", len(c.Headers), c.HeadersTruncated)
		}
		if v := c.Headers[1].Value; strings.Trim(v, "€x ") != "" || len(v) < 10_000 {
			t.Errorf("a long field has %d bytes: %.20q…%q", len(v), v, v[max(0, len(v)-20):])
		}
	}
	many := strings.Repeat("Ann <ann@x.example>, ", 60)
	s, c := check(t, []byte("From: "+many+"\r\nTo: "+many+"\r\nCc: "+many+"\r\nReply-To: "+many+"\r\nSubject: x"+strings.Repeat("€", 1000)+
		"\r\nReferences: "+strings.Repeat("<a@x> ", 20)+strings.Repeat("<b@x> ", 20)+"\r\n\r\n"))
	if len(s.From) != 50 || len(s.To) != 50 || len(s.Cc) != 50 || len(c.ReplyTo) != 50 || s.Subject != "x"+strings.Repeat("€", 666) || strings.Join(c.References, "") != strings.Repeat("<b@x>", 20) {
		t.Errorf("people %d %d %d, subject of %d bytes, references %q", len(s.From), len(s.To), len(s.Cc), len(s.Subject), c.References)
	}
}

// hostile returns messages designed to take long, whose size grows with n.
func hostile(n int) map[string]string {
	repeat := func(s string) string { return strings.Repeat(s, n/len(s)) }
	var nested, embedded strings.Builder
	for i := 0; nested.Len() < n; i++ {
		fmt.Fprintf(&nested, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
		embedded.WriteString("Content-Type: message/rfc822\r\n\r\n")
	}
	const multipart = "Content-Type: multipart/mixed; boundary=x\r\n\r\n"
	words := "=?gb18030?Q?a?= =?big5?Q?a?= "
	return map[string]string{
		"nested":             nested.String(),
		"embedded":           embedded.String(),
		"parts":              multipart + repeat("--x\r\n\r\n"),
		"files":              multipart + repeat("--x\r\nContent-Type: a/b; name=c\r\n\r\n\r\n"),
		"long names":         multipart + repeat("--x\r\nContent-Type: text/plain; name=\""+strings.Repeat(words, 100)+"\"\r\n\r\n\r\n"),
		"a long name":        "Content-Type: text/plain; name=\"" + repeat(words) + "\"\r\n\r\n",
		"a long charset":     "Content-Type: text/plain; charset=\"" + repeat(words) + "\"\r\n\r\nx",
		"pieces of a name":   "Content-Type: text/plain; " + repeat("name*0*=a; ") + "\r\n\r\n",
		"a long subject":     "Subject: " + repeat("=?a?q?x") + "\r\n\r\n",
		"charsets":           "Subject: " + repeat(words) + "\r\n\r\n",
		"no colon":           repeat("abc\r\n"),
		"folds":              "Subject: " + repeat("\r\n ") + "\r\n\r\n",
		"comments":           "From: " + repeat("(") + "\r\nDate: " + repeat("(") + "\r\n\r\n",
		"routes":             "From: " + repeat("<@a,") + "\r\n\r\n",
		"addresses":          "To: " + repeat("a,") + "\r\n\r\n",
		"many To":            repeat("To: a\r\n") + "\r\n",
		"references":         "References: " + repeat("<a>") + "\r\n\r\n",
		"open references":    "References: " + repeat("<a b") + "\r\n\r\n",
		"soft line ends":     "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + repeat("=\r\n"),
		"broken escapes":     "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + repeat("=="),
		"white space":        "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + repeat("  \t"),
		"padding":            "Content-Transfer-Encoding: base64\r\n\r\n" + repeat("A==="),
		"escapes of a shift": "Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n" + repeat("\x1b$B\x1b(B"),
		"no UTF-16":          "Content-Type: text/plain; charset=utf-16\r\n\r\n" + repeat("\xd8\x00"),
	}
}

// A megabyte of anything can be read; an algorithm that isn't linear would take hours here.
func TestHostile(t *testing.T) {
	for name, mail := range hostile(1 << 20) {
		t.Run(name, func(t *testing.T) { check(t, []byte(mail)) })
	}
	const parts = 100_000
	_, c := check(t, []byte("Content-Type: multipart/mixed; boundary=x\r\n\r\n"+strings.Repeat("--x\r\nContent-Type: a/b\r\n\r\nc\r\n", parts)+"--x--\r\n"))
	if len(c.Attachments) != summary.MaxAttachments || !c.AttachmentsTruncated {
		t.Errorf("%d files, %t", len(c.Attachments), c.AttachmentsTruncated)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.eml"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range files {
		mail, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(mail)
	}
	for _, mail := range hostile(1000) {
		f.Add([]byte(mail))
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		_, c := check(t, mail)
		ix := message.Scan(mail)
		for n := range c.Attachments {
			file, r, ok, err := summary.OpenAttachment(bytes.NewReader(mail), ix, n)
			if err != nil || !ok || file != c.Attachments[n] {
				t.Fatalf("file %d is %+v, %t, %v", n, file, ok, err)
			}
			if size, err := bytes.NewBuffer(nil).ReadFrom(r); err != nil || size > int64(len(mail)) {
				t.Fatalf("file %d has %d bytes, %v", n, size, err)
			}
		}
		if _, _, ok, _ := summary.OpenAttachment(bytes.NewReader(mail), ix, len(ix.Parts)); ok {
			t.Fatal("there are more files than parts")
		}
	})
}
