// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/message"
)

// typicalMail returns a mail of about 4 KiB, as applications send it.
func typicalMail() []byte {
	const head = `Return-Path: <bounce@shop.test>
Delivered-To: bob@demo.test
Received: from mail.shop.test (mail.shop.test [192.0.2.1])
	by mx.demo.test with ESMTPS id 0123456789
	for <bob@demo.test>; Fri, 20 Nov 2026 10:00:00 +0000
DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=shop.test; s=m1;
	h=from:to:subject:date:message-id; bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=;
	b=` + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" + `
Date: Fri, 20 Nov 2026 10:00:00 +0000
From: "The Shop" <orders@shop.test>
To: Bob Example <bob@demo.test>, carol@demo.test
Subject: =?utf-8?q?Your_order_=E2=82=AC_12=2E50?= is on its way
Message-ID: <0193-abc@shop.test>
MIME-Version: 1.0
Content-Type: multipart/alternative; boundary="=_mixed_0123456789"

--=_mixed_0123456789
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

`
	var b strings.Builder
	b.WriteString(head)
	for range 18 {
		b.WriteString("Thank you for your order, which we have packed with care today.\n")
	}
	b.WriteString("--=_mixed_0123456789\nContent-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n")
	for range 22 {
		b.WriteString("<p>Thank you for your order, which we have packed with care.</p>\n")
	}
	b.WriteString("--=_mixed_0123456789--\n")
	return []byte(crlf(b.String()))
}

// largeMail returns a mail of about 1 MiB, nearly all of it an attachment.
func largeMail() []byte {
	var b strings.Builder
	b.WriteString("From: a@b\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee attached.\n--b\nContent-Type: application/pdf\nContent-Transfer-Encoding: base64\n\n")
	for range 13_500 {
		b.WriteString(strings.Repeat("QUJD", 19) + "\n")
	}
	b.WriteString("--b--\n")
	return []byte(crlf(b.String()))
}

func BenchmarkScan(b *testing.B) {
	for _, c := range []struct {
		name string
		mail []byte
	}{{"4KiB", typicalMail()}, {"1MiB", largeMail()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.mail)))
			b.ReportAllocs()
			for b.Loop() {
				message.Scan(c.mail)
			}
		})
	}
}

func BenchmarkEnvelope(b *testing.B) {
	mail := typicalMail()
	header := message.Header(mail[:message.Scan(mail).Parts[0].Header.Len])
	b.ReportAllocs()
	for b.Loop() {
		message.AppendEnvelope(nil, header)
	}
}

func BenchmarkIsEnvelope(b *testing.B) {
	mail := typicalMail()
	envelope := message.AppendEnvelope(nil, mail[:message.Scan(mail).Parts[0].Header.Len])
	b.ReportAllocs()
	for b.Loop() {
		if !message.IsEnvelope(envelope) {
			b.Fatalf("%q", envelope)
		}
	}
}

// BenchmarkFiling measures this package's part in filing one mail.
func BenchmarkFiling(b *testing.B) {
	mail := typicalMail()
	b.ReportAllocs()
	for b.Loop() {
		ix := message.Scan(mail)
		message.AppendEnvelope(nil, mail[:ix.Parts[0].Header.Len])
		ix.BodyStructure()
		if _, err := ix.MarshalBinary(); err != nil {
			b.Fatal(err)
		}
	}
}
