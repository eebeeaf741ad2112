// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

func TestSevenBit(t *testing.T) {
	long := strings.Repeat("x", 1200)
	for _, c := range []struct {
		name, mail, want string // want "" for unchanged
		result           message.EncodeResult
	}{
		{"clean", "Subject: x\n\nHello\n", "", message.EncodeResult{}},
		{"plain", "Subject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\nX-Last: y\n\nGrüße\n",
			"Subject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\nX-Last: y\n\nGr=C3=BC=C3=9Fe\n",
			message.EncodeResult{Changed: true}},
		{"no MIME", "Subject: x\n\nGrüße\n",
			"Subject: x\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe\n",
			message.EncodeResult{Changed: true}},
		{"no MIME, no UTF-8", "Subject: x\n\nGr\xfc\xdfe, ihr alle\n",
			"Subject: x\nMIME-Version: 1.0\nContent-Transfer-Encoding: quoted-printable\n\nGr=FC=DFe, ihr alle\n",
			message.EncodeResult{Changed: true}},
		{"dense", "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n日本\n",
			"MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n5pel5pysDQo=\n",
			message.EncodeResult{Changed: true}},
		{"long line", "MIME-Version: 1.0\nContent-Type: text/plain\n\n" + long + "\n",
			"MIME-Version: 1.0\nContent-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\n" +
				strings.Repeat(strings.Repeat("x", 75)+"=\n", 15) + strings.Repeat("x", 75) + "\n",
			message.EncodeResult{Changed: true}},
		{"long base64", "MIME-Version: 1.0\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\n" + strings.Repeat("AAAA", 300) + "\n",
			"MIME-Version: 1.0\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\n" +
				strings.Repeat(strings.Repeat("A", 76)+"\n", 15) + strings.Repeat("A", 60) + "\n",
			message.EncodeResult{Changed: true}},
		{"its header is left to MendHeader", "Subject: Grüße\n\nx\n", "", message.EncodeResult{}},
		{"headers of parts", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; filename=\"Maße.txt\"\nContent-Type: text/plain; charset=us-ascii; name=\"Maße.txt\"\n\nx\n--b--\n",
			"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; filename=\"Masse.txt\";\n filename*=utf-8''Ma%C3%9Fe.txt\nContent-Type: text/plain; charset=us-ascii; name=\"=?utf-8?b?TWHDn2UudHh0?=\"\n\nx\n--b--\n",
			message.EncodeResult{Changed: true}},
		{"a part that is encoded", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Description: Maße\n\nMaße und mehr Text\n--b--\n",
			"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\nContent-Description: =?utf-8?b?TWHDn2U=?=\nContent-Transfer-Encoding: quoted-printable\n\nMa=C3=9Fe und mehr Text\n--b--\n",
			message.EncodeResult{Changed: true}},
		{"header of a signed part", "Content-Type: multipart/signed; boundary=b\n\n--b\nContent-Description: Maße\n\nx\n--b\n\nsig\n--b--\n", "",
			message.EncodeResult{NeedsUTF8: true}},
		{"parts", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: 8bit\n\nprö\n--b\n\nplain\n--b\nContent-Type: application/x\nContent-Transfer-Encoding: 8bit\n\n\x00\xff\n--b--\nepi\n",
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\nContent-Transfer-Encoding: 7bit\n\n--b\n\nplain\n--b\nContent-Type: application/x\nContent-Transfer-Encoding: base64\n\nAP8=\n--b--\n",
			message.EncodeResult{Changed: true}},
		{"signed", "MIME-Version: 1.0\nContent-Type: multipart/signed; boundary=b\nContent-Transfer-Encoding: 8bit\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nGrüße\n--b\n\nsig\n--b--\n", "",
			message.EncodeResult{Needs8Bit: true}},
		{"embedded", "MIME-Version: 1.0\nContent-Type: message/rfc822\n\nSubject: Grüße\n\nx\n", "", message.EncodeResult{Needs8Bit: true}},
		{"beside embedded", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: message/rfc822\n\nSubject: y\n\nz\n--a\n\nGrüße, Bob\n--a--\n",
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: message/rfc822\n\nSubject: y\n\nz\n--a\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe, Bob\n--a--\n",
			message.EncodeResult{Changed: true}},
		{"beside signed", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/signed; boundary=b\n\n--b\n\nx\n--b--\n--a\n\nGrüße, Bob\n--a--\n",
			"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n--a\nContent-Type: multipart/signed; boundary=b\n\n--b\n\nx\n--b--\n--a\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe, Bob\n--a--\n",
			message.EncodeResult{Changed: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mail := crlf(c.mail)
			want := crlf(c.want)
			if want == "" {
				want = mail
			}
			var out bytes.Buffer
			got, err := message.EncodeSevenBit(&out, strings.NewReader(mail), message.Scan([]byte(mail)))
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != want {
				t.Errorf("got\n%q\nwant\n%q", out.String(), want)
			}
			if got != c.result {
				t.Errorf("result %+v, want %+v", got, c.result)
			}
		})
	}
}

func TestNeeds(t *testing.T) {
	const within = "Content-Type: message/rfc822\r\n\r\n"
	for text, want := range map[string][2]bool{
		"Subject: Hi\r\n\r\nHi\r\n":                 {false, false},
		"Subject: Grüße\r\n\r\nHi\r\n":              {true, false},
		"Subject: Hi\r\n\r\nGrüße\r\n":              {false, true},
		within + "Subject: Grüße\r\n\r\nHi\r\n":     {false, true},
		within + "Subject: Hi\r\n\r\nGrüße\r\n":     {false, true},
		"X: ü\r\n" + within + "Subject: Hi\r\n\r\n": {true, false},
	} {
		var s message.Scanner
		_, _ = s.Write([]byte(text)) // never fails
		if utf8, eight := s.Finish().RequiredExtensions(); utf8 != want[0] || eight != want[1] {
			t.Errorf("%q needs %v, %v", text, utf8, eight)
		}
	}
}
