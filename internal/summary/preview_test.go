// SPDX-License-Identifier: Apache-2.0

package summary_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

func previewOf(t testing.TB, mail string) string {
	t.Helper()
	ix, _, err := message.ScanReader(strings.NewReader(mail))
	if err != nil {
		t.Fatal(err)
	}
	got, err := summary.Preview(bytes.NewReader([]byte(mail)), ix)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPreview(t *testing.T) {
	const htmlHead = "Content-Type: text/html; charset=utf-8\r\n\r\n"
	for _, x := range []struct{ name, mail, want string }{
		{"none", "Subject: x\r\n\r\n", ""},
		{"plain", "Subject: x\r\n\r\nDear  Alice,\r\n\r\n\tthis is\r\nit.\r\n", "Dear Alice, this is it."},
		{"quotes", "Subject: x\r\n\r\n> old\r\n> words\r\nNew ones.\r\n-- \r\nBob\r\n", "New ones."},
		{"signature alone", "\r\n\r\n-- \r\nBob\r\n", "-- Bob"},
		{"encoded", "Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=\r\n=DFe\r\n", "Grüße"},
		{"html", htmlHead + "<html><head><title>No</title><style>p{x}</style></head><body><p>Hello&nbsp;<b>Wor</b>ld</p><script>no()</script><br>you &amp; me<!-- no -->", "Hello World you & me"},
		{"filler", htmlHead + "<div>Sale" + strings.Repeat("&nbsp;&zwnj;&#847;&shy;", 300) + "</div><p>Now", "Sale Now"},
		{"joined", htmlHead + "👩\u200d💻", "👩\u200d💻"},
		{"head without end", htmlHead + "<head><title>x</title><body>shown", "shown"},
		{"layout", htmlHead + "<table><tr><td>a</td><td>b</td></tr></table>c<p>d</p>e<br/>f<b>g</b>", "a b c d e fg"},
		{"images", htmlHead + "<style>x</style><img src=x alt=\"The  shop\"/>now<img alt>", "The shop now"},
		{"conditionals", htmlHead + "<!--[if mso]><p>no</p><![endif]--><!--[if !mso]><!--><p>yes</p><!--<![endif]--><![if !vml]>too<![endif]>", "yes too"},
		{"broken html", htmlHead + "a<p b", "a"},
		{"file alone", "Content-Type: application/pdf\r\n\r\nx", ""},
		{"named text", "Content-Type: text/plain; name=a.txt\r\n\r\nx", "x"},
		{"text as a file", "Content-Type: text/plain\r\nContent-Disposition: attachment\r\n\r\nx", ""},
		{"empty alternative", "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\n\r\n \r\n--b\r\n" + htmlHead + "<p>from html\r\n--b--\r\n", "from html"},
		{"several", "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\none\r\n--b\r\n\r\ntwo\r\n--b--\r\n", "one two"},
		{"encrypted", "Content-Type: multipart/encrypted; boundary=b\r\n\r\n--b\r\nContent-Type: application/pgp-encrypted\r\n\r\nVersion: 1\r\n--b--\r\n", ""},
		{"long", "\r\n" + strings.Repeat("ä", 300), strings.Repeat("ä", 200)},
		{"long words", "\r\n" + strings.Repeat("abc ", 100), strings.Repeat("abc ", 49) + "abc"},
	} {
		if got := previewOf(t, x.mail); got != x.want {
			t.Errorf("%s: got %q, want %q", x.name, got, x.want)
		}
	}
}

// Only a limited part of a message is read.
func TestPreviewIsBounded(t *testing.T) {
	for _, junk := range []string{"\r\n", ">>>>\r\n", "<b>", "<!-- x -->", "<p " + strings.Repeat("a", 1<<20)} {
		for _, subtype := range []string{"plain", "html"} {
			mail := "Content-Type: text/" + subtype + "\r\n\r\n" + strings.Repeat(junk, 8<<20/len(junk))
			ix, _, err := message.ScanReader(strings.NewReader(mail))
			if err != nil {
				t.Fatal(err)
			}
			r := &counting{r: strings.NewReader(mail)}
			if _, err := summary.Preview(r, ix); err != nil || r.n > 256<<10 {
				t.Errorf("%s of %.9q: %d bytes read, %v", subtype, junk, r.n, err)
			}
		}
	}
}

type counting struct {
	r *strings.Reader
	n int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += n
	return n, err
}

func FuzzPreview(f *testing.F) {
	for _, subtype := range []string{"plain", "html"} {
		f.Add(fmt.Sprintf("Content-Type: text/%s\r\n\r\n<p>Gr=C3=BC\r\n> x\r\n-- \r\n&nbsp;<style>", subtype))
	}
	f.Add("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\none\r\n--b\r\nContent-Type: text/html\r\n\r\n<title>two\r\n--b--\r\n")
	f.Fuzz(func(t *testing.T, mail string) {
		got := previewOf(t, mail)
		if n := utf8.RuneCountInString(got); n > summary.MaxPreview || !utf8.ValidString(got) || strings.ContainsAny(got, "\r\n\x00") || strings.TrimSpace(got) != got {
			t.Fatalf("got %q of %d characters", got, n)
		}
	})
}
