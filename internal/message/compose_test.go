// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

var update = flag.Bool("update", false, "write the golden files")

func content(s string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(s)), nil }
}

func boundaries() func() string {
	n := 0
	return func() string { n++; return fmt.Sprint("=_b", n) }
}

func draft() *message.Draft {
	return &message.Draft{
		Date:      time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
		MessageID: "<0193@demo.test>",
		From:      message.Address{Name: "Alice", Local: "alice", Domain: "demo.test"},
		To:        []message.Address{{Local: "bob", Domain: "demo.test"}},
		Subject:   "Hello",
		Text:      "Hello Bob,\nhow are you?\n",
		Boundary:  boundaries(),
	}
}

func compose(t testing.TB, d *message.Draft) (string, message.ComposeResult) {
	t.Helper()
	var b bytes.Buffer
	c, err := message.Compose(&b, d)
	if err != nil {
		t.Fatalf("Compose: %v", err)
	}
	if c.Size != int64(b.Len()) {
		t.Errorf("size %d of %d", c.Size, b.Len())
	}
	return b.String(), c
}

func TestComposeGolden(t *testing.T) {
	full := draft()
	full.From.Name = `Müller, "Ali"`
	full.To = []message.Address{
		{Name: "Bob B. Example", Local: "bob", Domain: "demo.test"}, {Local: "o'brien", Domain: "demo.test"},
		{Name: "日本語の名前がとても長いのでエンコードされた単語が複数になります", Local: "with space", Domain: "demo.test"},
	}
	full.Cc = []message.Address{{Name: "Team", Local: "team", Domain: "demo.test"}}
	full.ReplyTo = []message.Address{{Local: "reply", Domain: "demo.test"}}
	full.Subject = "Grüße aus Köln: a subject that is so long that it needs more than one line, 100 % sure"
	full.InReplyTo = "<0192@demo.test>"
	for i := range 30 {
		full.References = append(full.References, fmt.Sprintf("<r%d@demo.test>", i))
	}
	full.Unsubscribe = message.ListUnsubscribe{URL: "https://demo.test/u/1", Mailto: "leave@demo.test"}
	full.ExtraFields = []message.ExtraField{{Name: "X-Order", Value: "12"}, {Name: "X-Note", Value: "naïve"}, {Name: "X-Literal", Value: "=?utf-8?q?no?="}}
	full.Text = "Grüße,\n" + strings.Repeat("long ", 300) + "\n"
	full.HTML = `<p>Grüße <img src="cid:logo"></p>`
	full.Attachments = []message.Attachment{
		{Filename: "logo.png", ContentID: "logo", Inline: true, Open: content("PNG\x00\x01")},
		{Filename: "Übersicht für das zweite Halbjahr mit einem sehr langen Namen, der nicht endet.pdf", Open: content(strings.Repeat("PDF", 100))},
		{Filename: "mail.eml", Open: content("Subject: inner\n\nHi\n")},
		{Filename: "8bit.eml", ContentType: "message/rfc822", Open: content("Subject: inner\r\n\r\nHü\r\n")},
		{Filename: "data.csv", ContentType: `text/csv; charset="utf-8"`, Open: content("a;b\n")},
	}
	htmlOnly := draft()
	htmlOnly.Text, htmlOnly.HTML = "", "<p>Hi</p>"
	htmlOnly.To = nil
	eai := draft()
	eai.To = []message.Address{{Name: "Jörg", Local: "jörg", Domain: "bücher.test"}}
	noText := draft()
	noText.Text = ""
	noText.Attachments = []message.Attachment{{Filename: "a.txt", Inline: true, Open: content("x")}}
	for _, c := range []struct {
		name string
		d    *message.Draft
		utf8 bool
	}{{"plain", draft(), false}, {"full", full, false}, {"html", htmlOnly, false}, {"eai", eai, true}, {"attachment", noText, false}} {
		t.Run(c.name, func(t *testing.T) {
			got, composed := compose(t, c.d)
			if composed.NeedsUTF8 != c.utf8 {
				t.Errorf("NeedsUTF8 = %v", composed.NeedsUTF8)
			}
			path := filepath.Join("testdata", "compose", c.name+".eml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			checkMail(t, got, !c.utf8)
		})
	}
}

// checkMail checks the properties of all composed mail.
func checkMail(t interface{ Errorf(string, ...any) }, mail string, ascii bool) {
	if !strings.HasSuffix(mail, "\r\n") {
		t.Errorf("the mail does not end in a line end: %q", mail[max(0, len(mail)-40):])
	}
	for line := range strings.SplitSeq(mail, "\r\n") {
		if len(line) > 998 {
			t.Errorf("a line has %d octets", len(line))
		}
		if strings.ContainsAny(line, "\r\n\x00") {
			t.Errorf("bare line end or NUL in %q", line)
		}
	}
	if ascii && strings.ContainsFunc(mail, func(r rune) bool { return r >= 0x80 }) {
		t.Errorf("not 7-bit: %q", mail)
	}
}

func TestComposeReadsBack(t *testing.T) {
	d := draft()
	d.HTML = "<b>é</b>"
	name := "Übersicht – final.pdf"
	pdf := strings.Repeat("\x00\xffPDF", 10_000)
	d.Attachments = []message.Attachment{{Filename: name, Open: content(pdf)}}
	mail, _ := compose(t, d)
	ix := message.Scan([]byte(mail))
	if got := string(ix.Body()); !strings.Contains(got, `"alternative")("application" "pdf"`) {
		t.Errorf("BODY = %s", got)
	}
	p := ix.Part([]int{2})
	parts := ix.ContentParts()
	if p.Filename() != name || len(parts.Attachments) != 1 || &ix.Parts[parts.Attachments[0]] != p {
		t.Errorf("filename %q", p.Filename())
	}
	got, err := io.ReadAll(p.Decode(strings.NewReader(mail[p.Body.Start:p.Body.End()])))
	if err != nil || string(got) != pdf {
		t.Errorf("the attachment came back as %d bytes, %v", len(got), err)
	}
	if len(parts.Text) != 1 || len(parts.HTML) != 1 {
		t.Fatalf("its parts: %+v", parts)
	}
	p = ix.Part([]int{1, 2})
	text, err := io.ReadAll(p.Text(strings.NewReader(mail[p.Body.Start:p.Body.End()]), 100))
	if err != nil || string(text) != d.HTML {
		t.Errorf("html = %q, %v", text, err)
	}
}

func TestComposeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, field string
		spoil       func(*message.Draft)
	}{
		{"subject", "subject", func(d *message.Draft) { d.Subject = "a\r\nBcc: x@y" }},
		{"LF", "subject", func(d *message.Draft) { d.Subject = "a\nb" }},
		{"NUL", "subject", func(d *message.Draft) { d.Subject = "a\x00b" }},
		{"name", "from_name", func(d *message.Draft) { d.From.Name = "a\rb" }},
		{"address", "to[0]", func(d *message.Draft) { d.To[0].Domain = "demo.test>\r\nX: y" }},
		{"half literal", "to[0]", func(d *message.Draft) { d.To[0].Domain = "[" }},
		{"local", "cc[0]", func(d *message.Draft) { d.Cc = []message.Address{{Local: "a\nb", Domain: "c"}} }},
		{"id", "message_id", func(d *message.Draft) { d.MessageID = "" }},
		{"in reply to", "in_reply_to", func(d *message.Draft) { d.InReplyTo = "<a> <b>" }},
		{"references", "references[1]", func(d *message.Draft) { d.References = []string{"<a@b>", "x"} }},
		{"extra name", "headers", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Name: "X-A\r\nBcc", Value: "x"}} }},
		{"extra colon", "headers", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Name: "X:A", Value: "x"}} }},
		{"extra empty", "headers", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Value: "x"}} }},
		{"extra own", "headers", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Name: "bcc", Value: "x"}} }},
		{"extra content", "headers", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Name: "Content-Foo", Value: "x"}} }},
		{"extra value", "headers.X-A", func(d *message.Draft) { d.ExtraFields = []message.ExtraField{{Name: "X-A", Value: "x\r\n\r\ny"}} }},
		{"filename", "attachments[0].filename", func(d *message.Draft) { d.Attachments = []message.Attachment{{Filename: "a\nb"}} }},
		{"content type", "attachments[0].content_type", func(d *message.Draft) {
			d.Attachments = []message.Attachment{{ContentType: "text/plain\r\nX: y"}}
		}},
		{"multipart", "attachments[0].content_type", func(d *message.Draft) {
			d.Attachments = []message.Attachment{{ContentType: "Multipart/mixed; boundary=x"}}
		}},
		{"content id", "attachments[0].content_id", func(d *message.Draft) { d.Attachments = []message.Attachment{{ContentID: "a b"}} }},
		{"unsubscribe", "unsubscribe.url", func(d *message.Draft) { d.Unsubscribe.URL = "https://x/>\r\n" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := draft()
			c.spoil(d)
			var b bytes.Buffer
			_, err := message.Compose(&b, d)
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Path != c.field {
				t.Errorf("err = %v, want one about %s", err, c.field)
			}
			if b.Len() > 0 {
				t.Errorf("wrote %q", b.String())
			}
		})
	}
}

func TestComposeGivesReadError(t *testing.T) {
	d := draft()
	broken := errors.New("broken")
	d.Attachments = []message.Attachment{{Filename: "a", Open: func() (io.ReadCloser, error) { return nil, broken }}}
	if _, err := message.Compose(io.Discard, d); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
}

// TestComposeAnything checks that the content of any draft can be read from the mail, and that the
// mail stays within the limits.
func TestComposeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return r >= ' ' && r != 0x7f && r != 0xFFFD }))
		word := rapid.StringMatching(`[ -~]{1,300}|[a-z "(),.@<>\\äé日=?_]{0,200}`)
		d := draft()
		d.Subject = rapid.OneOf(header, word).Draw(t, "subject")
		d.From.Name = rapid.OneOf(header, word).Draw(t, "name")
		d.To[0].Local = rapid.StringMatching(`[ -~]{1,64}`).Draw(t, "local")
		d.Text = rapid.String().Draw(t, "text")
		d.HTML = rapid.String().Draw(t, "html")
		d.ExtraFields = []message.ExtraField{{Name: "X-Any", Value: rapid.OneOf(header, word).Draw(t, "extra")}}
		name := rapid.OneOf(header, word).Filter(func(s string) bool { return len(s) < 256 }).Draw(t, "filename")
		d.Attachments = []message.Attachment{{Filename: name, Inline: rapid.Bool().Draw(t, "inline"), ContentID: "x", Open: content("data")}}
		var b bytes.Buffer
		if _, err := message.Compose(&b, d); err != nil {
			t.Fatalf("Compose: %v", err)
		}
		mail := b.String()
		checkMail(t, mail, true)
		ix, h, _ := message.ScanReader(strings.NewReader(mail))
		if got := h.Decoded("Subject"); got != d.Subject {
			t.Errorf("Subject %q came back as %q in %q", d.Subject, got, mail)
		}
		if got := h.Decoded("X-Any"); got != d.ExtraFields[0].Value {
			t.Errorf("X-Any %q came back as %q", d.ExtraFields[0].Value, got)
		}
		if got := h.Addresses("From"); len(got) != 1 || got[0] != d.From {
			t.Errorf("From %q came back as %q in %q", d.From, got, mail)
		}
		if got := h.Addresses("To"); len(got) != 1 || got[0] != d.To[0] {
			t.Errorf("To %q came back as %q in %q", d.To, got, mail)
		}
		for i := range ix.Parts {
			p := &ix.Parts[i]
			if p.Disposition == "" {
				continue
			}
			if want := message.CleanFilename(name); p.Filename() != want {
				t.Errorf("file name %q came back as %q in %q", name, p.Filename(), mail)
			} else if p.DispositionParams = nil; want != "" && p.Filename() != want {
				t.Errorf("file name %q came back as the name %q in %q", name, p.Filename(), mail)
			}
		}
	})
}

// All readers get a name: the exact one in filename* and name, a similar one in filename.
func TestAttachmentNames(t *testing.T) {
	long := strings.Repeat("quarterly-report-", 12) + ".pdf"
	for _, c := range []struct{ name, plain, whole string }{
		{"plain.pdf", "plain.pdf", "plain.pdf"},
		{long, long, long},
		{"a;b \"c\" (d)%20.txt", "a;b \"c\" (d)%20.txt", "a;b \"c\" (d)%20.txt"},
		{"Café Łódź – Straße.pdf", "Cafe Lodz - Strasse.pdf", "Café Łódź – Straße.pdf"},
		{"請求書.pdf", "attachment.pdf", "請求書.pdf"},
		{"請求書 2026/7月.pdf", "7_.pdf", "7月.pdf"},
		{"=?utf-8?q?x?=.txt", "_utf-8_q_x_.txt", "=?utf-8?q?x?=.txt"},
		{strings.Repeat("ü", 120) + ".txt", strings.Repeat("u", 120) + ".txt", strings.Repeat("ü", 120) + ".txt"},
		{"../../etc/passwd", "passwd", "passwd"},
		{"C:\\Users\\ann\\a.txt", "a.txt", "a.txt"},
		{"\u202efdp.exe", "fdp.exe", "fdp.exe"},
		{"..", "", ""},
		{"a/", "", ""},
	} {
		d := draft()
		d.Attachments = []message.Attachment{{Filename: c.name, ContentType: "application/pdf", Open: content("x")}}
		mail, _ := compose(t, d)
		checkMail(t, mail, true)
		for _, p := range message.Scan([]byte(mail)).Parts {
			if p.Disposition != "attachment" {
				continue
			}
			if p.Filename() != c.whole {
				t.Errorf("%q: the name is %q", c.name, p.Filename())
			}
			plain := ""
			for _, param := range p.DispositionParams {
				if param.Name == "filename" {
					plain = param.Value
				}
			}
			if plain != c.plain {
				t.Errorf("%q: old readers see %q", c.name, plain)
			}
			if p.DispositionParams = nil; p.Filename() != c.whole {
				t.Errorf("%q: as name it is %q in\n%s", c.name, p.Filename(), mail)
			}
		}
	}
}

// An attached text declares its charset if it is known.
func TestAttachedText(t *testing.T) {
	for _, c := range []struct{ name, media, text, want string }{
		{"a.txt", "", "Grüße", "text/plain; charset=utf-8; name="},
		{"a.csv", "text/csv; header=present", "ä", "text/csv; header=present; charset=utf-8;"},
		{"a.txt", "text/plain; charset=iso-8859-15", "\xa4", "text/plain; charset=iso-8859-15; name="},
		{"a.txt", "", "plain", "text/plain; name="},
		{"a.txt", "", "Gr\xfc\xdfe", "text/plain; name="},
		{"a.json", "", "ä", "application/json; name="},
		{"b.txt", "text/plain; name=a.txt", "x", "text/plain; name=a.txt\r\n"},
	} {
		d := draft()
		d.Attachments = []message.Attachment{{Filename: c.name, ContentType: c.media, Open: content(c.text)}}
		if mail, _ := compose(t, d); !strings.Contains(strings.ReplaceAll(mail, ";\r\n ", "; "), "Content-Type: "+c.want) {
			t.Errorf("%q as %s is sent as\n%s", c.text, c.media, mail)
		}
	}
}

func BenchmarkCompose(b *testing.B) {
	d := draft()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := message.Compose(io.Discard, d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkComposeAttachment(b *testing.B) {
	d := draft()
	data := make([]byte, 25<<20)
	d.Attachments = []message.Attachment{{Filename: "a.bin", Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := message.Compose(io.Discard, d); err != nil {
			b.Fatal(err)
		}
	}
}
