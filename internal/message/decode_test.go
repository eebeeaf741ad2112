// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime/quotedprintable"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/message"
)

func TestDecode(t *testing.T) {
	for _, c := range []struct{ encoding, in, want string }{
		{"base64", "SGVs\r\nbG8=\r\n", "Hello"}, {"base64", "SGVsbG8", "Hello"}, {"base64", "SG!Vs bG8===", "Hello"},
		{"base64", "SGVsbG8=SGVsbG8=", "HelloHello"}, {"base64", "A", ""}, {"base64", "", ""},
		{"quoted-printable", "a=20b=\r\nc\r\n", "a bc\r\n"}, {"quoted-printable", "a  \r\nb\t\n", "a\r\nb\n"},
		{"quoted-printable", "100% =ZZ = x=4", "100% =ZZ = x=4"}, {"quoted-printable", "a=", "a"}, {"quoted-printable", "a= \t\r\nb", "ab"},
		{"quoted-printable", "=c3=a4", "ä"}, {"quoted-printable", "a b", "a b"}, {"7bit", "as it is=20", "as it is=20"}, {"x-unknown", "as=20", "as=20"},
	} {
		p := message.Part{Encoding: c.encoding}
		got, err := io.ReadAll(p.Decode(iotest.OneByteReader(strings.NewReader(c.in))))
		if err != nil || string(got) != c.want {
			t.Errorf("%s %q gave %q, %v, want %q", c.encoding, c.in, got, err, c.want)
		}
	}
}

func TestDecodeReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 20_000).Draw(t, "data")
		p := message.Part{Encoding: "base64"}
		got, err := io.ReadAll(p.Decode(strings.NewReader(base64.StdEncoding.EncodeToString(data))))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("base64: %q, %v", got, err)
		}
		var qp bytes.Buffer
		w := quotedprintable.NewWriter(&qp)
		w.Binary = true
		_, _ = w.Write(data)
		_ = w.Close()
		p.Encoding = "quoted-printable"
		oneLine := bytes.ReplaceAll(qp.Bytes(), []byte("=\r\n"), nil)
		for _, in := range [][]byte{qp.Bytes(), oneLine} {
			got, err = io.ReadAll(p.Decode(bytes.NewReader(in)))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("quoted-printable: %q, %v", got, err)
			}
		}
	})
}

func TestUUDecode(t *testing.T) {
	const head = "begin 644 a.bin\r\n"
	for _, c := range []struct{ in, want string }{
		{head + "#0V%T\r\n`\r\nend\r\n", "Cat"},
		{"some words\r\n\r\n" + head + "#0V%T\r\n$0V%T(0  \r\n \r\nend\r\nmore #0V%T\r\n", "CatCat!"},
		{head + "#0V%T\nend\n" + head + "#1&]G\nend", "CatDog"},
		{head + "#0V%T", "Cat"},
		{head + "#    \n#\nend", "\x00\x00\x00\x00\x00\x00"},
		{head + strings.Repeat("x", 5000) + "\n#0V%T\n", "Cat"},
		{"#0V%T\r\n", ""},
		{"begin the day\r\n#0V%T\r\n", ""},
		{"", ""},
	} {
		for _, encoding := range []string{"x-uuencode", "uuencode", "X-UUE"} {
			p := message.Scan([]byte("Content-Transfer-Encoding: " + encoding + "\r\n\r\n")).Parts[0]
			got, err := io.ReadAll(p.Decode(iotest.OneByteReader(strings.NewReader(c.in))))
			if err != nil || !p.Decodable() || string(got) != c.want {
				t.Errorf("%s %q gave %q, %v, want %q", encoding, c.in, got, err, c.want)
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		contentType, in, want string
		limit                 int64
	}{
		{"text/plain", "hello", "hello", 100}, {"text/plain", "gr\xfc\xdf", "grüß", 100}, {"text/plain; charset=iso-8859-15", "\xa4", "€", 100},
		{"text/plain; charset=utf-8", "ä\xff", "äÿ", 100}, {"text/plain; charset=nonsense", "\xe4", "ä", 100}, {"text/plain", "hello", "hel", 3},
	} {
		ix := message.Scan([]byte("Content-Type: " + c.contentType + "\r\n\r\n"))
		got, err := io.ReadAll(ix.Parts[0].Text(iotest.OneByteReader(strings.NewReader(c.in)), c.limit))
		if err != nil || string(got) != c.want {
			t.Errorf("%s %q gave %q, %v", c.contentType, c.in, got, err)
		}
	}
}

func TestParams(t *testing.T) {
	for _, c := range []struct{ field, filename, wire string }{
		{`attachment; filename="a b.pdf"`, "a b.pdf", `("filename" "a b.pdf")`},
		{`attachment; filename=a b.pdf; size=3`, "a b.pdf", `("filename" "a b.pdf" "size" "3")`},
		{`attachment; filename*=utf-8'de'%C3%A4.pdf; filename="x.pdf"`, "ä.pdf", `("filename*" "utf-8'de'%C3%A4.pdf" "filename" "x.pdf")`},
		{`attachment; filename*0="a;"; filename*1=b.pdf`, "a;b.pdf", `("filename" "a;b.pdf")`},
		{`attachment; filename*1*=%A4; filename*0*=utf-8''%C3; filename*2="%.pdf"`, "ä%.pdf", `("filename*" "utf-8''%C3%A4%25.pdf")`},
		{`attachment; filename="=?utf-8?q?=C3=A4?=.pdf"`, "ä.pdf", `("filename" "=?utf-8?q?=C3=A4?=.pdf")`},
		{`attachment; filename="a\"b\\c"`, `a"b\c`, `("filename" "a\"b\\c")`},
		{`attachment (a;b); filename=x (c)`, "x", `("filename" "x")`},
		{`attachment; filename="unclosed`, "unclosed", `("filename" "unclosed")`},
		{`attachment; ; =; filename`, "", "NIL"},
		{`attachment; filename*0*=x; filename*5=y`, "x", `("filename*" "x")`},
	} {
		ix := message.Scan([]byte("Content-Disposition: " + c.field + "\r\n\r\n"))
		if got := ix.Parts[0].Filename(); got != c.filename {
			t.Errorf("%s: file name %q", c.field, got)
		}
		if got, want := string(ix.BodyStructure()), `("attachment" `+c.wire+")"; !strings.Contains(got, want) {
			t.Errorf("%s: %s lacks %s", c.field, got, want)
		}
	}
}
