// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

// FuzzTexts checks that EachText returns every text that a search can find and an index supports:
// each 4 bytes of it, or 3, in the right kinds.
func FuzzTexts(f *testing.F) {
	f.Add([]byte("Subject: a\r\n  folded line\r\nX-Foo:\r\nx-foo: again\r\n\r\nbody"), "a  folded", "subject")
	f.Add([]byte("Subject: =?utf-8?q?Stra=C3=9Fe?= =?iso-8859-1?q?_gr=FC=DFt?=\r\nX-Foo: \r\n\r\n"), "STRAße gr", "Subject")
	f.Add([]byte("From: \"\u212Aelvin, \u0130\" <a@b.example>\r\nFrom: g: x@y.example, \u017Fam <z@y.example>;\r\n\r\n\u017Fample e\u0301"), "kelvin, i", "FROM")
	f.Add([]byte("Content-Type: text/plain; charset=utf-7\r\n\r\n+AOQ-hnlich"), "ÄHNLICH", "x-foo")
	f.Add([]byte("Content-Type: text/html; charset=utf-16\r\nContent-Transfer-Encoding: base64\r\n\r\n/v8APABiAD4AeAA8AC8AYgA+AHkAeg=="), "xyz", "bcc")
	f.Add([]byte("From x Mon\r\nno field\r\nTo: a\xffb\xc3\r\n\r\n\xe2\x82"), "a\xffb", "to")
	f.Add([]byte("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: within\r\n\r\nab\r\n--b--"), "subject: with", "sender")
	f.Add([]byte("Cc: a@b.example\r\nMessage-ID: <1@x.example>\r\n\r\n"), "1@x.", "Message-ID")
	var long []byte // longer than the text buffer, and each letter differs
	for n := range 700 {
		long = utf8.AppendRune(long, rune(0x4e00+n))
	}
	f.Add(append([]byte("Content-Type: text/plain; charset=utf-8\r\n\r\n"), long...), string(long), "")
	f.Fuzz(func(t *testing.T, mail []byte, text, header string) {
		ix := message.Scan(mail)
		envelope := message.AppendEnvelope(nil, message.Header(mail[:ix.Parts[0].Header.End()]))
		open := func(buffer int) *textScanner {
			return &textScanner{ctx: t.Context(), r: bytes.NewReader(mail), index: ix, buf: make([]byte, buffer)}
		}
		told := map[TextKind][][]byte{}
		whole := open(1<<10).eachText(envelope, 1<<20, func(kind TextKind, text []byte) {
			told[kind] = append(told[kind], slices.Clone(text))
		})
		for _, c := range []Criterion{
			{Test: HasHeader, Header: header, Text: text}, {Test: InEnvelope, Header: header, Text: text},
			{Test: InBody, Text: text}, {Test: InText, Text: text},
		} {
			ready := compile(&c, nil)
			m := candidate{row: &folder.MessageRow{Envelope: envelope}, content: open(textBuffer)}
			m.content.scanBodies(ready.reset(&m, nil), func() bool { return false })
			m.content.complete = true
			s := ready.term()
			if s == nil || !whole || ready.match(&m) != matchYes {
				continue
			}
			has := func(kind TextKind) bool {
				for from := range len(s.Text) - minTermBytes + 1 {
					seq := s.Text[from:min(from+textOverlap+1, len(s.Text))]
					if !slices.ContainsFunc(told[kind], func(b []byte) bool { return bytes.Contains(b, seq) }) {
						return false
					}
				}
				return true
			}
			if !slices.ContainsFunc(s.Kinds, has) {
				t.Fatalf("%q is found by %+v, and not told: %q", mail, c, slices.Collect(maps.Values(told)))
			}
		}
	})
}
