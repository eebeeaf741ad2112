// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/fault"
)

// fuzzRead reads a stream and checks invariants.
func fuzzRead(t *testing.T, stream string, o Options) *gathered {
	t.Helper()
	g := &gathered{}
	err := Read(&dribble{r: strings.NewReader(stream)}, o, g.sink())
	if err != nil && fault.KindOf(err) != fault.Invalid {
		t.Fatalf("an error that is nobody's fault: %v", err)
	}
	total := 0
	for _, m := range g.messages {
		total += len(m.text)
		if !utf8.ValidString(m.Location) || len(m.Location) > maxLocation+40 {
			t.Fatalf("a place that can't be shown: %q", m.Location)
		}
	}
	if o.Kind == Mbox && total > 2*len(stream) {
		t.Fatalf("%d bytes of messages in %d bytes", total, len(stream))
	}
	return g
}

// Every mbox can be read, and its messages are read back as they are written.
func FuzzMbox(f *testing.F) {
	f.Add(from1+"Subject: x\nStatus: RO\nContent-Length: 40\n\n>From x\n\n"+from2+"\n\nFrom x\n", "")
	f.Add("From x\r\n\r\nFrom y\r\nA: 1\r\n", "mboxo")
	f.Add("From MAILSTEAD-RAW-OPEN-ALL Sat Nov 21 17:00:00 2026\nStatus: O\nX-Status: \nX-Keywords: \nX-Folder: =?utf-8?b?w7w=?=\nX-Special-Use: \n\r\n\n", "mboxrd")
	f.Add(from1+"X-Gmail-Labels: =?UTF-8?Q?a=2Cb?=,\"c\"\nX-Mozilla-Status: 0009\n\n", "mboxcl2")
	f.Fuzz(func(t *testing.T, stream, quoting string) {
		g := fuzzRead(t, stream, Options{Kind: Mbox, Quoting: Quoting(quoting)})
		var out bytes.Buffer
		w := NewMboxWriter(&out)
		for i := range g.messages {
			g.messages[i].Keywords = nil // not validated here
			if err := w.Write(&g.messages[i].Message, text{strings.NewReader(g.messages[i].text)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		again := fuzzRead(t, out.String(), Options{Kind: Mbox})
		if len(again.messages) != len(g.messages) {
			t.Fatalf("%d messages became %d:\n%q", len(g.messages), len(again.messages), out.String())
		}
		for i := range g.messages {
			if g.messages[i].text != again.messages[i].text || g.messages[i].Flags != again.messages[i].Flags {
				t.Fatalf("%q became %q", g.messages[i].text, again.messages[i].text)
			}
		}
	})
}

// Any stream: a tar, compressed or not, or something else.
func FuzzRead(f *testing.F) {
	f.Add([]byte(tarOf(f, entry{"Maildir/.A.B/cur/1.U1V2.x,S=3,W=3:2,RSa", "A: 1\n", 0}, entry{"Maildir/dovecot-keywords", "0 x\n", 0}, entry{folderListFile, `[{"path":"x","name":"y"}]`, 0})))
	f.Add([]byte(tarOf(f, entry{"Sent.mbox", from1 + "A: 1\n\n", 0}, entry{"../x.eml", "A: 1\n", 0}, entry{"link", "", '2'})))
	f.Add([]byte(gzipOf(f, tarOf(f, entry{extraKeywordsFile, "U1V2 x y\n", 0}, entry{"cur/1", "A: 1\n", 0}))))
	f.Add([]byte("Subject: x\n\nx\n"))
	f.Add([]byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		for _, kind := range []Kind{Detect, Tar} {
			fuzzRead(t, string(stream), Options{Kind: kind})
		}
	})
}

// An arbitrary first line of a message.
func FuzzFromLine(f *testing.F) {
	for _, line := range []string{from1, "From - Tue Apr 27 19:42:22 2010\n", "From x 2026-11-21 17:00:09 +0200 remote from y\n", "From \"a b\" Sat, 1 Jan 99 1:2 (EST)\n"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, date, ok := parseFromLine([]byte(line))
		if !ok || date.IsZero() {
			return
		}
		if !isPlausible(date) {
			t.Fatalf("%q: %v", line, date)
		}
		if _, again, ok := parseFromLine([]byte("From x " + formatDate(date) + "\n")); !ok || !again.Equal(date) {
			t.Fatalf("%q: %v is written as %s and read as %v", line, date, formatDate(date), again)
		}
	})
}
