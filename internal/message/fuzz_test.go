// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// seeds adds the mails of testdata to a fuzz target.
func seeds(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.eml"))
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
}

func FuzzScan(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, mail []byte) {
		ix := message.Scan(mail)
		checkIndex(t, mail, ix)
		var s message.Scanner
		half := len(mail) / 2
		_, _ = s.Write(mail[:half])
		_, _ = s.Write(mail[half:])
		if got := s.Finish(); !bytes.Equal(got.BodyStructure(), ix.BodyStructure()) {
			t.Fatalf("in two pieces:\n%s\n%s", got.BodyStructure(), ix.BodyStructure())
		}
		for _, i := range ix.ContentParts().Text {
			p := &ix.Parts[i]
			_, _ = io.Copy(io.Discard, p.Text(bytes.NewReader(mail[p.Body.Start:p.Body.End()]), 1<<16))
		}
		for i := range ix.Parts {
			_ = ix.Parts[i].Filename()
		}
		var again message.Structure
		if again.UnmarshalBinary(mail) == nil {
			again.BodyStructure()
			again.ContentParts()
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	stored, _ := message.Scan([]byte(crlf(nestedMail))).MarshalBinary()
	f.Add(stored)
	f.Fuzz(func(t *testing.T, b []byte) {
		var ix message.Structure
		if ix.UnmarshalBinary(b) != nil {
			return
		}
		ix.BodyStructure()
		ix.ContentParts()
		for i := range ix.Parts {
			ix.Part(ix.Path(i))
		}
	})
}

// Any input that IsEnvelope accepts is a valid IMAP list.
func FuzzIsEnvelope(f *testing.F) {
	f.Add([]byte("(NIL \"a \\\" b\" ((NIL NIL {3}\r\n\xe4\r\n \"d\")(NIL NIL NIL NIL)) NIL NIL NIL NIL NIL NIL \"<1@b>\")"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if message.IsEnvelope(b) && (bytes.IndexByte(b, 0) >= 0 || !readsAsList(b)) {
			t.Fatalf("%q", b)
		}
	})
}

func FuzzAddressList(f *testing.F) {
	for _, s := range []string{"A <a@b>, c@d", `"x, y" <a@b> (c)`, "G: a@b, <@r:c@d>;", "=?utf-8?q?=C3=A4?= <a@b>", "<", "((", `"\`, "a@[1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, a := range message.ParseAddresses(value) {
			if strings.ContainsAny(a.Name+a.Local+a.Domain, "\x00\r\n") {
				t.Fatalf("%q gave %q", value, a)
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h := message.Header(b)
		n := 0
		for field := range h.Fields() {
			n += len(field.Raw)
		}
		if n > len(b) {
			t.Fatalf("the fields have %d of %d bytes", n, len(b))
		}
		h.Envelope()
		h.References()
		wire := message.AppendEnvelope(nil, h)
		if bytes.IndexByte(wire, 0) >= 0 {
			t.Fatalf("NUL in %q", wire)
		}
		if !readsAsList(wire) {
			t.Fatalf("the envelope is no IMAP list: %q", wire)
		}
		if !message.IsEnvelope(wire) {
			t.Fatalf("the envelope does not count as one: %q", wire)
		}
		if h.WithoutFields("From", "To").Count("from") > 0 {
			t.Fatal("From is still there")
		}
		sec := message.Section{Kind: message.SectionFields, Fields: []string{"Subject"}}
		message.FilterFields(nil, h, sec)
	})
}

// readsAsList reports whether wire is one parenthesised list of IMAP with
// nothing after it.
func readsAsList(wire []byte) bool {
	depth := 0
	for i := 0; i < len(wire); i++ {
		switch wire[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i == len(wire)-1
			}
		case '"':
			for i++; i < len(wire) && wire[i] != '"'; i++ {
				if wire[i] == '\\' {
					i++
				}
				if i < len(wire) && (wire[i] < ' ' && wire[i] != '\t' || wire[i] >= 0x7f) {
					return false
				}
			}
		case '{':
			n := 0
			for i++; i < len(wire) && wire[i] != '}'; i++ {
				n = n*10 + int(wire[i]-'0')
			}
			i += 2 + n
		}
	}
	return false
}

func FuzzCompose(f *testing.F) {
	f.Add("Alice", "alice", "demo.test", "Hello", "text", "<p>", "X-A", "v", "a.txt", "text/plain", "cid", []byte("data"))
	f.Add("Ä\r\n", "a b", "[::1]", "=?", "ä\n", "", "X-A\r\n", "\x00", "ä\"", "message/rfc822", "<c>", []byte("Subject: x\n\n\xff"))
	f.Fuzz(func(t *testing.T, name, local, domain, subject, text, html, extra, value, file, typ, cid string, data []byte) {
		d := draft()
		d.Date = time.Unix(0, 0).UTC()
		d.From = message.Address{Name: name, Local: local, Domain: domain}
		d.Subject, d.Text, d.HTML = subject, text, html
		d.ExtraFields = []message.ExtraField{{Name: extra, Value: value}}
		d.Attachments = []message.Attachment{{Filename: file, ContentType: typ, ContentID: cid, Inline: len(cid)%2 == 0,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}}
		var b bytes.Buffer
		c, err := message.Compose(&b, d)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || b.Len() > 0 {
				t.Fatalf("err = %v after %d bytes", err, b.Len())
			}
			return
		}
		mail := b.String()
		checkMail(t, mail, !c.NeedsUTF8)
		_, h, _ := message.ScanReader(strings.NewReader(mail))
		for field := range h.Fields() {
			switch string(field.Name) {
			case "Date", "From", "To", "Subject", "Message-ID", "MIME-Version", "Content-Type", extra:
			default:
				t.Fatalf("a field %q in %q", field.Raw, mail)
			}
		}
		if h.Count("From") != 1 || h.Count("Subject") != 1 || len(h.Addresses("From")) != 1 {
			t.Fatalf("fields of %q", mail)
		}
	})
}

func FuzzRelayed(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		mail, err := io.ReadAll(message.NormalizeLineEnds(bytes.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		var once, twice bytes.Buffer
		ix := message.Scan(mail)
		first, err := message.EncodeSevenBitNested(&once, bytes.NewReader(mail), ix, true)
		if err != nil {
			t.Fatal(err)
		}
		ix2 := message.Scan(once.Bytes())
		if ix2.Has(message.EightBit|message.HeaderEightBit) && !first.Needs8Bit && !first.NeedsUTF8 {
			t.Fatalf("%q is still 8-bit: %q", mail, once.Bytes())
		}
		if len(ix2.Parts) != len(ix.Parts) {
			t.Fatalf("%d parts of %q became %d of %q", len(ix.Parts), mail, len(ix2.Parts), once.Bytes())
		}
		if _, err = message.EncodeSevenBitNested(&twice, bytes.NewReader(once.Bytes()), ix2, true); err != nil {
			t.Fatal(err)
		}
		if !first.Needs8Bit && !first.NeedsUTF8 && !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("%q changes again to %q", once.Bytes(), twice.Bytes())
		}
	})
}

func FuzzSevenBit(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		mail, err := io.ReadAll(message.NormalizeLineEnds(bytes.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		var once, twice bytes.Buffer
		ix := message.Scan(mail)
		first, err := message.EncodeSevenBit(&once, bytes.NewReader(mail), ix)
		if err != nil {
			t.Fatal(err)
		}
		if !first.Changed && !bytes.Equal(once.Bytes(), mail) {
			t.Fatalf("changed %q to %q", mail, once.Bytes())
		}
		ix2 := message.Scan(once.Bytes())
		if ix2.Has(message.EightBit) && !first.Needs8Bit && !first.NeedsUTF8 {
			t.Fatalf("%q is still 8-bit: %q", mail, once.Bytes())
		}
		if len(ix2.Parts) != len(ix.Parts) {
			t.Fatalf("%d parts of %q became %d of %q", len(ix.Parts), mail, len(ix2.Parts), once.Bytes())
		}
		second, err := message.EncodeSevenBit(&twice, bytes.NewReader(once.Bytes()), ix2)
		if err != nil {
			t.Fatal(err)
		}
		if second.Changed || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("%q changes again to %q", once.Bytes(), twice.Bytes())
		}
	})
}

func FuzzEnvelopeText(f *testing.F) {
	f.Add([]byte(`("Mon, 2 Mar 2026" "a \"b\"" (("n" NIL "l" "h")("n2" NIL NIL NIL)) NIL NIL ((NIL NIL "x" "y")) NIL NIL NIL "<i@d>")`), 2)
	f.Add([]byte("(NIL {3}\r\na\"b NIL"), 1)
	f.Add([]byte("((((((((("), 5)
	f.Fuzz(func(t *testing.T, envelope []byte, field int) {
		if field < 0 || field >= int(message.EnvelopeFieldCount) {
			return
		}
		k := message.EnvelopeField(field)
		message.ParseDate(message.EnvelopeText(envelope, k))
		message.EnvelopeAddresses(envelope, k)
		message.FirstEnvelopeAddress(envelope, k)
	})
}
