// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/message"
)

// crlf converts a test's line ends to those of mail.
func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

const nestedMail = `From: Alice <alice@demo.test>
To: bob@demo.test
Subject: nested
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="out"

preamble
--out
Content-Type: multipart/alternative; boundary=in

--in
Content-Type: text/plain; charset=utf-8

Hello
world
--in
Content-Type: text/html

<p>Hello</p>

--in--
--out
Content-Type: message/rfc822
Content-Description: the other one

From: Carol <carol@elsewhere.test>
Subject: inner
Content-Type: multipart/mixed; boundary=deep

--deep

One
--deep
Content-Type: application/pdf; name=a.pdf
Content-Disposition: attachment; filename="a b.pdf"
Content-Transfer-Encoding: base64

AAAA
--deep--
--out--
epilogue
`

// section returns the content of a section such as 1.2.MIME of the message b.
func section(t *testing.T, b []byte, ix *message.Structure, s string) string {
	t.Helper()
	var sec message.Section
	for word := range strings.SplitSeq(s, ".") {
		switch word {
		case "":
		case "HEADER":
			sec.Kind = message.SectionHeader
		case "TEXT":
			sec.Kind = message.SectionText
		case "MIME":
			sec.Kind = message.SectionMIME
		default:
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			sec.Path = append(sec.Path, n)
		}
	}
	span, ok := ix.Section(sec)
	if !ok {
		return "NIL"
	}
	return string(b[span.Start:span.End()])
}

func TestSections(t *testing.T) {
	b := []byte(crlf(nestedMail))
	ix := message.Scan(b)
	for _, c := range []struct{ section, want string }{
		{"", crlf(nestedMail)},
		{"1.1", crlf("Hello\nworld")},
		{"1.1.MIME", crlf("Content-Type: text/plain; charset=utf-8\n\n")},
		{"1.2", crlf("<p>Hello</p>\n")},
		{"1.MIME", crlf("Content-Type: multipart/alternative; boundary=in\n\n")},
		{"1.3", "NIL"},
		{"1.TEXT", "NIL"},
		{"3", "NIL"},
		{"2.HEADER", crlf("From: Carol <carol@elsewhere.test>\nSubject: inner\nContent-Type: multipart/mixed; boundary=deep\n\n")},
		{"2.TEXT", crlf("--deep\n\nOne\n--deep\nContent-Type: application/pdf; name=a.pdf\nContent-Disposition: attachment; filename=\"a b.pdf\"\nContent-Transfer-Encoding: base64\n\nAAAA\n--deep--")},
		{"2.1", "One"},
		{"2.1.MIME", "\r\n"},
		{"2.2", "AAAA"},
		{"2.2.1", "NIL"},
	} {
		if got := section(t, b, ix, c.section); got != c.want {
			t.Errorf("BODY[%s] = %q, want %q", c.section, got, c.want)
		}
	}
	header := section(t, b, ix, "HEADER")
	if !strings.HasPrefix(header, "From: Alice") || !strings.HasSuffix(header, "\"out\"\r\n\r\n") {
		t.Errorf("BODY[HEADER] = %q", header)
	}
	if text := section(t, b, ix, "TEXT"); header+text != string(b) {
		t.Errorf("HEADER and TEXT are not the message")
	}
}

func TestSectionOfPlainMessage(t *testing.T) {
	b := []byte("Subject: x\r\n\r\nHello\r\n")
	ix := message.Scan(b)
	for _, c := range []struct{ section, want string }{
		{"1", "Hello\r\n"}, {"TEXT", "Hello\r\n"}, {"1.MIME", "Subject: x\r\n\r\n"}, {"1.1", "NIL"}, {"2", "NIL"}, {"1.HEADER", "NIL"},
	} {
		if got := section(t, b, ix, c.section); got != c.want {
			t.Errorf("BODY[%s] = %q, want %q", c.section, got, c.want)
		}
	}
}

func TestFilterFields(t *testing.T) {
	h := message.Header("From: a@b\r\nSubject: one\r\n two\r\nTO: c@d\r\nno field\r\n\r\n")
	sec := message.Section{Kind: message.SectionFields, Fields: []string{"subject", "To", "Absent"}}
	if got := string(message.FilterFields(nil, h, sec)); got != "Subject: one\r\n two\r\nTO: c@d\r\n\r\n" {
		t.Errorf("HEADER.FIELDS = %q", got)
	}
	sec.Kind = message.SectionFieldsNot
	if got := string(message.FilterFields(nil, h, sec)); got != "From: a@b\r\nno field\r\n\r\n" {
		t.Errorf("HEADER.FIELDS.NOT = %q", got)
	}
}

func TestBodyStructure(t *testing.T) {
	ix := message.Scan([]byte(crlf(nestedMail)))
	const env = `(NIL "inner" (("Carol" NIL "carol" "elsewhere.test")) (("Carol" NIL "carol" "elsewhere.test")) (("Carol" NIL "carol" "elsewhere.test")) NIL NIL NIL NIL NIL)`
	want := `((("text" "plain" ("charset" "utf-8") NIL NIL "7bit" 12 1 NIL NIL NIL NIL)` +
		`("text" "html" ("charset" "us-ascii") NIL NIL "7bit" 14 1 NIL NIL NIL NIL) "alternative" ("boundary" "in") NIL NIL NIL)` +
		`("message" "rfc822" NIL NIL "the other one" "7bit" 270 ` + env +
		` (("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 3 0 NIL NIL NIL NIL)` +
		`("application" "pdf" ("name" "a.pdf") NIL NIL "base64" 4 NIL ("attachment" ("filename" "a b.pdf")) NIL NIL)` +
		` "mixed" ("boundary" "deep") NIL NIL NIL) 13 NIL NIL NIL NIL) "mixed" ("boundary" "out") NIL NIL NIL)`
	if got := string(ix.BodyStructure()); got != want {
		t.Errorf("BODYSTRUCTURE\n got %s\nwant %s", got, want)
	}
	if got := string(ix.Body()); strings.Contains(got, "attachment") || !strings.Contains(got, `"base64" 4)`) {
		t.Errorf("BODY = %s", got)
	}
}

// TestScanHostile checks that unusual input gives an index that covers it.
func TestScanHostile(t *testing.T) {
	deep := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n", i, i)
		}
		return b.String()
	}
	for _, c := range []struct{ name, mail, structure string }{
		{"empty", "", `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 0 0)`},
		{"no header", "\nhello\n", `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 7 1)`},
		{"no colon", "From: a@b\nthis is no field\nContent-Type: text/html\n\nx\n", `("text" "html" ("charset" "us-ascii") NIL NIL "7bit" 3 1)`},
		{"mbox", "From a@b Thu Jan  1 00:00:00 1970\nContent-Type: text/html\n\nx\n", `("text" "html" ("charset" "us-ascii") NIL NIL "7bit" 3 1)`},
		{"no boundary", "Content-Type: multipart/mixed\n\n--x\n\nx\n--x--\n", `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 17 4)`},
		{"boundary unused", "Content-Type: multipart/mixed; boundary=b\n\nx\n", `("text" "plain" ("boundary" "b") NIL NIL "7bit" 3 1)`},
		{"unclosed", "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nx", `(("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 1 0) "mixed")`},
		{"empty parts", "Content-Type: multipart/mixed; boundary=b\n\n--b\n--b\n\n--b--", `(("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 0 0)("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 0 0) "mixed")`},
		{"outer ends inner", "Content-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nx\n--a--\n", `((("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 1 0) "mixed") "mixed")`},
		{"longest boundary", "Content-Type: multipart/mixed; boundary=ab\n\n--ab\nContent-Type: multipart/mixed; boundary=abc\n\n--abc\n\nx\n--abc--\n--ab--\n", `((("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 1 0) "mixed") "mixed")`},
		{"digest", "Content-Type: multipart/digest; boundary=b\n\n--b\n\nSubject: x\n\ny\n--b--\n", `(("message" "rfc822" NIL NIL NIL "7bit" 15 (NIL "x" NIL NIL NIL NIL NIL NIL NIL NIL) ("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 1 0) 2) "digest")`},
		{"encoded message", "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nAAAA\n", `("application" "octet-stream" NIL NIL NIL "base64" 6)`},
		{"strange type", "Content-Type: foo bar\n\nx\n", `("text" "plain" ("charset" "us-ascii") NIL NIL "7bit" 3 1)`},
		{"NUL", "Subject: a\x00b\nContent-ID: <\x00>\n\nx\n", `("text" "plain" ("charset" "us-ascii") "<>" NIL "7bit" 3 1)`},
		{"deep", deep(1000), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := []byte(crlf(c.mail))
			ix := message.Scan(b)
			checkIndex(t, b, ix)
			if got := string(ix.Body()); c.structure != "" && got != c.structure {
				t.Errorf("BODY\n got %s\nwant %s", got, c.structure)
			}
		})
	}
}

func TestScanManyParts(t *testing.T) {
	b := []byte("Content-Type: multipart/mixed; boundary=b\r\n\r\n" + strings.Repeat("--b\r\n\r\n\r\n", 100_000))
	ix := message.Scan(b)
	checkIndex(t, b, ix)
	if len(ix.Parts) != message.MaxParts {
		t.Errorf("%d parts", len(ix.Parts))
	}
	if last := ix.Parts[len(ix.Parts)-1]; last.Body.End() != ix.Size {
		t.Errorf("the last part ends at %d of %d", last.Body.End(), ix.Size)
	}
}

func TestBareLF(t *testing.T) {
	b := []byte(nestedMail)
	ix := message.Scan(b)
	if got := section(t, b, ix, "1.1"); got != "Hello\nworld" {
		t.Errorf("BODY[1.1] = %q", got)
	}
	checkIndex(t, b, ix)
}

func TestTraits(t *testing.T) {
	mail := "Subject: \xc3\xa4\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
		"--b\r\n\r\nplain\r\n--b\r\n\r\ncaf\xc3\xa9 and more than eight\r\n--b\r\n\r\n" + strings.Repeat("x", 999) +
		"\r\n--b\r\n\r\na\x00b\r\n--b\r\n\r\n" + strings.Repeat("x", 998) + "\r\n--b--\r\n"
	ix := message.Scan([]byte(mail))
	want := []message.Traits{message.HeaderEightBit, 0, message.EightBit, message.LongLines, message.HasNUL, 0}
	for i, w := range want {
		if got := ix.Parts[i].Traits; got != w {
			t.Errorf("part %d has traits %b, want %b", i, got, w)
		}
	}
}

// checkIndex checks the properties of every index of b: spans nest, and it survives storing.
func checkIndex(t *testing.T, b []byte, ix *message.Structure) {
	t.Helper()
	if ix.Size != int64(len(b)) {
		t.Fatalf("size %d of %d", ix.Size, len(b))
	}
	for i := range ix.Parts {
		p := &ix.Parts[i]
		outer := message.Span{Start: 0, Len: ix.Size}
		if i > 0 {
			outer = ix.Parts[p.Parent].Body
		}
		if p.Header.Start < outer.Start || p.Header.Len < 0 || p.Body.Start != p.Header.End() || p.Body.Len < 0 || p.Body.End() > outer.End() {
			t.Fatalf("part %d (%v, %v) lies outside %v", i, p.Header, p.Body, outer)
		}
		if p.Lines != int64(bytes.Count(b[p.Body.Start:p.Body.End()], []byte("\n"))) {
			t.Fatalf("part %d has %d lines", i, p.Lines)
		}
		if p.Type == "" || p.Subtype == "" {
			t.Fatalf("part %d has no type", i)
		}
		if p.Kind == message.Leaf && len(ix.Parts) < 500 {
			if got := ix.Part(ix.Path(i)); got != p {
				t.Fatalf("part %d is not found by its path %v", i, ix.Path(i))
			}
		}
	}
	stored, err := ix.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var again message.Structure
	if err := again.UnmarshalBinary(stored); err != nil {
		t.Fatalf("reading the stored index: %v", err)
	}
	if !reflect.DeepEqual(&again, ix) {
		t.Fatalf("stored index differs:\n%+v\n%+v", again, *ix)
	}
	if bytes.IndexByte(ix.BodyStructure(), 0) >= 0 {
		t.Fatal("NUL in BODYSTRUCTURE")
	}
}

func TestScanPieces(t *testing.T) {
	long := "Subject: " + strings.Repeat("x", 5000) + "\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b" +
		strings.Repeat(" ", 5000) + "\r\n\r\n" + strings.Repeat("y\x80", 3000) + "\r\n--b--\r\n"
	for _, mail := range []string{crlf(nestedMail), nestedMail, long, ""} {
		want := message.Scan([]byte(mail))
		got, header, err := message.ScanReader(iotest.OneByteReader(strings.NewReader(mail)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("byte by byte:\n%+v\n%+v", got, want)
		}
		if string(header) != mail[:want.Parts[0].Header.Len] {
			t.Errorf("header = %q", header)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	stored, _ := message.Scan([]byte(crlf(nestedMail))).MarshalBinary()
	var ix message.Structure
	for n := range stored {
		if ix.UnmarshalBinary(stored[:n]) == nil {
			t.Errorf("the first %d of %d bytes were taken", n, len(stored))
		}
	}
	if ix.UnmarshalBinary(append(stored, 0)) == nil {
		t.Error("a byte too many was taken")
	}
}

func TestResizeHeader(t *testing.T) {
	mail := crlf(nestedMail)
	ix := message.Scan([]byte(mail))
	mail = "Delivered-To: bob@demo.test\r\n" + mail
	ix.ResizeHeader(ix.Parts[0].Header.Len + int64(len("Delivered-To: bob@demo.test\r\n")))
	if want := message.Scan([]byte(mail)); !reflect.DeepEqual(ix, want) {
		t.Errorf("got %+v\nwant %+v", ix, want)
	}
}
