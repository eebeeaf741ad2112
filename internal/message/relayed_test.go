// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

func TestRelayed(t *testing.T) {
	for _, c := range []struct {
		name, mail, want string // want "" for unchanged
		keep             bool   // whether the message's own header stays unchanged
		result           message.EncodeResult
	}{
		{"clean", "Subject: x\n\nHello\n", "", false, message.EncodeResult{}},
		{"its header", "Received: x\nSubject: Grüße\nFrom: Ann Ä <ann@a.test>\n\nx\n",
			"Received: x\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\nFrom: =?utf-8?b?QW5uIMOE?= <ann@a.test>\n\nx\n", false, message.EncodeResult{Changed: true}},
		{"a header that needs SMTPUTF8", "Subject: Grüße\n\nHällo, Bob\n",
			"Subject: Grüße\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nH=C3=A4llo, Bob\n", true, message.EncodeResult{Changed: true}},
		{"an address", "From: änn@a.test\n\nx\n", "From: änn@a.test\n\nx\n", false, message.EncodeResult{Changed: true, NeedsUTF8: true}},
		{"embedded", "MIME-Version: 1.0\nContent-Type: message/rfc822\nContent-Transfer-Encoding: 8bit\n\nSubject: Grüße\n\nHällo, Bob\n",
			"MIME-Version: 1.0\nContent-Type: message/rfc822\nContent-Transfer-Encoding: 7bit\n\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nH=C3=A4llo, Bob\n",
			false, message.EncodeResult{Changed: true}},
		{"embedded twice", "Content-Type: multipart/mixed; boundary=a\nContent-Transfer-Encoding: 8bit\n\n--a\nContent-Type: message/rfc822\n\nContent-Type: message/rfc822\n\nMIME-Version: 1.0\nContent-Type: image/png\nContent-Transfer-Encoding: binary\n\n\x89PNG\n--a--\n",
			"Content-Type: multipart/mixed; boundary=a\nContent-Transfer-Encoding: 7bit\nMIME-Version: 1.0\n\n--a\nContent-Type: message/rfc822\n\nContent-Type: message/rfc822\n\nMIME-Version: 1.0\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBORw==\n--a--\n",
			false, message.EncodeResult{Changed: true}},
		{"an address within", "Content-Type: message/rfc822\n\nFrom: änn@a.test\n\nx\n", "", false, message.EncodeResult{Changed: true, Needs8Bit: true}},
		{"signed within", "Content-Type: message/rfc822\nContent-Transfer-Encoding: 8bit\n\nMIME-Version: 1.0\nContent-Type: multipart/signed; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\n\nGrüße\n--b\n\nsig\n--b--\n", "",
			false, message.EncodeResult{Needs8Bit: true}},
		{"a report for UTF-8 addresses", "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/global-delivery-status\nContent-Transfer-Encoding: 8bit\n\nFinal-Recipient: utf-8; ü@a.test\n--b--\n",
			"Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/global-delivery-status\nContent-Transfer-Encoding: base64\n\nRmluYWwtUmVjaXBpZW50OiB1dGYtODsgw7xAYS50ZXN0\n--b--\n",
			false, message.EncodeResult{Changed: true}},
		{"a report that breaks RFC 3464", "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\nFinal-Recipient: rfc822; ü@a.test\n--b--\n", "",
			false, message.EncodeResult{Needs8Bit: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mail := crlf(c.mail)
			want := crlf(c.want)
			if want == "" {
				want = mail
			}
			var out bytes.Buffer
			got, err := message.EncodeSevenBitNested(&out, strings.NewReader(mail), message.Scan([]byte(mail)), !c.keep)
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

// A nested message of any depth becomes 7-bit, or the result reports that it did not.
func TestRelayedDeep(t *testing.T) {
	for _, depth := range []int{1, message.MaxDepth - 1, message.MaxDepth, 10 * message.MaxDepth} {
		mail := strings.Repeat("Content-Type: message/rfc822\r\n\r\n", depth) + "Subject: x\r\n\r\nGrüße, Bob\r\n"
		var out bytes.Buffer
		got, err := message.EncodeSevenBitNested(&out, strings.NewReader(mail), message.Scan([]byte(mail)), true)
		if err != nil {
			t.Fatal(err)
		}
		if is := message.Scan(out.Bytes()).Has(message.EightBit); is != got.Needs8Bit || is != (depth >= message.MaxDepth) {
			t.Errorf("%d deep: 8-bit %v, said %v", depth, is, got.Needs8Bit)
		}
	}
}
