// SPDX-License-Identifier: Apache-2.0

package summary_test

import (
	"bytes"

	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// crlf converts a test's line ends to those of mail.
func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

func read(t *testing.T, mail string) (summary.Summary, summary.Content) {
	t.Helper()
	s, c, err := summary.Read(strings.NewReader(mail), message.Scan([]byte(mail)))
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// shown returns a text, or <none>; "…" means that it was cut.
func shown(text *string, more bool) string {
	out := "<none>"
	if text != nil {
		out = *text
	}
	if more {
		out += "…"
	}
	return out
}

// list lists the files, one per line.
func list(c summary.Content) string {
	var lines []string
	for _, f := range c.Attachments {
		line := fmt.Sprintf("%d %q %s %d %s", f.Number, f.Filename, f.ContentType, f.Size, f.Disposition)
		if f.ContentID != "" {
			line += " cid:" + string(f.ContentID)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestContent(t *testing.T) {
	for _, c := range []struct{ name, mail, text, html, files string }{
		{"plain", "Subject: x\n\nHello\nworld\n", "Hello\nworld\n", "<none>", ""},
		{"empty", "", "", "<none>", ""},
		{"a header alone", "Subject: x\n", "", "<none>", ""},
		{"an empty body", "Subject: x\n\n", "", "<none>", ""},
		{"HTML alone", "Content-Type: text/html\n\n<p>", "<none>", "<p>", ""},
		{"a file alone", "Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\nAAAA\n", "<none>", "<none>", `0 "" application/pdf 3 attachment`},
		{"nested", `Content-Type: multipart/mixed; boundary=m

--m
Content-Type: multipart/alternative; boundary=a

--a

Hello
--a
Content-Type: multipart/related; boundary=r

--r
Content-Type: text/html; charset=utf-8

<img src="cid:l@x">
--r
Content-Type: image/png; name=l.png
Content-ID: <l@x>
Content-Transfer-Encoding: base64

iVBORw==
--r--
--a--
--m
Content-Type: text/plain; name=notes.txt

notes
--m
Content-Type: text/plain

-- the list's footer
--m--
`, "Hello\n-- the list's footer", `<img src="cid:l@x">`, "0 \"l.png\" image/png 4 inline cid:l@x\n1 \"notes.txt\" text/plain 5 attachment"},
		{"a message within", `Content-Type: multipart/mixed; boundary=m

--m

See below.
--m
Content-Type: message/rfc822; name="fwd.eml"

Subject: inner
Content-Type: multipart/mixed; boundary=i

--i

inner text
--i
Content-Type: application/pdf; name=inner.pdf

x
--i--
--m
Content-Type: text/html
Content-Disposition: attachment

<p>
--m--
`, "See below.", "<none>", "0 \"fwd.eml\" message/rfc822 142 attachment\n1 \"\" text/html 3 attachment"},
		{"no boundary given", "Content-Type: multipart/mixed\n\n--x\n\nHello\n--x--\n", "--x\n\nHello\n--x--\n", "<none>", ""},
		{"a boundary that never comes", "Content-Type: multipart/mixed; boundary=y\n\n--x\n\nHello\n", "--x\n\nHello\n", "<none>", ""},
		{"a boundary that never ends", "Content-Type: multipart/mixed; boundary=x\n\n--x\n\nHello\n", "Hello\n", "<none>", ""},
		{"an empty part", "Content-Type: multipart/mixed; boundary=x\n\n--x\n\n--x\nContent-Type: text/html\n\n--x--\n", "", "", ""},
		{"a type that is none", "Content-Type: text\n\nHello", "Hello", "<none>", ""},
		{"an unknown type", "Content-Type: x\n\nHello", "Hello", "<none>", ""},
		{"an unknown type of a file", "Content-Type: x\nContent-Disposition: inline; filename=a.pdf\n\nHello", "<none>", "<none>", `0 "a.pdf" application/octet-stream 5 inline`},
		{"no semicolon", "Content-Type: text/html charset=iso-8859-15\n\n\xa4", "<none>", "€", ""},
		{"a calendar", "Content-Type: text/calendar; method=REQUEST\n\nBEGIN", "<none>", "<none>", `0 "" text/calendar 5 attachment`},
		{"in any case", "CONTENT-TYPE: TEXT/HTML; CHARSET=\"ISO-8859-1\"\nCONTENT-TRANSFER-ENCODING: Quoted-Printable\n\n=E4=\nb", "<none>", "äb", ""},
		{"latin 1", "Content-Type: text/plain; charset=iso-8859-1\n\nGr\xfc\xdfe", "Grüße", "<none>", ""},
		{"windows-1252", "Content-Type: text/plain; charset=windows-1252\n\n\x80 \x93a\x94", "€ “a”", "<none>", ""},
		{"iso-2022-jp", "Content-Type: text/plain; charset=iso-2022-jp\n\n\x1b$B$3$s\x1b(B!", "こん!", "<none>", ""},
		{"gb18030", "Content-Type: text/plain; charset=gb18030\n\n\xc4\xe3\xba\xc3", "你好", "<none>", ""},
		{"an unknown charset", "Content-Type: text/plain; charset=klingon\n\n\xe4 ü", "ä ü", "<none>", ""},
		{"a charset that is a lie", "Content-Type: text/plain; charset=us-ascii\n\nGrüße \xe4", "Grüße ä", "<none>", ""},
		{"broken base64", "Content-Transfer-Encoding: base64\n\nSGVs*bG8=\n!!IQ\n", "Hello!", "<none>", ""},
		{"broken quoted-printable", "Content-Transfer-Encoding: quoted-printable\n\na=ZZ=4 =C3=A4=\n!=", "a=ZZ=4 ä!", "<none>", ""},
		{"uuencode", "Content-Transfer-Encoding: x-uuencode\n\nbegin 644 a.txt\n#0V%T\n`\nend\n", "Cat", "<none>", ""},
		{"a file in uuencode", "Content-Type: image/gif\nContent-Transfer-Encoding: uuencode\n\nbegin 644 a.gif\n#0V%T\n`\nend\n", "<none>", "<none>", `0 "" image/gif 3 attachment`},
		{"an unknown encoding", "Content-Transfer-Encoding: rot13\n\nUryyb", "Uryyb", "<none>", ""},
		{"bare line ends, controls", "X: y\n\na\x00\x1b[1mb\x7f\tc", "a[1mb\tc", "<none>", ""},
	} {
		_, got := read(t, crlf(c.mail))
		if text := shown(got.Text, got.TextTruncated); text != c.text {
			t.Errorf("%s: text %q, want %q", c.name, text, c.text)
		}
		if html := shown(got.HTML, got.HTMLTruncated); html != c.html {
			t.Errorf("%s: HTML %q, want %q", c.name, html, c.html)
		}
		if files := list(got); files != c.files || got.AttachmentsTruncated {
			t.Errorf("%s: files\n%s\nwant\n%s", c.name, files, c.files)
		}
	}
}

// A body with a file name is still a body; another text with a file name is a file.
func TestNamedBodies(t *testing.T) {
	part := func(head, body string) string { return "--m\n" + head + "\n\n" + body + "\n" }
	multipart := func(subtype string, parts ...string) string {
		return "Content-Type: multipart/" + subtype + "; boundary=m\n\n" + strings.Join(parts, "") + "--m--\n"
	}
	nested := func(outer, inner string) string { // the inner multipart first
		return strings.Replace(outer, "--m\n", "--m\n"+strings.ReplaceAll(inner, "m\n", "i\n")+"\n--m\n", 1)
	}
	inner := strings.ReplaceAll(multipart("related", part("Content-Type: text/html; name=a.html", "<p>"), part("Content-Type: image/png; name=b.png", "x")), "--m", "--i")
	plain, html := "Content-Type: text/plain; name=\"message body.txt\"", "Content-Type: text/html\nContent-Disposition: inline; filename*=utf-8''%C3%A4.html"
	for _, c := range []struct{ name, mail, text, html, files string }{
		{"alone", plain + "\n\nHello", "Hello", "<none>", ""},
		{"HTML alone", html + "\n\n<p>", "<none>", "<p>", ""},
		{"alone, as an attachment", plain + "\nContent-Disposition: attachment\n\nHello", "<none>", "<none>", `0 "message body.txt" text/plain 5 attachment`},
		{"in an alternative", multipart("alternative", part(plain, "Hello"), part(html, "<p>")), "Hello", "<p>", ""},
		{"in an alternative, one as an attachment", multipart("alternative", part(plain, "Hello"), part("Content-Disposition: attachment\n"+plain, "x")), "Hello", "<none>", `0 "message body.txt" text/plain 1 attachment`},
		{"first", multipart("mixed", part(plain, "Hello"), part(plain, "notes")), "Hello", "<none>", `0 "message body.txt" text/plain 5 attachment`},
		{"behind a picture", multipart("mixed", part("Content-Type: image/gif; name=a.gif", "x"), part(plain, "Hello"), part(html, "<p>")), "Hello", "<none>", "0 \"a.gif\" image/gif 1 attachment\n1 \"ä.html\" text/html 3 inline"},
		{"behind a text", multipart("mixed", part("Content-Type: text/plain", "Hello"), part(html, "<p>")), "Hello", "<none>", `0 "ä.html" text/html 3 inline`},
		{"with pictures, in an alternative", nested(multipart("alternative", part(plain, "Hello")), strings.Replace(inner, "boundary=m", "boundary=i", 1)), "Hello", "<p>", `0 "b.png" image/png 1 attachment`},
		{"in a message within", multipart("mixed", part("Content-Type: message/rfc822", plain+"\n\ninner"), part(plain, "Hello")), "Hello", "<none>", `0 "" message/rfc822 58 attachment`},
	} {
		_, got := read(t, crlf(c.mail))
		if text, html := shown(got.Text, got.TextTruncated), shown(got.HTML, got.HTMLTruncated); text != c.text || html != c.html || list(got) != c.files {
			t.Errorf("%s: text %q, HTML %q, files\n%s\nwant %q, %q\n%s", c.name, text, html, list(got), c.text, c.html, c.files)
		}
		mail := crlf(c.mail)
		want := c.text
		if want == "<none>" {
			want = ""
		}
		if preview, err := summary.Preview(strings.NewReader(mail), message.Scan([]byte(mail))); err != nil || preview != want {
			t.Errorf("%s: preview %q, %v", c.name, preview, err)
		}
	}
}

func TestFileNames(t *testing.T) {
	long := strings.Repeat("ä", 200) + ".tar.gz"
	for field, want := range map[string]string{
		`Content-Disposition: attachment; filename="a b;c.pdf"`:                                                   "a b;c.pdf",
		`Content-Disposition: attachment; filename=a b.pdf`:                                                       "a b.pdf",
		`Content-Disposition: attachment; filename="=?utf-8?B?w6QucGRm?="`:                                        "ä.pdf",
		`Content-Disposition: attachment; filename*=iso-8859-1'de'%E4.pdf; filename=a.pdf`:                        "ä.pdf",
		"Content-Disposition: attachment; filename*1*=%A4%2E; filename*0*=utf-8''%C3;\n filename*2=\"p df\"":      "ä.p df",
		`Content-Disposition: attachment; filename*0=one; filename*2=three`:                                       "one",
		`Content-Type: application/pdf; name=b.pdf`:                                                               "b.pdf",
		"Content-Disposition: attachment; filename=\"\xe4.pdf\"":                                                  "ä.pdf",
		`Content-Disposition: attachment; filename="..\\..\\autoexec.bat"`:                                        "autoexec.bat",
		`Content-Disposition: attachment; filename="/"`:                                                           "",
		`Content-Disposition: attachment; filename="..."`:                                                         "",
		`Content-Disposition: attachment; filename*=utf-8''a%00%0D%0Ab%E2%80%AEc%EF%BB%BF%E2%80%A8.exe`:           "abc.exe",
		`Content-Disposition: attachment; filename*=utf-8''` + long:                                               strings.Repeat("ä", 126) + ".gz",
		`Content-Disposition: attachment; filename="` + strings.Repeat("=?utf-8?Q?=C3=A4?= ", 10_000) + `"`:       strings.Repeat("ä", 127),
		`Content-Disposition: attachment; filename="` + strings.Repeat("ä", 10_000) + `.exe"`:                     strings.Repeat("ä", 127),
		`Content-Type: image/gif; name="` + strings.Repeat("x", 100) + `"`:                                        strings.Repeat("x", 100),
		"Content-Type: application/" + strings.Repeat("x", 200) + "\nContent-Disposition: attachment; filename=a": "a",
	} {
		_, c := read(t, crlf(field+"\n\nx"))
		if len(c.Attachments) != 1 || c.Attachments[0].Filename != want || len(c.Attachments[0].ContentType) > 127 {
			t.Errorf("%.100s: %+v, want %q", field, c.Attachments, want)
		}
	}
	if _, c := read(t, "Content-Disposition: inline; filename*=utf-8''; name=\""+strings.Repeat("x", 100)+"\"\r\n\r\nx"); c.Text == nil || len(c.Attachments) > 0 {
		t.Errorf("a text without a name: %+v", c)
	}
}

func TestHeader(t *testing.T) {
	s, c := read(t, crlf(`Return-Path: <bob@x.example>
From: =?iso-8859-1?Q?B=F6b?= <bob@x.example>,
 "Lee, Ann" <ann@x.example>
To: Team: a@x.example, B <b@x.example>;
Cc: c@x.example
Cc: d@x.example (Dee)
Subject: =?utf-8?B?R3I=?= =?utf-8?B?w7zDnw==?=
 =?utf-8?Q?e?= and  more
Subject: another
Date: Sat, 31 Jan 2026 10:00:00 +0100
Message-ID: <1@x.example>
In-Reply-To: your message <0@x.example>
References: <a@x.example>
 <0@x.example>
Reply-To: desk@x.example
X-Eight: Grüße
X-Bad: `+"\xe4\x00\x1b"+`
no field
X-Empty:

body`))
	got, err := apijson.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"message_id":"<1@x.example>","from":[{"name":"Böb","email":"bob@x.example"},{"name":"Lee, Ann","email":"ann@x.example"}],` +
		`"to":[{"name":null,"email":"a@x.example"},{"name":"B","email":"b@x.example"}],"cc":[{"name":null,"email":"c@x.example"},{"name":"Dee","email":"d@x.example"}],` +
		`"subject":"Grüße and  more","date":"2026-01-31T09:00:00.000Z"}`
	if string(got) != want {
		t.Errorf("it is\n%s, want\n%s", got, want)
	}
	if c.InReplyTo != "<0@x.example>" || strings.Join(c.References, " ") != "<a@x.example> <0@x.example>" || len(c.ReplyTo) != 1 || c.ReplyTo[0].Email != "desk@x.example" {
		t.Errorf("its content is %+v", c)
	}
	var fields []string
	for _, f := range c.Headers {
		fields = append(fields, f.Name+"="+f.Value)
	}
	lines := strings.Join(fields, "\n")
	if !strings.HasPrefix(lines, "Return-Path=<bob@x.example>\nFrom=Böb <bob@x.example>, \"Lee, Ann\" <ann@x.example>\n") ||
		!strings.HasSuffix(lines, "\nX-Eight=Grüße\nX-Bad=ä \nX-Empty=") || !strings.Contains(lines, "\nSubject=Grüße and  more\nSubject=another\n") || c.HeadersTruncated {
		t.Errorf("its fields are\n%s", lines)
	}
	if s, c = read(t, "Date: yesterday\r\nMessage-ID: none\r\nFrom: nobody at all\r\n\r\n"); s.Date != nil || s.MessageID != "" || len(s.From) != 1 || s.To == nil || c.References == nil {
		t.Errorf("what can't be read: %+v, %+v", s, c)
	}
}

// Check results come only from the service; a sender's fields of that kind are ordinary fields.
func TestResults(t *testing.T) {
	for said, want := range map[string]summary.CheckResults{
		"":                                 {SPF: "none", DKIM: "none", DMARC: "none", Spam: "none"},
		"spf=pass dkim=fail spam=spam":     {SPF: "pass", DKIM: "fail", DMARC: "none", Spam: "spam"},
		"xspf=pass spf dmarc=pass spf=":    {SPF: "none", DKIM: "none", DMARC: "pass", Spam: "none"},
		"dmarc=permerror spf=temperror\n ": {SPF: "temperror", DKIM: "none", DMARC: "permerror", Spam: "none"},
	} {
		got := summary.ParseCheckResults(said)
		if got != want || summary.ParseCheckResults(got.String()) != want {
			t.Errorf("%q says %+v", said, got)
		}
	}
	if (summary.CheckResults{}).String() != "" || (summary.CheckResults{}).WithDefaults().String() != "" {
		t.Error("no verdict is told")
	}
}

// A read error is returned, and isn't taken for an empty message.
func TestBrokenStorage(t *testing.T) {
	broken := errors.New("the disk is dead")
	head := "Content-Type: multipart/mixed; boundary=x\r\n\r\n"
	for _, part := range []string{"Content-Type: text/plain", "Content-Type: text/html", "Content-Type: a/b\r\nContent-Transfer-Encoding: base64", "Content-Type: a/b\r\nContent-Transfer-Encoding: quoted-printable"} {
		mail := head + "--x\r\n" + part + "\r\n\r\nAAAA\r\n--x--\r\n"
		ix := message.Scan([]byte(mail))
		for _, from := range []int64{0, int64(len(head))} {
			if _, _, err := summary.Read(&failing{strings.NewReader(mail), from, broken}, ix); !errors.Is(err, broken) {
				t.Errorf("%s from %d: %v", part, from, err)
			}
		}
	}
}

// failing is an io.ReaderAt that fails beyond an offset.
type failing struct {
	r    io.ReaderAt
	from int64
	err  error
}

// ReadAt implements io.ReaderAt.
func (f *failing) ReadAt(p []byte, at int64) (int, error) {
	if at >= f.from {
		return 0, f.err
	}
	return f.r.ReadAt(p, at)
}

func TestOpen(t *testing.T) {
	mail := []byte(crlf(`Content-Type: multipart/mixed; boundary=m

--m

text
--m
Content-Type: application/zip; name=a.zip
Content-Transfer-Encoding: base64

UEsDBA==
--m
Content-Type: message/rfc822

Subject: inner
Content-Type: application/pdf

%PDF
--m--
`))
	ix := message.Scan(mail)
	for n, want := range []string{"PK\x03\x04", "Subject: inner\r\nContent-Type: application/pdf\r\n\r\n%PDF"} {
		f, r, ok, err := summary.OpenAttachment(bytes.NewReader(mail), ix, n)
		if err != nil || !ok {
			t.Fatal(n, ok, err)
		}
		if err := iotest.TestReader(r, []byte(want)); err != nil || f.Number != n || f.Size != int64(len(want)) {
			t.Errorf("file %d, %+v: %v", n, f, err)
		}
	}
	for _, n := range []int{-1, 2, 1 << 30} {
		if _, _, ok, err := summary.OpenAttachment(bytes.NewReader(mail), ix, n); ok || err != nil {
			t.Errorf("file %d: %v, %v", n, ok, err)
		}
	}
}
